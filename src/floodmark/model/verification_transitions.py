"""Transitions of verification: the position up to which source and target agree."""

from datetime import datetime

from msgspec import structs

from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Manifest, Reset, Restore
from floodmark.model.position import START, Position
from floodmark.model.watermark import VerifiedState, Watermark


def verified_state_after(watermark: Watermark, manifest: Manifest) -> VerifiedState:
    """Return what stays verified: nothing after the table's position after a manifest."""
    before, log_state, change = watermark.verified_state, manifest.standing, manifest.change
    new_load_epoch = log_state.load_epoch != watermark.redshift_state.load_epoch
    # Rows of any position are not what they were.
    other = isinstance(change, Chunk) and (change.adopted or bool(change.unfilled))
    if new_load_epoch or other or isinstance(change, Reset | Restore):
        return VerifiedState()
    position = log_state.mysql_state.position.base
    order = before.position.compare(position)
    if order == 1:
        return _verified_to(before, position)
    forward = isinstance(change, Chunk) and not change.reload
    return before if order is not None or forward else _verified_to(before, START)


def verified(
    watermark: Watermark, position: Position, *, through: ManifestId | None, now: datetime
) -> Watermark:
    """Record that source and target agree up to a position, and in manifests up to `through`."""
    state = _verified_to(watermark.verified_state, position)
    if through is not None:
        state = structs.replace(
            state,
            status="success",
            error=None,
            verified_epoch=through.epoch,
            verified_sequence=through.sequence,
        )
    return _with_verified(watermark, state, now)


def differs(
    watermark: Watermark, position: Position, error: str, *, since: ManifestId, now: datetime
) -> Watermark:
    """Record that source and target differ right after a position, in a manifest after `since`."""
    state = structs.replace(
        _verified_to(watermark.verified_state, position),
        status="failed",
        error=error,
        verified_epoch=since.epoch,
        verified_sequence=since.sequence,
    )
    return _with_verified(watermark, state, now)


def _verified_to(state: VerifiedState, position: Position) -> VerifiedState:
    return structs.replace(state, last_timestamp=position.timestamp, last_id=position.id)


def _with_verified(watermark: Watermark, state: VerifiedState, now: datetime) -> Watermark:
    if state != watermark.verified_state:
        state = structs.replace(state, last_verified_time=now)
    return structs.replace(watermark, verified_state=state)
