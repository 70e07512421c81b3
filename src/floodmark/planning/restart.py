"""Decide how a table continues after the lake lost objects.

The log says what was committed, the ledger what is loaded. A chunk in the ledger does not need its
data files any more. After a loss there may be

lost chunks      not loaded, and data files are gone: their rows must be read again
unknown loads    in the ledger, but not in the log, or another manifest under that number: the
                 mirror was behind when the lake was lost, or the lake was set back

With neither, the table continues as if nothing had happened. Otherwise the log continues in a new
epoch, whose manifests and loads no earlier number can collide with, and in which no earlier chunk
is loaded. The position goes back to before the first chunk that is not loaded: no row is lost. Rows
after it that are already in the target are read again: with a key they replace themselves; without
one they would be duplicated, so the whole table is read again into an emptied target.

Rows that a backfill or a reconciliation read again can be before the position: it goes back to
before the first of them. Deleted keys cannot be read again; a reconciliation must find them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct, structs

from floodmark.model.load import LedgerEntry
from floodmark.model.log_state import LogState, ManifestId, MysqlState
from floodmark.model.manifest import Chunk, Manifest, chunks_in
from floodmark.model.position import START, Position
from floodmark.model.timestamps import FIRST_MOMENT
from floodmark.planning.load_batches import pending_manifests
from floodmark.planning.next_position import right_before


class Restart(Struct, frozen=True, kw_only=True):
    """How a table continues in a new epoch.

    go back      from `state`, at a position up to which all rows are in the target
    read again   from the start; without a key, into an emptied target

    `adopted` are chunks of an older system's files that are not loaded: such rows can be anywhere,
    and some may no longer be in the source. `repairs` are backfills and reconciliations that are
    not loaded; `deleted` counts the deleted keys among them, which stay in the target.
    """

    kind: Literal["go back", "read again"]
    state: LogState
    lost: tuple[ManifestId, ...] = ()
    unknown: tuple[ManifestId, ...] = ()
    adopted: tuple[ManifestId, ...] = ()
    repairs: tuple[ManifestId, ...] = ()
    deleted: int = 0


def plan_restart(
    manifests: Sequence[Manifest],
    current: LogState,
    ledgers: Mapping[int, Iterable[LedgerEntry]],
    files: Mapping[str, int],
) -> Restart | None:
    """Return how a table continues after a loss; None if nothing it needs is lost.

    `ledgers` are the target's ledgers by load epoch, `files` the sizes of the files in the lake,
    of rows and of deleted keys.
    """
    digests = {m.head: m.checksum for m in manifests}
    counted = {epoch: entries for epoch, entries in ledgers.items() if epoch >= current.load_epoch}
    unknown = sorted(
        {e.head for found in counted.values() for e in found if digests.get(e.head) != e.digest}
    )
    eligible = [m for m in manifests if m.epoch >= current.eligible_from_epoch]
    loaded = {e.head: e for e in ledgers.get(current.load_epoch, ()) if e.head not in unknown}
    pending = pending_manifests(eligible, loaded)
    lost = [
        m.head
        for m in pending
        if any(files.get(f.path) != f.bytes for c in chunks_in([m]) for f in c.loaded_files)
    ]
    if not lost and not unknown:
        return None
    adopted = [m.head for m in pending if any(c.adopted for c in chunks_in([m]))]
    first = pending[0].head if pending else None
    again = bool(adopted) or _would_repeat(eligible, first, loaded, unknown)
    return Restart(
        kind="read again" if again else "go back",
        state=_before_repairs(_state_before(manifests, first), chunks_in(pending)),
        lost=tuple(lost),
        unknown=tuple(unknown),
        adopted=tuple(adopted),
        repairs=tuple(m.head for m in pending if any(c.reconciled for c in chunks_in([m]))),
        deleted=sum(c.reconciled.deleted for c in chunks_in(pending) if c.reconciled),
    )


def holes(manifests: Sequence[Manifest]) -> list[ManifestId]:
    """Return the ids that are missing between the manifests that count."""
    since = manifests[-1].standing.eligible_from_epoch
    numbers: dict[int, set[int]] = {}
    for manifest in manifests:
        if manifest.epoch >= since:
            numbers.setdefault(manifest.epoch, set()).add(manifest.sequence)
    return [
        ManifestId(epoch, number)
        for epoch, found in numbers.items()
        for number in range(1, max(found))
        if number not in found
    ]


def new_epoch(
    manifests: Iterable[Manifest], ledgers: Mapping[int, Iterable[LedgerEntry]], now: datetime
) -> int:
    """Return an epoch that no manifest or load had before, nor the one before it.

    Resets count from 1; minutes since 1970 are far beyond any number of them.
    """
    heads = [e.head for entries in ledgers.values() for e in entries]
    used = [*ledgers, *(h.epoch for h in heads), *(m.standing.epoch for m in manifests)]
    return max(int(now.timestamp()) // 60, max(used, default=0) + 2)


def in_epoch(state: LogState, epoch: int) -> LogState:
    """Return a state in a new epoch, in which no earlier chunk is loaded."""
    return structs.replace(state, epoch=epoch, eligible_from_epoch=epoch, load_epoch=epoch)


def _would_repeat(
    eligible: Sequence[Manifest],
    first: ManifestId | None,
    loaded: Collection[ManifestId],
    unknown: Sequence[ManifestId],
) -> bool:
    """Return whether rows without a key would be read that are already in the target."""
    chunks = chunks_in(eligible)
    if not chunks or chunks[-1].reload or all(c.primary_key for c in chunks if c.rows):
        return False
    return bool(unknown) or (first is not None and any(head > first for head in loaded))


def _state_before(manifests: Sequence[Manifest], first: ManifestId | None) -> LogState:
    """Return the state before a manifest, or the last one."""
    before = [m for m in manifests if first is None or m.head < first]
    if before:
        return before[-1].standing
    change = manifests[0].change
    assert isinstance(change, Chunk)  # it is the first one to be loaded
    start, log_state = change.start, manifests[0].standing
    state = MysqlState(
        last_timestamp=start.timestamp,
        last_id=start.id,
        walk=start.walk,
        cursor=change.cursor,
        counted_from_epoch=log_state.mysql_state.counted_from_epoch,
    )
    return structs.replace(log_state, mysql_state=state)


def _before_repairs(state: LogState, pending: Iterable[Chunk]) -> LogState:
    """Go back before the first row that a backfill or a reconciliation has read again."""
    known = position = state.mysql_state.position
    for start in (start for chunk in pending for start in _starts(chunk)):
        order = start.compare(position.base)
        if order != 1:
            position = start if order is not None else START
    if position == known:
        return state
    if position.is_start and known.timestamp is not None:
        position = Position(FIRST_MOMENT)  # rows before the default start count as well
    moved = structs.replace(
        state.mysql_state, last_timestamp=position.timestamp, last_id=position.id, walk=None
    )
    return structs.replace(state, mysql_state=moved)


def _starts(chunk: Chunk) -> list[Position]:
    """Return positions before the rows of a backfill or a reconciliation; none for others."""
    if chunk.reconciled is None:
        return []
    if chunk.reconciled.backfill is not None:
        return [chunk.reconciled.backfill.start]
    return [_before(file.first) for file in chunk.files]


def _before(first: Position) -> Position:
    if first.timestamp is not None:
        return right_before(first.timestamp)
    return Position(id=first.id - 1) if isinstance(first.id, int) else START
