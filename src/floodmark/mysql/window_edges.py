"""Window edges: where a table can be cut into windows of so many rows.

Each edge is found by skipping over so many entries of an index, from the edge before it; together
that reads the range once, in the index alone. Edges are positions of rows that were there; should
such a row move away before it is read, the position still divides all others.

Along a primary key, which holds the rows themselves, that is to read the table twice. Where keys
are whole numbers with few left out, `planning.windows` can cut it without reading any.
"""

from collections.abc import Iterator

from floodmark.model.cursor import Cursor, key_kind
from floodmark.model.extraction import Edge
from floodmark.model.position import Identity, KeyScan, Position
from floodmark.model.schema import SourceTable
from floodmark.mysql.connection import MysqlSession, query
from floodmark.mysql.index_scan import Found, Scan, read_moment, strides
from floodmark.mysql.predicates import (
    cursor_columns,
    cursor_predicate,
    cursor_values,
    identity_values,
    key_columns,
    relation,
)
from floodmark.mysql.select_list import quote_name


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
) -> Iterator[Edge]:
    """KeyScan along the cursor from `start` to `bound`, an edge every `stride` rows.

    The last edge is the last row's position. With a limit it is that of the last row within it:
    exactly so many rows if there are as many. Where rows can tie, windows end between different
    values, and a limit that falls among equal ones ends before them; UsageError if there is nothing
    before them. Rows whose time is no moment come with the next that has one.
    """
    scan = Scan(
        relation=relation(table, index),
        columns=cursor_columns(table, cursor),
        where=cursor_predicate(table, cursor, start, bound),
        unique=cursor.unique,
        by_time=cursor.timestamp is not None,
    )
    reached = cursor_values(table, cursor, start)
    for end, rows in strides(session, scan, reached, size=stride, limit=limit):
        yield Edge(_cursor_position(cursor, end), rows)


def key_edges(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position,
    *,
    stride: int,
    limit: int | None = None,
) -> Iterator[Edge]:
    """KeyScan along the primary key over the rows in `(start, bound]`, an edge every `stride` rows.

    Goes on where the walk of `start` stopped. The last edge is the bound itself, unless a limit
    ends the walk before. No edges if there are no rows and no walk to bring to its end.
    """
    scan = Scan(
        relation=relation(table, table.key_index),
        columns=key_columns(table),
        where=cursor_predicate(table, cursor, start.base, bound),
        unique=True,
    )
    reached = identity_values(start.walk.key) if start.walk else ()
    last: Edge | None = None
    total = 0
    for end, rows in strides(session, scan, reached, size=stride, limit=limit):
        if last:
            yield last
        last = Edge(Position(start.timestamp, start.id, KeyScan(_identity(end), bound)), rows)
        total += rows
    if last and total == limit:
        yield last
    elif last or start.walk:
        yield Edge(bound, last.rows if last else 0)


def read_numbers(session: MysqlSession, table: SourceTable) -> range | None:
    """The numbers from the least to the greatest primary key, where that is a whole number.

    None if the key cannot be walked along.
    """
    key = key_columns(table)
    if not table.has_ordered_key or [key_kind(column) for column in key] != ["integer"]:
        return None
    name = quote_name(key[0].name)
    rows = relation(table, table.key_index)
    found = query(session, f"SELECT MIN({name}), MAX({name}) FROM {rows}")  # noqa: S608
    first, last = found[0]
    return None if first is None else range(int(first), int(last) + 1)


def limited_bound(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position,
    *,
    limit: int,
) -> Position:
    """Lower a bound to the last of so many rows in the cursor's order, though no index serves it.

    A walk along the primary key under that bound then reads exactly so many rows.
    """
    edges = cursor_edges(
        session, table, cursor, start, bound, index=None, stride=limit, limit=limit
    )
    nothing = bound if start.timestamp is None else start  # rows that wait for a later one
    return next((edge.end for edge in edges), nothing)


def _cursor_position(cursor: Cursor, values: Found) -> Position:
    if cursor.timestamp is None:
        return Position(id=_identity(values))
    return Position(read_moment(values[0]), _identity(values[1:]) if cursor.key else None)


def _identity(values: Found) -> Identity:
    return values[0] if len(values) == 1 else values
