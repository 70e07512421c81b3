"""Which manifests to load, and which of them together."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import structs

from floodmark.model.load import AnotherLake, LedgerEntry, LoadBatch, LoadChunk, TargetTable
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Manifest

Fills = Mapping[str, str | None]
_NO_FILLS: Mapping[ManifestId, Fills] = {}


def pending_manifests(
    manifests: Iterable[Manifest], ledger: Mapping[ManifestId, LedgerEntry]
) -> list[Manifest]:
    """The chunks that the ledger does not know, in order.

    Only what comes behind the last full reload matters: it replaced everything before it.
    AnotherLake if the ledger knows another manifest under the same number.
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
    table_name: str, behind: Iterable[Manifest], ledger: Iterable[ManifestId], loaded: ManifestId
) -> None:
    """AnotherLake if the ledger names a manifest that the lake lacks, after what is `loaded`."""
    lacking = {head for head in ledger if head > loaded} - {manifest.head for manifest in behind}
    if lacking:
        what = f"the ledger of {table_name} names manifest {min(lacking)}, which the lake lacks"
        raise AnotherLake(table_name, what)


def split_by_creation(
    pending: Iterable[Manifest], after: datetime, *, eligible_from: int
) -> tuple[list[Manifest], list[Manifest]]:
    """Split what the ledger lacks into what was created after a manual timestamp, and the rest.

    What a reset has left behind is taken again only where rows have a key: the next extraction
    may bring the same rows, and without a key they would be there twice.
    """
    chosen: list[Manifest] = []
    left_out: list[Manifest] = []
    for manifest in pending:
        change = manifest.change
        again = isinstance(change, Chunk) and (change.primary_key or change.reload)
        wanted = manifest.created_at > after and (manifest.epoch >= eligible_from or again)
        (chosen if wanted else left_out).append(manifest)
    return chosen, left_out


def loaded_through(
    manifests: Iterable[Manifest], pending: Iterable[Manifest], start: ManifestId
) -> ManifestId:
    """The furthest place before the first manifest that is still to be loaded; `start` if none."""
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
) -> Iterator[LoadBatch]:
    """Group manifests into transactions of some size.

    A batch never crosses one of the `borders`: a manifest by which an operator moved the position,
    as rows may come again behind it; or one that is loaded already, as what lies before it comes
    late. Nor does it cross a change of the schema, or a full reload; and what was adopted is loaded
    by itself. A manifest with `fills` begins a batch, as they come before its rows.
    """
    between = sorted(borders)
    batch: list[Manifest] = []

    def whole() -> LoadBatch:
        made = _batch(batch, target_name, load_epoch, session_id, manifest_key)
        return structs.replace(made, fills=dict(fills.get(batch[0].head, {})))

    for manifest in pending:
        if batch and (
            fills.get(manifest.head) or not _together(batch, manifest, between, most_bytes)
        ):
            yield whole()
            batch = []
        batch.append(manifest)
    if batch:
        yield whole()


def wins(manifest: Manifest, wanted: TargetTable) -> bool:
    """Whether what a manifest brings counts more than what was loaded before, whatever its version.

    Rows are read in the order of their versions, and loaded in the order in which they were read:
    of two rows the later one is the newer. If an operator moved the position, the later one is what
    the source has by now, even with an older version. Versions of two types do not compare.
    """
    change = manifest.change
    if not isinstance(change, Chunk) or change.version is None:
        return False
    steered = manifest.epoch > 1 or manifest.standing.mysql_state.steered
    types = {column.name.lower(): (column.type, column.arrow) for column in wanted.columns}
    own = {c.name.lower(): (c.type, c.arrow) for c in change.columns}
    version = change.version.lower()
    return steered or own.get(version) != types.get(version)


def fills_of(
    manifests: Iterable[Manifest], left_out: Iterable[Manifest]
) -> dict[ManifestId, Fills]:
    """What to fill in before each manifest; of one that is left out, before the next one."""
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
    """A manifest that is loaded and has filled a column in which a pending one's rows lack it."""
    for manifest in manifests:
        if manifest.head not in ledger or not isinstance(manifest.change, Chunk):
            continue
        if manifest.change.fills and pending[0].head < manifest.head:
            return manifest, ", ".join(manifest.change.fills)
    return None


def _together(
    batch: list[Manifest], manifest: Manifest, borders: list[ManifestId], most_bytes: int
) -> bool:
    last, new = batch[-1].change, manifest.change
    assert isinstance(last, Chunk)
    assert isinstance(new, Chunk)
    crosses = bisect_right(borders, batch[-1].head) != bisect_left(borders, manifest.head)
    size = sum(m.change.bytes for m in batch if isinstance(m.change, Chunk)) + new.bytes
    return (
        not crosses
        and not (last.reload or new.reload or last.adopted or new.adopted)
        and size <= most_bytes
        and _shape(last) == _shape(new)
    )


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
    )


def target_table(name: str, chunk: Chunk) -> TargetTable:
    """The target table that a chunk's rows belong into."""
    return TargetTable(
        name=name, columns=chunk.columns, primary_key=chunk.primary_key, version=chunk.version
    )


def _chunk(manifest: Manifest, key: str) -> LoadChunk:
    change = manifest.change
    assert isinstance(change, Chunk)
    return LoadChunk(
        head=manifest.head,
        manifest=key,
        digest=manifest.checksum,
        rows=change.rows,
        bytes=change.bytes,
        paths=tuple(file.path for file in change.files),
        sizes=tuple(file.bytes for file in change.files),
        start=str(change.start),
        end=str(change.end),
    )
