"""The files that the log of a table names: data files and quarantine files."""

from msgspec import Struct

from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state.watermark_store import WatermarkStore


class TrackedFile(Struct, frozen=True, kw_only=True):
    """A data file, the ID of the manifest that names it, and whether it is loaded."""

    path: str
    rows: int
    bytes: int
    manifest: str
    loaded: bool


def tracked_files(store: WatermarkStore, table: TableName) -> list[TrackedFile]:
    """Return the data files of a table since its last reset."""
    watermark = store.get(table)
    if watermark is None:
        return []
    return [
        TrackedFile(
            path=file.path,
            rows=file.rows,
            bytes=file.bytes,
            manifest=str(manifest.head),
            loaded=manifest.head <= watermark.loaded_head,
        )
        for manifest in store.log.manifests(table, since=_first(watermark))
        if isinstance(manifest.change, Chunk)
        for file in manifest.change.loaded_files
    ]


def quarantine_files(store: WatermarkStore, table: TableName) -> list[str]:
    """Return the quarantine files of the extract stage and of the load stage."""
    watermark = store.get(table)
    if watermark is None:
        return []
    return [*_of_extract(store, table, watermark), *_of_load(store, table, watermark)]


def _of_extract(store: WatermarkStore, table: TableName, watermark: Watermark) -> list[str]:
    if not watermark.mysql_state.quarantined_rows:
        return []
    chunks = store.log.chunks(table, since=_first(watermark))
    return [file.path for chunk in chunks for file in chunk.quarantine]


def _of_load(store: WatermarkStore, table: TableName, watermark: Watermark) -> list[str]:
    """Return the quarantine files of loaded manifests; a load that died may have left others."""
    if not watermark.redshift_state.quarantined_rows:
        return []
    folder = lake_layout.quarantine(table, watermark.redshift_state.load_epoch)
    keys = [info.key for info in store.objects.list_objects(folder)]
    heads = [lake_layout.head_of_quarantine(key) for key in keys]
    through = watermark.loaded_head
    return [key for key, head in zip(keys, heads, strict=True) if head and head <= through]


def _first(watermark: Watermark) -> ManifestId:
    return ManifestId(watermark.mysql_state.counted_from_epoch, 0)
