"""Count the rows of a range by the first column of the cursor, without an index.

Each statement reads the whole table, or the partitions that its condition leaves. So there are few:
one or two for the range, one for a histogram, and one for each bucket that has too many rows.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from math import ceil

from msgspec import Struct

from floodmark.model.cursor import Cursor
from floodmark.model.position import Position
from floodmark.model.schema import SourceColumn, SourceTable
from floodmark.model.timestamps import FIRST_MOMENT
from floodmark.mysql.connection import MysqlSession, query
from floodmark.mysql.index_scan import Scan, find_row, read_moment
from floodmark.mysql.predicates import (
    Value,
    cursor_columns,
    cursor_predicate,
    literal,
    read_values,
    relation,
)
from floodmark.mysql.types import quote_name
from floodmark.mysql.window_edges import cursor_position

_BUCKETS = 4096
_DIGITS_OF_A_MICROSECOND = 6


class CursorRange(Struct, frozen=True, kw_only=True):
    """Some rows: how many there are, and the position of the last one.

    `numbers` has the values of the cursor's first column: integers, or times in units of its
    precision. `placed` rows have one of them; the others have an invalid time.
    """

    numbers: range
    end: Position
    rows: int
    placed: int


def read_range(
    session: MysqlSession, table: SourceTable, cursor: Cursor, start: Position, bound: Position
) -> CursorRange | None:
    """Return the range of the rows in `(start, bound]`; None if there are none.

    Rows with an invalid time after the last valid one are counted, but not in the range.
    """
    scan = _scan(table, cursor, start, bound)
    column = scan.columns[0]
    value = f"IF({scan.can_end}, {quote_name(column.name)}, NULL)"
    found = query(
        session,
        f"SELECT CONCAT(MIN({value})), CONCAT(MAX({value})), COUNT(*), COUNT({value})"  # noqa: S608
        f" FROM {scan.relation} WHERE {scan.where}",
    )
    first, last, rows, placed = found[0]
    if first is None:
        return None
    end = read_values(scan.columns[:1], (last,))
    if len(scan.columns) > 1:
        end = find_row(session, scan, (), also=scan.can_end, last=True) or end
    return CursorRange(
        numbers=range(_number(column, first), _number(column, last) + 1),
        end=cursor_position(cursor, end),
        rows=int(rows),
        placed=int(placed),
    )


def read_histogram(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    found: CursorRange,
    *,
    most: int,
) -> Iterator[tuple[Position, int]]:
    """Yield positions that divide a range, and the rows since the previous one.

    They are `most` rows, unless these have the same value. Rows with an invalid time are in the
    range, but not counted.
    """
    scan = _scan(table, cursor, start, found.end)
    for number, rows in _divide(session, scan, found.numbers, most):
        value = _value(scan.columns[0], number)
        yield (
            Position(value) if isinstance(value, datetime) else Position(id=int(value)),
            rows,
        )


def _divide(
    session: MysqlSession, scan: Scan, numbers: range, most: int
) -> Iterator[tuple[int, int]]:
    column, width = scan.columns[0], ceil((numbers.stop - numbers.start) / _BUCKETS)
    name = quote_name(column.name)
    first, last = (literal(column, _value(column, number)) for number in (numbers[0], numbers[-1]))
    if scan.by_time:
        bucket = f"TIMESTAMPDIFF(MICROSECOND, {first}, {name}) DIV {width * _unit(column)}"
    else:
        bucket = f"(CAST({name} AS DECIMAL(65, 0)) - {first}) DIV {width}"
    buckets = query(
        session,
        f"SELECT IF({scan.can_end}, {bucket}, NULL) AS bucket, COUNT(*) FROM {scan.relation}"  # noqa: S608
        f" WHERE {name} >= {first} AND {name} <= {last} AND ({scan.where})"
        " GROUP BY bucket ORDER BY bucket",
    )
    for number, rows in buckets:
        if number is None:
            continue  # an invalid time
        low = numbers.start + int(number) * width
        part = range(low, min(low + width, numbers.stop))
        if rows > most and part.stop - part.start > 1:  # len() is not for 2**63 and more
            yield from _divide(session, scan, part, most)
        else:
            yield part[-1], int(rows)


def _scan(table: SourceTable, cursor: Cursor, start: Position, end: Position) -> Scan:
    return Scan(
        relation=relation(table),
        columns=cursor_columns(table, cursor),
        where=cursor_predicate(table, cursor, start, end),
        unique=False,
        by_time=cursor.timestamp is not None,
    )


def _number(column: SourceColumn, text: str) -> int:
    moment = read_moment(text)
    if column.data_type not in ("datetime", "timestamp") or moment is None:
        return int(text)
    return (moment - FIRST_MOMENT) // timedelta(microseconds=_unit(column))


def _value(column: SourceColumn, number: int) -> Value:
    if column.data_type not in ("datetime", "timestamp"):
        return number
    return FIRST_MOMENT + number * timedelta(microseconds=_unit(column))


def _unit(column: SourceColumn) -> int:
    """Return the precision of a time in microseconds."""
    return int(10 ** (_DIGITS_OF_A_MICROSECOND - (column.fraction or 0)))
