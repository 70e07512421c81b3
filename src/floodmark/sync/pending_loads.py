"""Find what is left to load of a table, by its watermark: the target is not opened."""

from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.loading import Loading


def surely_loaded(loading: Loading, watermark: Watermark) -> bool:
    """Whether we can skip opening the target: importing its driver doubles a short run's time."""
    state = watermark.redshift_state
    if state.status != "success" or state.target != loading.place or loading.load_only:
        return False
    return not loading.target_missing()


def manifests_behind(
    store: WatermarkStore, table: TableName, watermark: Watermark
) -> list[Manifest]:
    """Return the manifests after the watermark's loaded one; the ledger may have some of them."""
    first = ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    since = max(first, watermark.loaded_head)
    return list(store.log.manifests(table, after=since))
