"""Hold what is tracked about a table against what the lake really has."""

from msgspec import Struct, structs

from floodmark.errors import CorruptLog, StateError
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId, MysqlState
from floodmark.model.manifest import Chunk, DataFile, Manifest
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
from floodmark.model.transitions import checkpoint
from floodmark.model.watermark import RedshiftState, Watermark, empty_watermark
from floodmark.state.watermark_store import WatermarkStore


class Findings(Struct, frozen=True, kw_only=True):
    """What a comparison found: differences, remarks that are none, and what to do.

    `loaded_manifests` and `loaded_rows` are the ledger's, `target_rows` what the target's table
    holds; None where they were not looked at, or where there is none. `unchecked` says why the
    target could not be looked at. `repairable` says whether `repair` will find less to complain of.
    """

    table_name: str
    manifests: int
    files: int
    rows: int
    differences: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    repairable: bool = False
    loaded_manifests: int | None = None
    loaded_rows: int | None = None
    target_rows: int | None = None
    unchecked: str | None = None


def validate(store: WatermarkStore, table: TableName) -> Findings:
    """Compare the watermark with the manifests, and the manifests with the data files."""
    differences: list[str] = []
    try:
        current = store.get(table, mend=False)
    except StateError as error:
        differences.append(error.message)
        current = None
    if current is not None and current.moved_to:
        return Findings(
            table_name=str(table),
            manifests=sum(1 for _ in store.log.heads(table)),
            files=0,
            rows=0,
            differences=(),
            remarks=(f"it was moved to {current.moved_to}",),
        )
    if current is not None and current.moving_from:
        differences.append(f"it is being moved from {current.moving_from}")
    manifests = read_log(store, table, differences)
    # A run at work may have committed more since the watermark was read.
    known = current.mysql_state.last_manifest if current else None
    folded = _fold(table, _up_to(manifests, known), differences)
    tracking = _compare_watermark(current, folded)
    differences += tracking
    differences += _missing_last(store, table)
    files = _named_files(manifests)
    own = store.objects.list_objects(lake_layout.data_files(table))
    found = {info.key: info.size for info in own}
    for folder in lake_layout.folders_elsewhere(table, files):
        listed = store.objects.list_objects(folder)
        found |= {info.key: info.size for info in listed if info.key in files}
    cleaned = 0
    missing: list[ManifestId] = []
    for path, (head, file) in files.items():
        if path in found and found[path] != file.bytes and _counts(current, head):
            differences.append(f"data file {path} has {found[path]} bytes instead of {file.bytes}")
            missing.append(head)
        elif path in found:
            continue
        elif current is not None and not current.still_to_load(head):
            cleaned += 1
        else:
            differences.append(f"data file {path} is missing")
            missing.append(head)
    orphans = len(found.keys() - files.keys())
    remarks = {
        f"{orphans:,} data files belong to no manifest; they are never read": orphans,
        f"{cleaned:,} data files were removed after they were loaded": cleaned,
    }
    return Findings(
        table_name=str(table),
        manifests=len(manifests),
        files=len(files),
        rows=sum(file.rows for _, file in files.values()),
        differences=tuple(differences),
        remarks=tuple(remark for remark, count in remarks.items() if count),
        hints=_read_again(table, manifests, missing),
        repairable=bool(tracking),
    )


def _counts(current: Watermark | None, head: ManifestId) -> bool:
    """Whether a manifest may still be loaded, and was not left behind by a reset."""
    return current is None or head.epoch >= current.redshift_state.eligible_from_epoch


def _read_again(
    table: TableName, manifests: list[Manifest], missing: list[ManifestId]
) -> tuple[str, ...]:
    """How to get back rows whose files are gone: no repair of the tracking brings them."""
    for manifest in manifests:
        if manifest.head in missing and isinstance(manifest.change, Chunk):
            lost = "rows are lost from the lake; read them again:"
            reset = f"{lost} floodmark watermark reset -t {table}"
            at = manifest.change.start.timestamp
            if at is None or not manifest.change.primary_key:
                return (reset,)
            return (f"{reset}, then floodmark watermark set -t {table} --timestamp '{plain(at)}'",)
    return ()


