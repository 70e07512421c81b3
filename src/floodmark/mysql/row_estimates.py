"""Count and estimate rows for a plan."""

from floodmark.model.cursor import Cursor
from floodmark.model.extraction import Route
from floodmark.model.history import RowCount
from floodmark.model.log_state import Clock
from floodmark.model.position import START, Position
from floodmark.model.schema import SourceTable
from floodmark.mysql.connection import MysqlSession, query
from floodmark.mysql.index_scan import Scan, count, explained_rows, find_row
from floodmark.mysql.predicates import (
    above,
    cursor_columns,
    cursor_predicate,
    cursor_values,
    literal,
    relation,
    unusable_predicate,
    up_to,
    window_predicate,
)
from floodmark.mysql.types import quote_name

# InnoDB caps estimates at half of the rows, by statistics that may be slightly out of date.
_NEAR_THE_CAP = 0.4
# The next sync reads rows that are so little ahead of the clock; no need to report them.
_AHEAD_SECONDS = 60
_NONE = "FALSE"


def count_unusable(session: MysqlSession, table: SourceTable, cursor: Cursor) -> int:
    """Count the rows that no position reaches: their cursor is NULL or a zero date."""
    where = unusable_predicate(table, cursor)
    if where is None:
        return 0
    found = query(session, f"SELECT COUNT(*) FROM {relation(table)} WHERE {where}")  # noqa: S608
    return int(found[0][0])


def count_waiting(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position | None,
    route: Route,
) -> int:
    """Count the rows up to the bound that wait for a later row, as their time is invalid.

    A key scan has none.
    """
    if bound is None or route.by == "key" or cursor.timestamp is None:
        return 0
    if table.column(cursor.timestamp).data_type != "datetime":
        return 0  # a TIMESTAMP is valid, or zero
    scan = Scan(
        relation=relation(table, route.index),
        columns=cursor_columns(table, cursor),
        where=cursor_predicate(table, cursor, start, bound),
        unique=cursor.unique,
        by_time=True,
    )
    last = find_row(session, scan, (), last=True)
    if last is None or scan.ends_at(last):
        return 0
    return count(session, scan, find_row(session, scan, (), also=scan.can_end, last=True) or ())


def count_outside(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    *,
    index: str | None,
    up_to: Position | None,
    clock: Clock | None,
    most: int | None,
) -> tuple[RowCount, RowCount]:
    """Count the rows up to a position, and those after the clock of the cursor.

    Read at most `most` index entries, or the first `most` rows of the table: if there are more, the
    counts may be too low.
    """
    if up_to is None and clock is None:
        return RowCount(), RowCount()
    conditions = [_NONE, _NONE]
    if up_to is not None:
        conditions[0] = cursor_predicate(table, cursor, START, up_to)
    if clock is not None and cursor.timestamp is not None:
        # The server's present clock: the activity may have been read earlier.
        moment = f"UTC_TIMESTAMP() + INTERVAL {clock.offset_seconds + _AHEAD_SECONDS} SECOND"
        conditions[1] = f"{quote_name(cursor.timestamp)} > {moment}"
    if index is not None:
        before, after = (_count_some(session, table, index, c, most) for c in conditions)
        return before, after
    names = ", ".join(quote_name(name) for name in cursor.columns)
    some = f"SELECT {names} FROM {relation(table)}"  # noqa: S608
    some += "" if most is None else f" LIMIT {most + 1}"
    counts = ", ".join(f"COUNT(IF({condition}, 1, NULL))" for condition in conditions)
    looked_at, *found = query(session, f"SELECT COUNT(*), {counts} FROM ({some}) AS looked_at")[0]  # noqa: S608
    exact = most is None or looked_at <= most
    before, after = (
        RowCount(int(n), exact or condition == _NONE)
        for n, condition in zip(found, conditions, strict=True)
    )
    return before, after


def _count_some(
    session: MysqlSession, table: SourceTable, index: str, where: str, most: int | None
) -> RowCount:
    if where == _NONE:
        return RowCount()
    some = f"SELECT 1 FROM {relation(table, index)} WHERE {where}"  # noqa: S608
    some += "" if most is None else f" LIMIT {most + 1}"
    rows = int(query(session, f"SELECT COUNT(*) FROM ({some}) AS some")[0][0])  # noqa: S608
    return RowCount(rows) if most is None or rows <= most else RowCount(most, exact=False)


def has_rows(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position,
    *,
    index: str | None,
) -> bool:
    """Whether there is any row in `(start, bound]`."""
    where = cursor_predicate(table, cursor, start, bound)
    return bool(query(session, f"SELECT 1 FROM {relation(table, index)} WHERE {where} LIMIT 1"))  # noqa: S608


def has_reached(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    position: Position,
    *,
    index: str | None,
) -> bool:
    """Whether there is any row at a position's time (or id) or after it."""
    column, values = cursor_columns(table, cursor)[0], cursor_values(table, cursor, position)
    if not values:
        return True
    where = f"{quote_name(column.name)} >= {literal(column, values[0])}"
    sql = f"SELECT 1 FROM {relation(table, index)} WHERE {where} LIMIT 1"  # noqa: S608
    return bool(query(session, sql))


def count_behind(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    end: Position | None,
) -> int:
    """Count the rows whose cursor is after a position, and up to another one if given."""
    where = cursor_predicate(table, cursor, start, end or START)
    return int(query(session, f"SELECT COUNT(*) FROM {relation(table)} WHERE {where}")[0][0])  # noqa: S608


def count_window(
    session: MysqlSession, table: SourceTable, cursor: Cursor, start: Position, end: Position
) -> int:
    """Count the rows in `(start, end]`, in a key scan or not."""
    where = window_predicate(table, cursor, start, end)
    return int(query(session, f"SELECT COUNT(*) FROM {relation(table)} WHERE {where}")[0][0])  # noqa: S608


def count_some(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position,
    *,
    index: str | None,
    most: int,
) -> int | None:
    """Count the rows in `(start, bound]`; None if there are more than `most`."""
    where = cursor_predicate(table, cursor, start, bound)
    some = f"SELECT 1 FROM {relation(table, index)} WHERE {where} LIMIT {most + 1}"  # noqa: S608
    found = int(query(session, f"SELECT COUNT(*) FROM ({some}) AS found")[0][0])  # noqa: S608
    return found if found <= most else None


def estimate_rows(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position,
    *,
    index: str,
) -> int:
    """Estimate the rows in `(start, bound]` with the optimizer, without reading them.

    InnoDB estimates at most half of a table for a large range. Then estimate the rows outside as
    well, and divide the table's rows in that ratio.
    """
    where = cursor_predicate(table, cursor, start, bound)
    inside = explained_rows(session, relation(table, index), where)
    if inside < _NEAR_THE_CAP * table.estimated_rows:
        return inside
    columns = cursor_columns(table, cursor)
    outside = sum(
        explained_rows(session, relation(table, index), condition(columns, values))
        for condition, values in (
            (up_to, cursor_values(table, cursor, start)),
            (above, cursor_values(table, cursor, bound)),
        )
        if values
    )
    return round(table.estimated_rows * inside / max(1, inside + outside))
