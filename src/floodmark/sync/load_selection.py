"""Select the manifests to load, by the ledger and a manual watermark."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from floodmark.model.load import LedgerEntry
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Manifest, chunks_in
from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
from floodmark.model.watermark import Watermark
from floodmark.planning.load_batches import pending_manifests, split_by_creation
from floodmark.sync.load_checks import refuse_all_left_out
from floodmark.sync.loading import Loading
from floodmark.sync.pending_loads import manifests_behind


class Selection(Struct, frozen=True, kw_only=True):
    """The `pending` ones of all `manifests`, and those that a manual watermark leaves out."""

    manifests: list[Manifest]
    pending: list[Manifest]
    left_out: list[Manifest] = []


def manual_start(loading: Loading, watermark: Watermark) -> datetime | None:
    """Return the manual watermark, if it limits what is loaded."""
    return watermark.manual_start if loading.load_only else None


def select_manifests(
    loading: Loading,
    table: TableName,
    watermark: Watermark,
    behind: list[Manifest],
    ledger: Mapping[ManifestId, LedgerEntry],
) -> Selection:
    """Choose what to load: everything pending, or what a manual watermark allows."""
    after = manual_start(loading, watermark)
    if after is None:
        return Selection(manifests=behind, pending=pending_manifests(behind, ledger))
    loading.report(
        Notice(
            "info",
            f"{table}: Using manual watermark-based incremental {loading.warehouse} loading:"
            f" files after {plain(after)}",
        )
    )
    # Manifests from before a reset count again if they are newer than the manual timestamp.
    manifests = list(loading.store.log.manifests(table))
    pending, left_out = split_by_creation(
        pending_manifests(manifests, ledger),
        after,
        eligible_from=watermark.redshift_state.eligible_from_epoch,
    )
    refuse_all_left_out(table, after, manifests, left_out)
    return Selection(manifests=manifests, pending=pending, left_out=left_out)


def foresee(
    loading: Loading, table: TableName, watermark: Watermark
) -> tuple[list[Chunk], list[Chunk]]:
    """Return the chunks that a load would take and leave out, without the ledger."""
    behind = manifests_behind(loading.store, table, watermark)
    after = manual_start(loading, watermark)
    if after is None:
        return chunks_in(pending_manifests(behind, {})), []
    since = watermark.redshift_state.eligible_from_epoch
    before = [m for m in loading.store.log.manifests(table) if m.epoch < since]
    pending = pending_manifests([*before, *behind], {})
    chosen, left_out = split_by_creation(pending, after, eligible_from=since)
    return chunks_in(chosen), chunks_in(left_out)
