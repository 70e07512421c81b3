"""Read the chunks of a table ahead of their commits: several at once, committed in order.

So no slot of Spark is idle at the end of a chunk, while its last window is read and while it is
committed. Every chunk goes through these states:

| state     | what exists of it                       | a crash leaves                           |
| --------- | --------------------------------------- | ---------------------------------------- |
| planned   | its windows, in memory                  | nothing                                  |
| in flight | files with the number of the manifest   | files that no manifest lists, some of    |
|           | that it is to become; no manifest       | them for numbers that are not next       |
| complete  | checked receipts, in memory; it waits   | the same                                 |
|           | for the chunks before it                |                                          |
| committed | its manifest, and the position after it | the position; the next run reads on      |
| loaded    | its rows and a row of the ledger        | nothing to do                            |

Chunks are committed one after another by one thread, each against the state that the one before it
left. Positions therefore only move forward, and the chunks of the log tile the range whatever was
read first. The number of chunks between *planned* and *committed* is limited, and so is the memory.

What ends a run while chunks are in flight:

- *A window fails*: the chunks before it are committed, its own and the later ones are discarded,
  even complete ones. The first failure in the order of the chunks is the one that is raised.
- *The lease is lost*, or *an operator's `set` or `reset` comes between*: nothing more is committed.
  A chunk is committed only under the number that its files were written for. A file whose number is
  taken is free to be removed, so a chunk must never be committed under a later one.
- *Ctrl-C* ends Spark's tasks, and discards whatever is not committed.
- *`--limit N`* and *a bound that is held back* limit the plan: there are no chunks behind them.

Files of discarded chunks are never read. `s3clean` removes them once their number is taken, or when
they are a day old (`state.removable_files`).
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, gettempdir
from threading import Event
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from floodmark.errors import FloodmarkError, LeaseLost
from floodmark.model.extraction import ChunkPlan, Receipt, Window
from floodmark.model.log_state import ManifestId
from floodmark.model.table import TableName
from floodmark.planning.parallelism import MOST_CHUNKS, chunks_at_once
from floodmark.sync.extraction_job import extraction_job
from floodmark.sync.plan import TablePlan
from floodmark.sync.read_ahead import read_ahead
from floodmark.sync.read_windows import read_windows
from floodmark.sync.receipt_check import check_receipts

if TYPE_CHECKING:
    from floodmark.sync.extraction import Extraction
    from floodmark.worker.job import ExtractionJob

_MARKS = "floodmark-slices-"


class ReadChunk(Struct, frozen=True, kw_only=True):
    """A chunk that was read, the manifest that it is to become, and when reading began."""

    plan: ChunkPlan
    head: ManifestId
    receipts: list[Receipt]
    began: float

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(file.bytes for receipt in self.receipts for file in receipt.files)

    def check_next(self, table: TableName, head: ManifestId) -> None:
        """Raise LeaseLost unless the next manifest is the one that the files were written for."""
        if head != self.head:
            raise LeaseLost(
                f"{table}: manifest {self.head} was taken during this run; the next is {head}",
                hint="run the command again",
            )


class ChunksInFlight:
    """Reads the chunks of a plan, several at once; the caller commits them in order.

    `progress` is called, from any thread, when windows are done.
    """

    def __init__(
        self,
        extraction: "Extraction",
        plan: TablePlan,
        *,
        first: ManifestId,
        progress: Callable[[], None],
    ) -> None:
        self._extraction = extraction
        self._plan = plan
        self._heads = (ManifestId(first.epoch, number) for number in count(first.sequence))
        self._progress = progress
        self._over = Event()
        self._jobs: dict[ManifestId, ExtractionJob] = {}
        self._windows: dict[ManifestId, tuple[ChunkPlan, int]] = {}
        self._planned: dict[ManifestId, int] = {}
        self._marks: str | None = None

    @contextmanager
    def read(self, chunks: Iterator[ChunkPlan]) -> Iterator[Iterator[ReadChunk]]:
        """Read chunks, and yield them in order; leaving this ends whatever is in flight.

        A chunk is committed, or done with, when the next one is asked for.
        """
        extraction = self._extraction

        def limit() -> int:
            """Return how many chunks are in flight: more once the executors of a cluster join."""
            slots = extraction.engine.known_slots
            # The last one was planned, and waits for this answer.
            in_flight = list(self._planned.values())[:-1]
            return chunks_at_once(in_flight, extraction.strategy, slots)

        def turn(plan: ChunkPlan, head: ManifestId) -> tuple[ChunkPlan, ManifestId, int]:
            self._planned[head] = len(plan.windows)
            return plan, head, extraction.source.readers.turn()

        turns = map(turn, chunks, self._heads)
        reading = read_ahead(
            turns,
            lambda turn: self._read(*turn),
            at_once=MOST_CHUNKS,
            limit=limit,
            cancel=self._cancel,
        )
        with folder_of_marks() as self._marks, closing(reading):
            yield reading

    def committed(self, chunk: ReadChunk) -> None:
        """Take a chunk out of those that are in flight."""
        del self._windows[chunk.head], self._planned[chunk.head]

    @property
    def slices(self) -> tuple[int, int, int]:
        """The slices that are done, all slices, and the planned rows of what is in flight."""
        found = list(self._windows.items())
        return (
            sum(self._done(head, plan, done) for head, (plan, done) in found),
            sum(_slices(plan.windows) for _, (plan, _) in found),
            sum(plan.rows for _, (plan, _) in found),
        )

    def _done(self, head: ManifestId, plan: ChunkPlan, windows: int) -> int:
        """Return how many slices of a chunk are done, by its windows and by their marks."""
        marked = 0
        with suppress(OSError):  # workers of a cluster have no such file
            marked = os.path.getsize(self._marks_of(head))
        return min(max(marked, _slices(plan.windows[:windows])), _slices(plan.windows))

    def _marks_of(self, head: ManifestId) -> str:
        return os.path.join(self._marks or "", str(head))

    def _read(self, plan: ChunkPlan, head: ManifestId, turn: int) -> ReadChunk:
        began, extraction = time.monotonic(), self._extraction
        job = extraction_job(extraction, self._plan, self._plan.source.name, head.sequence)
        with suppress(OSError):  # progress is then seen when tasks end
            open(self._marks_of(head), "x").close()
        job = structs.replace(job, marks=self._marks_of(head))
        self._jobs[head] = job
        self._note(head, plan, 0)
        try:
            receipts = read_windows(
                extraction,
                job,
                plan.windows,
                lambda done: self._note(head, plan, done),
                turn=turn,
                check=self._check,
            )
        finally:
            del self._jobs[head]
        check_receipts(plan, receipts)
        self._note(head, plan, len(plan.windows))
        return ReadChunk(plan=plan, head=head, receipts=receipts, began=began)

    def _note(self, head: ManifestId, plan: ChunkPlan, done: int) -> None:
        self._windows[head] = plan, done
        self._progress()

    def _check(self) -> None:
        """Raise FloodmarkError once the run of this table is over; nobody waits for the chunk."""
        if self._over.is_set():
            raise FloodmarkError("the chunk is not needed any more")

    def _cancel(self) -> None:
        self._over.set()
        for job in list(self._jobs.values()):
            self._extraction.engine.cancel(job)


def _slices(windows: Sequence[Window]) -> int:
    return sum(len(window.statements) for window in windows)


def folder_of_marks() -> TemporaryDirectory[str]:
    """Return a new folder for the marks of slices; remove those of processes that were killed."""
    for left in Path(gettempdir()).glob(f"{_MARKS}*"):
        pid = left.name.removeprefix(_MARKS).partition("-")[0]
        if pid.isdecimal() and not _is_running(int(pid)):
            rmtree(left, ignore_errors=True)
    return TemporaryDirectory(prefix=f"{_MARKS}{os.getpid()}-")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
