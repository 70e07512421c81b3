"""Loads that the target has lost: find them, and move the watermark back over them."""

from collections.abc import Mapping, Sequence

from floodmark.model.load import (
    LedgerEntry,
    LedgerTotals,
    deleted_rows,
    loaded_rows,
    quarantined_rows,
)
from floodmark.model.load_transitions import unloaded
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.planning.ledger_diff import why_not_loaded
from floodmark.planning.load_batches import loaded_through, pending_manifests
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.loading import Loading


def why_lost(
    loading: Loading,
    table: TableName,
    watermark: Watermark,
    totals: LedgerTotals,
    behind: Sequence[Manifest],
) -> str | None:
    """Return why the target lacks rows that the watermark calls loaded; None if it has them."""
    reason = why_not_loaded(loading.place, watermark.redshift_state, totals)
    if reason is not None or totals.entries or behind:
        return reason
    if not _has_chunks(loading.store, table, watermark):
        return None
    return "the target has lost its ledger, or is a different one; loading missing rows"


def _has_chunks(store: WatermarkStore, table: TableName, watermark: Watermark) -> bool:
    """Whether the watermark calls a chunk loaded, if only one without rows."""
    first = ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    return any(True for _ in store.log.chunks(table, since=first))


def carry_back(
    store: WatermarkStore,
    table: TableName,
    watermark: Watermark,
    ledger: Mapping[ManifestId, LedgerEntry],
) -> Watermark:
    """Move the watermark back over manifests that the target has lost, so they are loaded again.

    It is saved before anything is loaded, so they stay pending after a crash.
    """
    first = ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    manifests = list(store.log.manifests(table, since=first))
    through = loaded_through(manifests, pending_manifests(manifests, ledger), first)
    through, rows = min(through, watermark.loaded_head), loaded_rows(ledger.values())
    aside, gone = quarantined_rows(ledger.values()), deleted_rows(ledger.values())
    return store.update(
        table,
        lambda current: unloaded(
            current,
            through=through,
            total_rows=rows,
            quarantined_rows=aside,
            deleted_rows=gone,
        ),
    )
