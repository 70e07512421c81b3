"""Select the manifests to load, and group them into batches."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import structs

from floodmark.errors import AnotherLake
from floodmark.model.load import LedgerEntry, LoadBatch, LoadChunk, LoadDeletes, TargetTable
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Manifest

Fills = Mapping[str, str | None]
_NO_FILLS: Mapping[ManifestId, Fills] = {}


def pending_manifests(
    manifests: Iterable[Manifest], ledger: Mapping[ManifestId, LedgerEntry]
) -> list[Manifest]:
    """Return the chunks that are not in the ledger, in order.

    Chunks before the last full reload are skipped: it replaced everything. Raise AnotherLake if the
    ledger has another manifest under the same number.
    """
    pending: list[Manifest] = []
    for manifest in manifests:
        known = ledger.get(manifest.head)
        if known is not None and known.digest != manifest.checksum:
            raise AnotherLake(
                manifest.table_name,
                f"manifest {manifest.head} of {manifest.table_name} is not the one that was loaded",
            )
        if not isinstance(manifest.change, Chunk):
            continue
        if manifest.change.reload:
            pending.clear()
        if known is None:
            pending.append(manifest)
    return pending


def check_lake(
    table_name: str, later: Iterable[Manifest], ledger: Iterable[ManifestId], loaded: ManifestId
) -> None:
    """Raise AnotherLake if the ledger has a manifest after `loaded` that is not in the lake."""
    missing = {head for head in ledger if head > loaded} - {manifest.head for manifest in later}
    if missing:
        what = f"manifest {min(missing)} of {table_name} is in the ledger, but not in the lake"
        raise AnotherLake(table_name, what)


def split_by_creation(
    pending: Iterable[Manifest], after: datetime, *, eligible_from: int
) -> tuple[list[Manifest], list[Manifest]]:
    """Split pending manifests into those created after a manual timestamp, and the rest.

    Manifests from before a reset are selected only if their rows have a key: the next extraction
    may read the same rows, and without a key they would be duplicated.
    """
    chosen: list[Manifest] = []
    left_out: list[Manifest] = []
    for manifest in pending:
        change = manifest.change
        keyed = isinstance(change, Chunk) and (change.primary_key or change.reload)
        selected = manifest.created_at > after and (manifest.epoch >= eligible_from or keyed)
        (chosen if selected else left_out).append(manifest)
    return chosen, left_out


def loaded_through(
    manifests: Iterable[Manifest], pending: Iterable[Manifest], start: ManifestId
) -> ManifestId:
    """Return the last manifest before the first pending one; `start` if there is none."""
    first = min((manifest.head for manifest in pending), default=None)
    reached = (m.head for m in manifests if first is None or m.head < first)
    return max(reached, default=start)


def batches_of(
    pending: Sequence[Manifest],
    borders: Iterable[ManifestId],
    *,
    target_name: str,
    load_epoch: int,
    session_id: str,
    most_bytes: int,
    manifest_key: Mapping[ManifestId, str],
    fills: Mapping[ManifestId, Fills] = _NO_FILLS,
    first_unlimited: bool = False,
) -> Iterator[LoadBatch]:
    """Group manifests into transactions of limited size; the first may be unlimited.

    A batch never crosses one of the `borders`: a manifest by which an operator moved the position,
    because rows may repeat after it; or one that is already loaded, because those before it are
    loaded late. Nor does it cross a schema change or a full reload; adopted chunks and
    reconciliations are loaded alone. A manifest with `fills` begins a batch, because they are
    applied before its rows.
    """
    between = sorted(borders)
    batch: list[Manifest] = []
    most = math.inf if first_unlimited else most_bytes

    def whole() -> LoadBatch:
        made = _batch(batch, target_name, load_epoch, session_id, manifest_key)
        return structs.replace(made, fills=dict(fills.get(batch[0].head, {})))

    for manifest in pending:
        if batch and (fills.get(manifest.head) or not _together(batch, manifest, between, most)):
            yield whole()
            batch, most = [], most_bytes
        batch.append(manifest)
    if batch:
        yield whole()


def wins(manifest: Manifest, table: TargetTable) -> bool:
    """Return whether a manifest's rows replace loaded ones whatever their version.

    Rows are read in version order and loaded in the order in which they were read: the later of two
    rows is the newer one. If an operator moved the position, the later row is the source's current
    one, even with an older version. Versions of different types do not compare. Repaired rows are
    the source's current ones, too.
    """
    change = manifest.change
    if isinstance(change, Chunk) and change.reconciled:
        return True
    if not isinstance(change, Chunk) or change.version is None:
        return False
    steered = manifest.epoch > 1 or manifest.standing.mysql_state.steered
    types = {column.name.lower(): (column.type, column.arrow) for column in table.columns}
    own = {c.name.lower(): (c.type, c.arrow) for c in change.columns}
    version = change.version.lower()
    return steered or own.get(version) != types.get(version)


def fills_of(
    manifests: Iterable[Manifest], left_out: Iterable[Manifest]
) -> dict[ManifestId, Fills]:
    """Return the fills before each manifest; those of a skipped one move to the next."""
    skipped = {manifest.head for manifest in left_out}
    found: dict[ManifestId, Fills] = {}
    due: dict[str, str | None] = {}
    for manifest in manifests:
        if not isinstance(manifest.change, Chunk):
            continue
        due = {} if manifest.change.reload else {**due, **manifest.change.fills}
        if manifest.head not in skipped:
            found[manifest.head], due = due, {}
    return found


def filled_since(
    pending: Sequence[Manifest], manifests: Iterable[Manifest], ledger: Collection[ManifestId]
) -> tuple[Manifest, str] | None:
    """Return a loaded manifest that filled columns which an earlier pending manifest lacks.

    Also return the names of these columns; None if there is no such manifest.
    """
    for manifest in manifests:
        if manifest.head not in ledger or not isinstance(manifest.change, Chunk):
            continue
        if manifest.change.fills and pending[0].head < manifest.head:
            return manifest, ", ".join(manifest.change.fills)
    return None


def _together(
    batch: list[Manifest], manifest: Manifest, borders: list[ManifestId], most_bytes: float
) -> bool:
    last, new = batch[-1].change, manifest.change
    assert isinstance(last, Chunk)
    assert isinstance(new, Chunk)
    crosses = bisect_right(borders, batch[-1].head) != bisect_left(borders, manifest.head)
    size = sum(m.change.bytes for m in batch if isinstance(m.change, Chunk)) + new.bytes
    return (
        not crosses
        and not (_alone(last) or _alone(new))
        and size <= most_bytes
        and _shape(last) == _shape(new)
    )


def _alone(chunk: Chunk) -> bool:
    return chunk.reload or not chunk.moves_position


def _shape(chunk: Chunk) -> tuple[object, ...]:
    return chunk.columns, chunk.primary_key, chunk.version


def _batch(
    manifests: list[Manifest],
    target_name: str,
    load_epoch: int,
    session_id: str,
    manifest_key: Mapping[ManifestId, str],
) -> LoadBatch:
    first = manifests[0].change
    assert isinstance(first, Chunk)
    return LoadBatch(
        table_name=manifests[0].table_name,
        load_epoch=load_epoch,
        table=target_table(target_name, first),
        chunks=tuple(_chunk(manifest, manifest_key[manifest.head]) for manifest in manifests),
        session_id=session_id,
        reload=first.reload,
        keep_newer_target_rows=first.adopted,
        deletes=deletes_of(manifests[0]),
    )


def target_table(name: str, chunk: Chunk) -> TargetTable:
    """Return the target table of a chunk."""
    return TargetTable(
        name=name, columns=chunk.columns, primary_key=chunk.primary_key, version=chunk.version
    )


def deletes_of(manifest: Manifest) -> LoadDeletes | None:
    """Return the deletes of a manifest, if it has some."""
    chunk = manifest.change
    if not isinstance(chunk, Chunk) or chunk.reconciled is None or not chunk.deletes:
        return None
    columns = {column.name: column for column in chunk.columns}
    names = dict.fromkeys([*chunk.primary_key, *([chunk.version] if chunk.version else [])])
    return LoadDeletes(
        head=manifest.head,
        keys=chunk.reconciled.deleted,
        paths=tuple(file.path for file in chunk.deletes),
        sizes=tuple(file.bytes for file in chunk.deletes),
        columns=tuple(columns[name] for name in names),
        primary_key=chunk.primary_key,
        version=chunk.version,
        at=manifest.created_at,
        deleted_at=chunk.reconciled.deleted_at,
    )


def _chunk(manifest: Manifest, key: str) -> LoadChunk:
    change = manifest.change
    assert isinstance(change, Chunk)
    return LoadChunk(
        head=manifest.head,
        manifest=key,
        digest=manifest.checksum,
        rows=change.rows,
        bytes=sum(file.bytes for file in change.files),
        paths=tuple(file.path for file in change.files),
        sizes=tuple(file.bytes for file in change.files),
        start=str(change.start),
        end=str(change.end),
    )
