"""Compare a table's watermark with its manifests and data files."""

from msgspec import Struct, structs

from floodmark.errors import CorruptLog, StateError
from floodmark.model import lake_layout
from floodmark.model.formatting import counted
from floodmark.model.log_state import ManifestId, MysqlState
from floodmark.model.manifest import Chunk, DataFile, Manifest, chunks_in
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
from floodmark.model.transitions import checkpoint
from floodmark.model.watermark import RedshiftState, Watermark, empty_watermark
from floodmark.state.compaction import completes
from floodmark.state.watermark_store import WatermarkStore


class Findings(Struct, frozen=True, kw_only=True):
    """The result of a validation: differences, harmless remarks and hints.

    `loaded_manifests` and `loaded_rows` are from the ledger, `target_rows` from the target table;
    None if not checked, or if there is none. `unchecked` is why the target could not be checked.
    `repairable` is whether `repair` can fix some of the differences.
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


def validate(
    store: WatermarkStore, table: TableName, known: dict[ManifestId, Manifest] | None = None
) -> Findings:
    """Compare the watermark with the manifests, and the manifests with the data files.

    `known` is for `read_log`.
    """
    differences: list[str] = []
    try:
        current = store.get(table, write_back=False)
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
            remarks=(f"moved to {current.moved_to}",),
        )
    if current is not None and current.moving_from:
        differences.append(f"the move from {current.moving_from} is not complete")
    manifests = read_log(store, table, differences, known)
    # A concurrent run may have committed more since the watermark was read.
    last = current.mysql_state.last_manifest if current else None
    folded = _fold(table, _up_to(manifests, last), differences)
    tracking = _compare_watermark(current, folded)
    differences += tracking
    differences += _missing_last(store, table)
    files = _named_files(manifests)
    found: dict[str, int] = {}
    for own in (lake_layout.data_files(table), lake_layout.deletes_of(table)):
        found |= {info.key: info.size for info in store.objects.list_objects(own)}
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
        f"not in any manifest, and never read: {counted(orphans, 'data file')}": orphans,
        f"removed after they were loaded: {counted(cleaned, 'data file')}": cleaned,
    }
    return Findings(
        table_name=str(table),
        manifests=len(manifests),
        files=len(files),
        rows=sum(chunk.rows for chunk in chunks_in(manifests)),
        differences=tuple(differences),
        remarks=tuple(remark for remark, count in remarks.items() if count),
        hints=_read_again(table, manifests, missing),
        repairable=bool(tracking),
    )


def _counts(current: Watermark | None, head: ManifestId) -> bool:
    """Return whether a manifest may still be loaded: it is not from before a reset."""
    return current is None or head.epoch >= current.redshift_state.eligible_from_epoch


def _read_again(
    table: TableName, manifests: list[Manifest], missing: list[ManifestId]
) -> tuple[str, ...]:
    """Return how to recover rows whose files are gone; repairing the watermark does not help."""
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
        for file in manifest.change.all_files
    }


def read_log(
    store: WatermarkStore,
    table: TableName,
    problems: list[str],
    known: dict[ManifestId, Manifest] | None = None,
) -> list[Manifest]:
    """Return every readable manifest of a table; append the errors of the others to `problems`.

    Those in a compaction are not read if the lake has them all, in their size, and nobody wrote
    one of them after the compaction. Manifests that are `known` are not read again, and those that
    were read are added to them.
    """
    log = store.log
    objects = dict(log.objects(table))
    known = {} if known is None else known
    times = {} if known else log.compaction_times(table)
    for last, written in times.items():
        found = log.compacted(table, last) if completes(last) and last in objects else None
        if found and all(
            (info := objects.get(manifest.head)) and info.size == size and info.modified <= written
            for manifest, size in zip(found.manifests, found.sizes, strict=True)
        ):
            known |= {manifest.head: manifest for manifest in found.manifests}
    manifests = []
    for head in objects:
        try:
            if head not in known:
                known[head] = log.read(table, head)
            manifests.append(known[head])
        except CorruptLog as error:
            problems.append(error.message)
    return manifests


def _up_to(manifests: list[Manifest], last: str | None) -> list[Manifest]:
    """Return the manifests up to and including one of them; all if it is not among them."""
    for place, manifest in enumerate(manifests, start=1):
        if str(manifest.head) == last:
            return manifests[:place]
    return manifests


def _fold(table: TableName, manifests: list[Manifest], problems: list[str]) -> Watermark | None:
    """Rebuild the watermark from manifests alone; None if they are not consecutive."""
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
    """Return the watermark before a log's first manifest.

    After a loss the log begins in a later epoch than 1, and only that epoch counts.
    """
    empty = empty_watermark(table, first.session_id, first.created_at)
    log_state, epoch = first.standing, first.epoch
    if epoch == 1:
        return empty
    return structs.replace(
        empty,
        epoch=epoch,
        mysql_state=MysqlState(counted_from_epoch=log_state.mysql_state.counted_from_epoch),
        redshift_state=RedshiftState(
            loaded_epoch=epoch,
            eligible_from_epoch=log_state.eligible_from_epoch,
            load_epoch=log_state.load_epoch,
        ),
    )


def _compare_watermark(current: Watermark | None, folded: Watermark | None) -> list[str]:
    if current is None or folded is None:
        return []
    tracked, real = tracked_facts(current), tracked_facts(folded)
    return [
        f"{name} is {tracked[name]} in the watermark, but {real[name]} in the manifests"
        for name in tracked
        if tracked[name] != real[name]
    ]


def _missing_last(store: WatermarkStore, table: TableName) -> list[str]:
    """Report the watermark's last manifest if it is missing from the log."""
    primary = store.copies.read(table, lake_layout.primary(table), "primary")
    known = primary.watermark.mysql_state.last_manifest if primary and primary.watermark else None
    if known is None or ManifestId.parse(known) in store.log.heads(
        table, since=ManifestId.parse(known)
    ):
        return []
    return [f"manifest {known} is missing, though the watermark was saved after it"]


def tracked_facts(watermark: Watermark) -> dict[str, object]:
    """Return the fields that follow from the manifests alone."""
    extract, log_state = watermark.mysql_state, watermark.log_state
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
        "epoch": log_state.epoch,
        "eligible_from_epoch": log_state.eligible_from_epoch,
        "load_epoch": log_state.load_epoch,
    }
