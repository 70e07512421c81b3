"""Find the rows that differ between source and target, without reading all of them."""

from collections.abc import Callable, Iterator, Sequence

from floodmark.model.reconciliation import IntervalDifferences, KeyLimits, Place
from floodmark.model.verification import SyncedRange
from floodmark.sync.extract import Extraction
from floodmark.sync.plan import TablePlan
from floodmark.warehouse.target import Target

NO_LIMITS = KeyLimits()


def find_differences(
    extraction: Extraction,
    open_target: Callable[[], Target],
    target_name: str,
    plan: TablePlan,
    ranges: Sequence[SyncedRange],
    *,
    start: Place | None = None,
    limits: KeyLimits = NO_LIMITS,
    deleted_at: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[IntervalDifferences]:
    """Compare keys and versions of a table, and yield what differs, interval by interval.

    `plan` is that of a verification: the columns are those that the target holds. `ranges` are the
    synced ranges up to the loaded position; other rows of the source are never a difference. The
    caller holds the table's lease, so that no load changes the target meanwhile; `check` is called
    before each interval, and may raise. `start` is the `through` of the last interval of an earlier
    run; it is ignored if the table's key has changed since. `deleted_at` is the target's column
    that marks rows as deleted; it need not exist yet.

    The caller may stop after any interval. The first one may come late: see `planning.segments`.
    """
    raise NotImplementedError