def _named_files(manifests: list[Manifest]) -> dict[str, tuple[ManifestId, DataFile]]:
    return {
        file.path: (manifest.head, file)
        for manifest in manifests
        if isinstance(manifest.change, Chunk)
        for file in manifest.change.files
    }


def read_log(store: WatermarkStore, table: TableName, problems: list[str]) -> list[Manifest]:
    """Every manifest of a table that can be read; what is wrong with the others is added."""
    manifests = []
    for head in store.log.heads(table):
        try:
            manifests.append(store.log.read(table, head))
        except CorruptLog as error:
            problems.append(error.message)
    return manifests


def _up_to(manifests: list[Manifest], last: str | None) -> list[Manifest]:
    """The manifests up to one of them; all, if it is not among them."""
    for place, manifest in enumerate(manifests, start=1):
        if str(manifest.head) == last:
            return manifests[:place]
    return manifests


def _fold(table: TableName, manifests: list[Manifest], problems: list[str]) -> Watermark | None:
    """Where the table stands by its manifests alone; None if they do not follow each other."""
    if not manifests:
        return None
    watermark = _before(table, manifests[0])
    try:
        for manifest in manifests:
            if manifest.sequence == 1 and manifest.epoch > watermark.epoch + 1:
                watermark = _before(table, manifest)
            watermark = checkpoint(watermark, manifest)
    except CorruptLog as error:
        problems.append(error.message)
        return None
    return watermark


def _before(table: TableName, first: Manifest) -> Watermark:
    """Where a log begins: after a loss in a later epoch than the first, which counts alone."""
    empty = empty_watermark(table, first.session_id, first.created_at)
    standing, epoch = first.standing, first.epoch
    if epoch == 1:
        return empty
    return structs.replace(
        empty,
        epoch=epoch,
        mysql_state=MysqlState(counted_from_epoch=standing.mysql_state.counted_from_epoch),
        redshift_state=RedshiftState(
            loaded_epoch=epoch,
            eligible_from_epoch=standing.eligible_from_epoch,
            load_epoch=standing.load_epoch,
        ),
    )


def _compare_watermark(current: Watermark | None, folded: Watermark | None) -> list[str]:
    if current is None or folded is None:
        return []
    tracked, real = _comparable(current), _comparable(folded)
    return [
        f"watermark says {name} is {tracked[name]}, the manifests say {real[name]}"
        for name in tracked
        if tracked[name] != real[name]
    ]


def _missing_last(store: WatermarkStore, table: TableName) -> list[str]:
    """The watermark may know a last manifest of which the log itself shows no trace."""
    primary = store.copies.read(table, lake_layout.primary(table), "primary")
    known = primary.watermark.mysql_state.last_manifest if primary and primary.watermark else None
    if known is None or ManifestId.parse(known) in store.log.heads(
        table, since=ManifestId.parse(known)
    ):
        return []
    return [f"manifest {known} is missing, though the watermark was saved after it"]


def _comparable(watermark: Watermark) -> dict[str, object]:
    """What follows from the manifests alone, whatever became of the runs since."""
    extract, standing = watermark.mysql_state, watermark.standing
    return {
        "position": extract.position,
        "total_rows": extract.total_rows,
        "quarantined_rows": extract.quarantined_rows,
        "s3_file_count": extract.s3_file_count,
        "s3_bytes": extract.s3_bytes,
        "chunk_count": extract.chunk_count,
        "last_manifest": extract.last_manifest,
        "last_sequence": extract.last_sequence,
        "counted_from_epoch": extract.counted_from_epoch,
        "epoch": standing.epoch,
        "eligible_from_epoch": standing.eligible_from_epoch,
        "load_epoch": standing.load_epoch,
    }
