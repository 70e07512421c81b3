"""Transitions of stage 2: it follows the ledger.

It advances only by `loaded`, and goes back only by `unloaded`, if the target itself did. A failure
changes its status and error, never the position.
"""

from datetime import datetime

from msgspec import structs

from floodmark.model.log_state import ManifestId, Status
from floodmark.model.manifest import Chunk, Loaded, Manifest, Restore
from floodmark.model.reconciled_state import ReconciledState
from floodmark.model.watermark import RedshiftState, VerifiedState, Watermark


def load_state_after(before: RedshiftState, manifest: Manifest) -> RedshiftState:
    """Return the state of stage 2 after a manifest: a reset or restore sets it back."""
    log_state, change = manifest.standing, manifest.change
    state = structs.replace(
        before, eligible_from_epoch=log_state.eligible_from_epoch, load_epoch=log_state.load_epoch
    )
    if log_state.load_epoch != before.load_epoch:
        start = Loaded(head=ManifestId(log_state.eligible_from_epoch, 0), rows=0, time=None)
        known = change.loaded if isinstance(change, Restore) else start
        return structs.replace(
            state,
            status="pending",
            total_rows=known.rows,
            quarantined_rows=known.quarantined_rows,
            deleted_rows=known.deleted_rows,
            last_session_rows=0,
            last_load_time=known.time,
            loaded_epoch=known.head.epoch,
            loaded_sequence=known.head.sequence,
            error=None,
        )
    if isinstance(change, Chunk) and change.loaded_files and state.status == "success":
        return structs.replace(state, status="pending")
    return state


def loaded(
    watermark: Watermark,
    *,
    through: ManifestId,
    total_rows: int,
    quarantined_rows: int = 0,
    deleted_rows: int = 0,
    session_rows: int,
    now: datetime,
    complete: bool = True,
    target: str | None = None,
) -> Watermark:
    """Copy the ledger's totals into the watermark: everything up to `through` is in the target.

    The counts are the ledger's own sums for this load epoch, so this is idempotent. The load is not
    `complete` if a manual watermark left something out. `target` is the ledger's target, if known.
    """
    status: Status = "success" if complete else "pending"
    before = watermark.redshift_state
    state = structs.replace(before, status=status, error=None, target=target or before.target)
    counts = (total_rows, quarantined_rows, deleted_rows)
    known = (state.total_rows, state.quarantined_rows, state.deleted_rows)
    if through != watermark.loaded_head or counts != known:
        state = structs.replace(
            state,
            total_rows=total_rows,
            quarantined_rows=quarantined_rows,
            deleted_rows=deleted_rows,
            last_session_rows=session_rows,
            last_load_time=now,
            loaded_epoch=through.epoch,
            loaded_sequence=through.sequence,
        )
    return structs.replace(watermark, redshift_state=state)


def unloaded(
    watermark: Watermark,
    *,
    through: ManifestId,
    total_rows: int,
    quarantined_rows: int = 0,
    deleted_rows: int = 0,
) -> Watermark:
    """Set the load state back after a loss in the target: its ledger now ends at `through`.

    Nothing stays verified or reconciled: it is not the target that was compared.
    """
    state = structs.replace(
        watermark.redshift_state,
        status="pending",
        total_rows=total_rows,
        quarantined_rows=quarantined_rows,
        deleted_rows=deleted_rows,
        last_session_rows=0,
        loaded_epoch=through.epoch,
        loaded_sequence=through.sequence,
        error=None,
    )
    return structs.replace(
        watermark,
        redshift_state=state,
        verified_state=VerifiedState(),
        reconciled_state=ReconciledState(),
    )


def load_failed(watermark: Watermark, error: str) -> Watermark:
    """Record that stage 2 failed; keep the load progress."""
    state = structs.replace(watermark.redshift_state, status="failed", error=error)
    return structs.replace(watermark, redshift_state=state)
