"""Track the first and last position of the rows that are written."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.model.cursor import Cursor
from floodmark.model.position import START, Position
from floodmark.model.timestamps import as_utc, plain

Row = tuple[Any, ...]


class Span:
    """The range of positions in batches of rows.

    If rows are in the cursor's order, it goes from the first to the last row: the database has
    compared them, by its own collation. Otherwise values are compared here, text by its bytes.
    """

    def __init__(self, cursor: Cursor, *, ordered: bool) -> None:
        self._cursor = cursor
        self._ordered = ordered
        self._first: Row | None = None
        self._last: Row | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        names = self._cursor.columns
        if not names:
            return
        known = batch.column(names[0]).is_valid()  # a zero date has no position
        columns = [batch.column(name).filter(known) for name in names]
        if not len(columns[0]):
            return
        if self._ordered:
            self._first = self._first or tuple(column[0].as_py() for column in columns)
            self._last = tuple(column[-1].as_py() for column in columns)
            return
        first, last = _end(columns, pc.min), _end(columns, pc.max)
        self._first = min(first, self._first or first)
        self._last = max(last, self._last or last)

    @property
    def first(self) -> Position:
        """Return the first position."""
        return START if self._first is None else position_of(self._cursor, self._first)

    @property
    def last(self) -> Position:
        """Return the last position."""
        return START if self._last is None else position_of(self._cursor, self._last)


def position_of(cursor: Cursor, row: Row) -> Position:
    """Return the position of a row, given the values of the cursor's columns."""
    key = row[1:] if cursor.timestamp else row
    parts = tuple(key_part(value) for value in key)
    return Position(
        timestamp=_moment(row[0]) if cursor.timestamp else None,
        id=None if not parts else parts[0] if len(parts) == 1 else parts,
    )


def _end(columns: Sequence[pa.Array], choose: Any) -> Row:
    """Return the smallest or largest row, comparing column by column."""
    column, *rest = columns
    value = choose(column)
    if not rest:
        return (value.as_py(),)
    equal = pc.equal(column, value)
    return (value.as_py(), *_end([other.filter(equal) for other in rest], choose))


def _moment(value: date) -> datetime:
    if isinstance(value, datetime):
        return as_utc(value)
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


def key_part(value: Any) -> int | str:
    """Convert a key's value to one that a position can hold."""
    if isinstance(value, int | str):
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, Decimal):  # an integer such as BIGINT UNSIGNED
        return int(value) if value.as_tuple().exponent == 0 else format(value, "f")
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return plain(value) if isinstance(value, datetime) else str(value)
