"""Read or compare windows, no more at once than the source allows."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from floodmark.model.extraction import Receipt, Window
from floodmark.model.verification import Comparison, WindowPair
from floodmark.sync.receipt_check import check_files

if TYPE_CHECKING:
    from floodmark.sync.extraction import Engine, Extraction
    from floodmark.worker.compare_window import VerificationJob
    from floodmark.worker.job import ExtractionJob


def read_windows(
    extraction: "Extraction",
    job: "ExtractionJob",
    windows: Sequence[Window],
    progress: Callable[[int], None] = lambda _done: None,
    *,
    turn: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> list[Receipt]:
    """Read windows into the lake; return receipts in their order.

    FloodmarkError if another machine wrote a file that is not in the lake as seen from here.
    `progress` receives the number of windows done. If readers are scarce, who has the earlier
    `turn` reads first. `check` raises once the receipts are not needed any more.
    """
    receipts = _read(extraction, job, windows, progress, turn=turn, check=check)
    if extraction.engine.on_cluster:
        check_files(extraction.store.objects, receipts)
    return receipts


def _read(
    extraction: "Extraction",
    job: "ExtractionJob",
    windows: Sequence[Window],
    progress: Callable[[int], None],
    *,
    turn: int | None,
    check: Callable[[], None],
) -> list[Receipt]:
    engine, source = extraction.engine, extraction.source
    slots = _fixed_slots(engine)
    most = source.readers_at_once(slots)
    if rate := source.connection.max_rows_per_second:
        job = structs.replace(job, rows_per_second=rate / most)
    check()
    if slots is not None and not _may_exceed(extraction, slots):
        return engine.extract(job, windows, progress)
    begun = 0

    def read(part: Sequence[Window], finished: Callable[[int], None]) -> list[Receipt]:
        nonlocal begun
        check()
        before, begun = begun, begun + len(part)

        def report(done: int) -> None:
            finished(done)
            progress(before + done)

        return engine.extract(job, part, report)

    return source.readers.run(windows, read, most=most, turn=turn)


def compare_windows(
    extraction: "Extraction", job: "VerificationJob", pairs: Sequence[WindowPair]
) -> list[Comparison]:
    """Compare windows with the target; return comparisons in their order."""
    engine, source = extraction.engine, extraction.source
    slots = _fixed_slots(engine)
    most = source.readers_at_once(slots)
    if slots is not None and most >= slots:
        return engine.compare(job, pairs)
    return source.readers.run(pairs, lambda part, _: engine.compare(job, part), most=most)


def _may_exceed(extraction: "Extraction", slots: int) -> bool:
    """Whether more windows could be read at once than the source allows.

    An engine itself runs no more than its slots, but tables may be read by two engines at once.
    """
    source = extraction.source
    if extraction.strategy == "inter-table" and (beside := extraction.engine.slots_beside):
        slots += beside
        if source.connection.max_rows_per_second:
            return True
    return source.readers_at_once(slots) < slots


def _fixed_slots(engine: "Engine") -> int | None:
    """Return how many windows are read at once; None on a cluster, where that may grow."""
    return None if engine.on_cluster else engine.slots()
