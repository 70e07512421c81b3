"""Read few rows in processes of the command itself, for which starting Spark would take longer."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError
from floodmark.model.extraction import Receipt, Window
from floodmark.model.verification import Comparison, WindowPair
from floodmark.spark.extract import extract, title_of
from floodmark.spark.processes import Processes
from floodmark.spark.runner import tries_of
from floodmark.spark.user_settings import local_slots

if TYPE_CHECKING:
    from floodmark.sync.extraction import Engine
    from floodmark.sync.spark_engine import SparkEngine
    from floodmark.worker.compare_window import VerificationJob
    from floodmark.worker.job import ExtractionJob


class ProcessEngine:
    """Reads windows in processes, as many at once as a local Spark would; Spark compares."""

    on_cluster = False

    def __init__(self, spark: "SparkEngine", master: str, *, verbose: bool) -> None:
        slots = local_slots(master)
        assert slots is not None
        self._spark = spark
        self._processes = Processes(slots, tries_of(master, None), spark.check, verbose=verbose)

    def for_rows(self, rows: int) -> "Engine":
        """Return the engine that reads so many rows of a table."""
        return self._spark.for_rows(rows)

    def prepare(self) -> None:
        """Start a process: it will be needed soon."""
        self._processes.prepare()

    def extract(
        self, job: "ExtractionJob", windows: Sequence[Window], progress: Callable[[int], None]
    ) -> list[Receipt]:
        """Read all windows of a chunk, one task each."""
        try:
            return extract(self._processes, job, windows, progress=progress)
        except FloodmarkError:
            self._spark.check()  # the stop of the run causes other errors
            raise

    def cancel(self, job: "ExtractionJob") -> None:
        """End the tasks of a chunk."""
        self._processes.cancel_titled(title_of(job))

    def compare(self, job: "VerificationJob", pairs: Sequence[WindowPair]) -> list[Comparison]:
        """Compare windows with the target."""
        return self._spark.compare(job, pairs)

    def slots(self) -> int:
        """Return how many windows are read at once."""
        return self._processes.slots()

    @property
    def known_slots(self) -> int:
        """How many windows are read at once."""
        return self._processes.slots()

    @property
    def slots_beside(self) -> int:
        """How many windows Spark may read at the same time."""
        return self._processes.slots()

    def close(self) -> None:
        """End all processes; they start again if needed."""
        self._processes.close()
