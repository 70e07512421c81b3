"""Decide which rows of the lake are a table's current ones, as a load into an empty target does.

Every file's rows become events of their keys, in the order of the log. Of a key's rows, those count
that no later manifest replaced whatever their version, and that were not removed later; the newest
of them is current, unless it was marked as deleted later. A key that is deleted had no row in the
source after all earlier manifests were read, so their rows are dead whatever their version.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from floodmark.errors import FloodmarkError
from floodmark.model.load import TargetTable
from floodmark.model.log_state import Count, ManifestId
from floodmark.model.manifest import Chunk, Column, DataFile, Manifest, chunks_in
from floodmark.planning.joined_types import joined_table
from floodmark.planning.key_change import key_change
from floodmark.planning.load_batches import Fills, deletes_of, fills_of, pending_manifests, wins

EventKind = Literal["row", "remove", "mark"]


class EventFile(Struct, frozen=True, kw_only=True):
    """A file whose rows are events of one kind: rows, or deleted keys.

    Later events have a higher number. With `wins`, rows replace earlier ones whatever their
    version; `adopted` rows replace only older ones. `fills` are the values that later manifests set
    in its rows.
    """

    path: str
    bytes: Count
    number: int
    kind: EventKind
    columns: tuple[Column, ...]
    wins: bool = False
    adopted: bool = False
    fills: dict[str, str | None] = {}


class EventColumns(Struct, frozen=True, kw_only=True):
    """The names of the columns that describe an event, which no column of the table has."""

    number: str
    kind: str
    wins: str
    adopted: str

    @classmethod
    def beside(cls, columns: Iterable[Column]) -> "EventColumns":
        """Choose names that are not taken."""
        taken = {column.name.lower() for column in columns}
        prefix = "_event"
        while any(name.startswith(prefix) for name in taken):
            prefix += "_"
        return cls(**{name: f"{prefix}_{name}" for name in cls.__struct_fields__})


class CurrentRows(Struct, frozen=True, kw_only=True):
    """The table as a load would create it, and the files that its current rows come from."""

    table: TargetTable
    files: tuple[EventFile, ...]
    events: EventColumns


def eligible(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return the manifests whose chunks count after the last of these: none from before a reset."""
    if not manifests:
        return []
    since = manifests[-1].standing.eligible_from_epoch
    return [manifest for manifest in manifests if manifest.epoch >= since]


def current_rows(name: str, manifests: Sequence[Manifest]) -> CurrentRows:
    """Return where a table's rows are, after these manifests of its log."""
    manifests = eligible(manifests)
    counting = pending_manifests(manifests, {})
    chunks = chunks_in(counting)
    if not chunks or not all(chunk.columns for chunk in chunks):
        raise FloodmarkError(f"the lake has no rows of {name} yet, or not their columns")
    if any(chunk.inherited for chunk in chunks):
        raise FloodmarkError(
            f"the lake does not have all rows of {name}: it was taken over from another tool",
            hint=f"'floodmark watermark reset -t {name} --force', then sync, reads all of it",
        )
    if change := key_change(counting):
        raise FloodmarkError(
            f"the primary key of {name} changed from {change[0]} to {change[1]} in the source, so"
            " its rows in the lake cannot be combined",
        )
    table = joined_table(name, chunks)
    fills = _later_fills(counting, fills_of(manifests, ()))
    return CurrentRows(
        table=table,
        files=tuple(
            file
            for number, manifest in enumerate(counting)
            for file in _files(manifest, number, table, fills[number])
        ),
        events=EventColumns.beside(table.columns),
    )


def _later_fills(manifests: Sequence[Manifest], fills: Mapping[ManifestId, Fills]) -> list[Fills]:
    """Return, for each manifest, the values that later ones set in its rows."""
    found: list[Fills] = []
    later: Fills = {}
    for manifest in reversed(manifests):
        found.append(later)
        later = {**fills.get(manifest.head, {}), **later}
    return found[::-1]


def _files(
    manifest: Manifest, number: int, table: TargetTable, fills: Fills
) -> Iterable[EventFile]:
    chunk = manifest.change
    assert isinstance(chunk, Chunk)
    if deletes := deletes_of(manifest):
        kind: EventKind = "mark" if deletes.deleted_at else "remove"
        for file in chunk.deletes:
            yield _file(file, 2 * number, kind, deletes.columns)
    winning = wins(manifest, table) and not chunk.adopted
    for file in chunk.files:
        yield EventFile(
            path=file.path,
            bytes=file.bytes,
            number=2 * number + 1,
            kind="row",
            columns=chunk.columns,
            wins=winning,
            adopted=chunk.adopted,
            fills=dict(fills),
        )


def _file(file: DataFile, number: int, kind: EventKind, columns: tuple[Column, ...]) -> EventFile:
    return EventFile(path=file.path, bytes=file.bytes, number=number, kind=kind, columns=columns)


class Selection(Struct, frozen=True, kw_only=True):
    """SQL that selects the current rows from the events, in two steps.

    Select all columns and `facts`, keep the rows `where`; then rank them by `rank`, and keep those
    of rank 1 that are not `dead`.
    """

    facts: dict[str, str]
    where: str
    rank: str
    dead: str


def selection_of(rows: CurrentRows, quote: Callable[[str], str]) -> Selection:
    """Return the SQL for a table with a key, valid in Spark and in DuckDB."""
    table, events = rows.table, rows.events
    keys = ", ".join(map(quote, table.primary_key))
    number, kind, adopted = quote(events.number), quote(events.kind), quote(events.adopted)
    version = quote(table.version) if table.version else None
    later = (
        f"OVER (PARTITION BY {keys} ORDER BY {number} DESC"
        " RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    facts = {f"{events.number}_replaced": f"MAX(CASE WHEN {quote(events.wins)} THEN 1 END) {later}"}
    for deletes in ("remove", "mark"):
        name = f"{events.number}_{deletes}"
        facts[name] = f"MAX(CASE WHEN {kind} = '{deletes}' THEN 1 END) {later}"
    keyed = " AND ".join(f"{quote(name)} IS NOT NULL" for name in table.primary_key)
    dated = f" AND {version} IS NOT NULL" if version else ""
    gives_way = f"CASE WHEN {adopted}{dated} THEN 1 ELSE 0 END"
    order = [f"{version} DESC NULLS LAST"] if version else []
    order += [gives_way, f"CASE WHEN {adopted}{dated} THEN -{number} ELSE {number} END DESC"]
    return Selection(
        facts=facts,
        where=f"{kind} = 'row' AND {keyed} AND {quote(f'{events.number}_replaced')} IS NULL"
        f" AND {quote(f'{events.number}_remove')} IS NULL",
        rank=f"ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {', '.join(order)})",
        dead=f"({quote(f'{events.number}_mark')} IS NOT NULL)",
    )
