"""Rules that every change of a watermark must follow."""

from collections.abc import Sequence

from floodmark.errors import IllegalTransition
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.watermark import Watermark, verified_ahead


def check_transition(before: Watermark, now: Watermark, manifests: Sequence[Manifest]) -> None:
    """Raise IllegalTransition unless `now` may follow `before` through these manifests."""
    if now.table_name != before.table_name:
        raise IllegalTransition(f"{before.table_name} cannot become {now.table_name}")
    if not manifests and _extraction(now) != _extraction(before):
        raise IllegalTransition(
            f"the position of {before.table_name} moves only by manifests,"
            f" not from {before.position} to {now.position} without one"
        )
    position = before.position
    for manifest in manifests:
        next_position = manifest.standing.mysql_state.position
        change = manifest.change
        forward = isinstance(change, Chunk) and not change.reload
        if forward and next_position.compare(position) == -1:
            raise IllegalTransition(
                f"chunk {manifest.head} of {before.table_name} would move the position back"
                f" from {position} to {next_position}"
            )
        position = next_position
    if now.loaded_head > now.head:
        raise IllegalTransition(
            f"{now.table_name}: {now.loaded_head} is loaded, but only {now.head} is extracted"
        )
    if (ahead := verified_ahead(now)) is not None:
        raise IllegalTransition(f"{now.table_name}: {ahead}")
    # A restore may return to a load epoch from before a reset.
    load_epochs = {manifest.standing.load_epoch for manifest in manifests}
    load_epochs |= {now.redshift_state.load_epoch, before.redshift_state.load_epoch}
    # If the target lost manifests, they are loaded again and the status is pending.
    lost = now.redshift_state.status == "pending"
    if len(load_epochs) == 1 and now.loaded_head < before.loaded_head and not lost:
        raise IllegalTransition(
            f"{now.table_name}: loading cannot go back from {before.loaded_head}"
            f" to {now.loaded_head}"
        )


def _extraction(watermark: Watermark) -> tuple[object, ...]:
    """Return the fields that only a manifest may change: stage 1 except its status and error."""
    state = watermark.mysql_state
    return (
        watermark.epoch,
        state.position,
        state.last_manifest,
        state.total_rows,
        state.s3_file_count,
        state.counted_from_epoch,
        watermark.redshift_state.eligible_from_epoch,
        watermark.redshift_state.load_epoch,
    )
