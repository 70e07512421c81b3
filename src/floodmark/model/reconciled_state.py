"""When a table was last reconciled with its source, and the transitions of that state.

A *pass* compares the whole table, in one run or in several. What a run commits is counted when its
manifest is applied (`committed`), so that a crash right after the commit neither loses the counts
nor repeats them. The place to continue from moves only after the load (`advanced`, `finished`): a
run that died is repeated from the same place, and finds nothing that is loaded already.

If all copies of the watermark are lost, this state is lost with them, and the pass starts over.
"""

from datetime import datetime

from msgspec import Struct, structs

from floodmark.model.log_state import Count, Status
from floodmark.model.manifest import Change, Chunk, Reconciled, Reset, Restore, Set
from floodmark.model.reconciliation import Place


class ReconciledState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When source and target were last reconciled, and how far the current pass is."""

    status: Status = "pending"
    """`pending`, `in_progress` if the next run continues the pass, `success`, or `failed` if the
    last run stopped or left deleted rows in the target."""
    last_started: datetime | None = None
    """When the last complete pass started."""
    last_finished: datetime | None = None
    """When the last complete pass finished."""
    last_run_time: datetime | None = None
    """When a run last compared source and target, complete or not."""
    pass_started: datetime | None = None
    """When the pass in progress started, if there is one."""
    place: Place | None = None
    """Where the pass in progress continues; the start if there is none."""
    rows: Count = 0
    """Rows of the source that were compared in this pass, or in the last one."""
    deleted: Count = 0
    """Rows found deleted in this pass, or in the last one, and deleted in the target."""
    missing: Count = 0
    """Rows that the target lacked, likewise."""
    stale: Count = 0
    """Rows of which the target had another version, likewise."""
    duplicate: Count = 0
    """Keys that the target had more than once, likewise."""
    left: Count = 0
    """Rows found deleted that are only reported, and still in the target."""
    total_deleted: Count = 0
    """Rows deleted in the target by all passes in this load epoch."""
    total_repaired: Count = 0
    """Rows repaired in the target by all passes in this load epoch."""
    error: str | None = None
    """Why the last run stopped or compared nothing, or what it left."""


def begun(state: ReconciledState, now: datetime, key: tuple[str, ...]) -> ReconciledState:
    """Return the state at the start of a run: the same pass if it can continue, else a new one.

    A place along another key means nothing.
    """
    if state.pass_started is not None and (state.place is None or state.place.key == key):
        return state
    return structs.replace(
        state,
        pass_started=now,
        place=None,
        rows=0,
        deleted=0,
        missing=0,
        stale=0,
        duplicate=0,
        left=0,
    )


def committed(state: ReconciledState, change: Reconciled) -> ReconciledState:
    """Count what a manifest deletes and repairs."""
    repaired = change.missing + change.stale + change.duplicate
    state = structs.replace(
        state,
        total_deleted=state.total_deleted + change.deleted,
        total_repaired=state.total_repaired + repaired,
    )
    if state.pass_started is None:  # a run over a range alone
        return state
    return structs.replace(
        state,
        deleted=state.deleted + change.deleted,
        missing=state.missing + change.missing,
        stale=state.stale + change.stale,
        duplicate=state.duplicate + change.duplicate,
    )


def advanced(
    state: ReconciledState, *, place: Place, rows: int, left: int, now: datetime
) -> ReconciledState:
    """Record how far a run has come; the next run continues at `place`."""
    return structs.replace(
        state,
        status="in_progress",
        place=place,
        rows=state.rows + rows,
        left=state.left + left,
        last_run_time=now,
        error=None,
    )


def finished(state: ReconciledState, *, rows: int, left: int, now: datetime) -> ReconciledState:
    """Record that the pass is complete; it has failed if deleted rows are left in the target."""
    left += state.left
    return structs.replace(
        state,
        status="failed" if left else "success",
        last_started=state.pass_started,
        last_finished=now,
        last_run_time=now,
        pass_started=None,
        place=None,
        rows=state.rows + rows,
        left=left,
        error=_still_here(left) if left else None,
    )


def deletes_lost(left: int) -> ReconciledState:
    """Return the state after deleted keys were lost that no load has applied."""
    return ReconciledState(status="failed", left=left, error=_still_here(left))


def _still_here(left: int) -> str:
    return f"{left:,} rows were deleted in the source, and are still here"


def stopped(state: ReconciledState, error: str, now: datetime) -> ReconciledState:
    """Record that a run stopped without a change; the next one starts at the same place."""
    return structs.replace(state, status="failed", error=error, last_run_time=now)


def skipped(state: ReconciledState, reason: str, now: datetime) -> ReconciledState:
    """Record why a scheduled run did not compare the table."""
    return structs.replace(state, status="pending", error=reason, last_run_time=now)


def after_change(
    state: ReconciledState, change: Change, *, new_load_epoch: bool
) -> ReconciledState:
    """Return what stays true after a manifest.

    A table that is read or loaded again was never reconciled. A new position starts the pass again.
    """
    if isinstance(change, Restore) and change.lost_deletes:
        return deletes_lost(change.lost_deletes)
    if new_load_epoch or isinstance(change, Reset | Restore):
        return ReconciledState()
    if isinstance(change, Set) and state.pass_started is not None:
        return structs.replace(state, status="pending", pass_started=None, place=None)
    if isinstance(change, Chunk) and change.reconciled is not None:
        return committed(state, change.reconciled)
    return state


def reconciled_not_after(state: ReconciledState, now: datetime) -> ReconciledState:
    """Return the state with times in the future replaced by now."""
    names = ("last_started", "last_finished", "last_run_time", "pass_started")
    found = {name: getattr(state, name) for name in names}
    return structs.replace(state, **{name: min(at, now) for name, at in found.items() if at})
