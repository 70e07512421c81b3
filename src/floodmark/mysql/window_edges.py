"""Find the edges of windows of a given number of rows.

Each edge is found by skipping that many index entries from the previous edge; in total that reads
the range once, in the index alone. Edges are positions of existing rows; if such a row moves before
it is read, the position still divides all others. A large range is divided into pieces first, which
several connections scan at once (`mysql.index_pieces`, `sync.parallel_strides`).

Along a clustered primary key that reads the table twice. If keys are integers with few gaps,
`planning.windows` divides the table without reading any: from the first to the last one.
"""

from collections.abc import Iterator

from floodmark.model.cursor import Cursor, key_kind
from floodmark.model.extraction import Edge
from floodmark.model.position import Identity, KeyScan, Position
from floodmark.model.schema import SourceTable
from floodmark.mysql.connection import MysqlSession, query
from floodmark.mysql.index_scan import Found, Scan, Walk, find_row, read_moment, strides
from floodmark.mysql.predicates import (
    cursor_columns,
    cursor_predicate,
    cursor_values,
    identity_values,
    key_columns,
    relation,
)
from floodmark.mysql.types import quote_name


def cursor_edges(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position,
    *,
    index: str | None,
    stride: int,
    limit: int | None = None,
    walk: Walk = strides,
) -> Iterator[Edge]:
    """Scan along the cursor from `start` to `bound`, and yield an edge every `stride` rows.

    The last edge is the last row's position; with a limit, that of the last row within the limit.
    Windows end between different values, and a limit that falls among equal ones ends before them;
    UsageError if there is nothing before them. Rows with an invalid time belong to the window of
    the next valid one.
    """
    scan = Scan(
        relation=relation(table, index),
        columns=cursor_columns(table, cursor),
        where=cursor_predicate(table, cursor, start, bound),
        unique=cursor.unique,
        by_time=cursor.timestamp is not None,
    )
    reached = cursor_values(table, cursor, start)
    for end, rows in walk(session, scan, reached, size=stride, limit=limit):
        yield Edge(cursor_position(cursor, end), rows)


def key_edges(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position,
    *,
    stride: int,
    limit: int | None = None,
    walk: Walk = strides,
) -> Iterator[Edge]:
    """Scan along the primary key over `(start, bound]`, and yield an edge every `stride` rows.

    Continue where the key scan of `start` stopped. The last edge is the bound itself, unless a
    limit ends the scan before. No edges if there are no rows and no scan to finish.
    """
    scan = Scan(
        relation=relation(table, table.key_index),
        columns=key_columns(table),
        where=cursor_predicate(table, cursor, start.base, bound),
        unique=True,
        filtered=True,
    )
    reached = identity_values(start.walk.key) if start.walk else ()
    last: Edge | None = None
    total = 0
    for end, rows in walk(session, scan, reached, size=stride, limit=limit):
        if last:
            yield last
        last = Edge(Position(start.timestamp, start.id, KeyScan(_identity(end), bound)), rows)
        total += rows
    if last and total == limit:
        yield last
    elif last or start.walk:
        yield Edge(bound, last.rows if last else 0)


def read_numbers(session: MysqlSession, table: SourceTable) -> range | None:
    """Return the range from the least to the greatest primary key, if that is an integer.

    None if the key cannot be scanned in order, or there are no rows.
    """
    key = key_columns(table)
    if not table.has_ordered_key or [key_kind(column) for column in key] != ["integer"]:
        return None
    name = quote_name(key[0].name)
    rows = relation(table, table.key_index)
    found = query(session, f"SELECT MIN({name}), MAX({name}) FROM {rows}")  # noqa: S608
    first, last = found[0]
    return None if first is None else range(int(first), int(last) + 1)


def read_ids(
    session: MysqlSession, table: SourceTable, cursor: Cursor, start: Position, bound: Position
) -> range | None:
    """Return the range from the first to the last id in `(start, bound]`; None without rows."""
    scan = Scan(
        relation=relation(table, table.key_index),
        columns=cursor_columns(table, cursor),
        where=cursor_predicate(table, cursor, start, bound),
        unique=True,
    )
    first = find_row(session, scan, ())
    last = find_row(session, scan, (), last=True)
    return range(int(first[0]), int(last[0]) + 1) if first and last else None


def limited_bound(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position,
    *,
    limit: int,
) -> Position:
    """Lower a bound to the last of `limit` rows in the cursor's order, without an index.

    A scan along the primary key up to that bound then reads exactly these rows.
    """
    edges = cursor_edges(
        session, table, cursor, start, bound, index=None, stride=limit, limit=limit
    )
    nothing = bound if start.timestamp is None else start  # rows that wait for a later one
    return next((edge.end for edge in edges), nothing)


def cursor_position(cursor: Cursor, values: Found) -> Position:
    """Return the position of a row, given the values of the cursor's columns."""
    if cursor.timestamp is None:
        return Position(id=_identity(values))
    return Position(read_moment(values[0]), _identity(values[1:]) if cursor.key else None)


def _identity(values: Found) -> Identity:
    return values[0] if len(values) == 1 else values
