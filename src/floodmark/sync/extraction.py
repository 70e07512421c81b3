"""How tables are extracted in a run: settings, and what the run lends to each of them."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs

from floodmark.config.models import ExtractionSettings, LakeSettings
from floodmark.model.extraction import ChunkPlan, Receipt, Window
from floodmark.model.history import StartedBy
from floodmark.model.manifest import Column
from floodmark.model.notice import Report
from floodmark.model.position import Position
from floodmark.model.run import Strategy
from floodmark.model.table import TableName
from floodmark.model.verification import Comparison, WindowPair
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.planning.parallelism import windows_per_chunk
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.loading import Loading
from floodmark.sync.parallel_strides import walk_over
from floodmark.sync.plan import TablePlan
from floodmark.sync.plan_windows import chunks_of
from floodmark.sync.progress import Progress
from floodmark.sync.source import Source
from floodmark.sync.window_sizes import window_sizes

if TYPE_CHECKING:
    from floodmark.worker.compare_window import VerificationJob
    from floodmark.worker.job import ExtractionJob


class Engine(Protocol):
    """Reads windows into the lake."""

    def for_rows(self, rows: int) -> "Engine":
        """Return the engine that reads so many rows of a table."""

    def prepare(self) -> None:
        """Start what is needed, in the background: windows come soon."""

    def extract(
        self, job: "ExtractionJob", windows: Sequence[Window], progress: Callable[[int], None]
    ) -> list[Receipt]:
        """Read all windows of a chunk."""

    def cancel(self, job: "ExtractionJob") -> None:
        """End the reading of a chunk, which then fails; it may also go on to its end."""

    def compare(self, job: "VerificationJob", pairs: Sequence[WindowPair]) -> list[Comparison]:
        """Compare windows with the target."""

    def slots(self) -> int:
        """Return how many windows are read at once; on a cluster, this may change."""

    @property
    def slots_beside(self) -> int:
        """How many windows another engine of this run may read at the same time."""

    @property
    def on_cluster(self) -> bool:
        """Whether workers may run on other machines, with another lake folder."""

    @property
    def known_slots(self) -> int | None:
        """How many windows are read at once; None if that is not known yet."""


class Extraction(Struct, frozen=True, kw_only=True):
    """How to extract tables in this run.

    `prepare` is called once there is something to read, with the engine that reads it. `reserved`
    returns the column names that the target reserves for itself. With `loading`, chunks are loaded
    while later ones are read. `check_frozen` raises if a table that may not be altered cannot hold
    columns, by a key.
    """

    store: WatermarkStore
    source: Source
    settings: ExtractionSettings
    lake: LakeSettings
    engine: Engine
    strategy: Strategy
    session_id: str
    default_start: Position
    start_by: StartedBy = "default"
    limit: int | None = None
    every_seconds: float | None = None
    loading: Loading | None = None
    reserved: Callable[[Iterable[str]], Sequence[str]] = lambda _names: ()
    prepare: Callable[[Engine], None] = lambda _engine: None
    check_frozen: Callable[[tuple[Column, ...], tuple[str, ...]], None] = lambda _columns, _key: (
        None
    )
    progress: Callable[[TableName, Progress], None] = lambda _table, _progress: None
    report: Report = lambda _notice: None

    def of_rows(self, rows: int) -> "Extraction":
        """Return the same with the engine that reads so many rows."""
        return structs.replace(self, engine=self.engine.for_rows(rows))

    @property
    def windows_per_chunk(self) -> int:
        """How many windows make a chunk, by what is known of Spark now."""
        configured = self.settings.windows_per_chunk
        return windows_per_chunk(configured, self.strategy, self.engine.known_slots)

    def chunks(
        self,
        session: MysqlSession,
        plan: TablePlan,
        *,
        limit: int | None,
        watermark: Callable[[], Watermark | None],
    ) -> Generator[ChunkPlan]:
        """Divide a plan into chunks, found one after another as needed. Close it at the end.

        The current `watermark` is asked for, since it shows how large the table's rows are.
        """
        return chunks_of(
            session,
            plan,
            self.settings,
            windows_per_chunk=self._chunk_sizes(),
            limit=limit,
            walk=walk_over(self.source, self.strategy, self.engine.known_slots),
            found=lambda: self.prepare(self.engine),
            window_size=window_sizes(
                plan,
                self.settings,
                self.source,
                self.engine,
                self.strategy,
                limit=limit,
                watermark=watermark,
            ),
        )

    def _chunk_sizes(self) -> Iterator[int]:
        """Yield how many windows make each chunk, by what is known of Spark when it is planned.

        The first chunk does not wait for a cluster to start; executors may join later.
        """
        yield self.windows_per_chunk
        while True:
            if self.engine.known_slots is None and self.strategy == "intra-table":
                self.engine.slots()  # starts Spark
            yield self.windows_per_chunk
