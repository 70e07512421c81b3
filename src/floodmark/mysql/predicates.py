"""Build SQL for reading a table in order: conditions, literals, names.

Conditions are sent to the workers as text, so literals must mean the same on every connection: they
are plain ASCII whatever the character set, and times are those of a session in UTC.

`(a, b) > (x, y)` makes MySQL and MariaDB read the whole table; spelled out as
`a > x OR (a = x AND b > y)` it is a range over both columns of an index.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from floodmark.errors import UsageError
from floodmark.model.cursor import Cursor, key_kind
from floodmark.model.position import Identity, Position
from floodmark.model.schema import SourceColumn, SourceTable
from floodmark.model.timestamps import plain
from floodmark.mysql.types import quote_name

Value = datetime | int | str
Values = tuple[Value, ...]

_SAFE = re.compile(r"[A-Za-z0-9 _.:+@/-]*")

# Only zero and partial dates are before these.
_FIRST_TIMES = {"timestamp": "'1970-01-01 00:00:01'", "datetime": "'0001-01-01 00:00:00'"}


def relation(table: SourceTable, index: str | None = None) -> str:
    """Return the FROM clause: the table, with FORCE INDEX if an index is given.

    Otherwise the optimizer reads the whole table for a window of a tenth of it.
    """
    name = f"{quote_name(table.name.schema)}.{quote_name(table.name.table)}"
    return f"{name} FORCE INDEX ({quote_name(index)})" if index else name


def order_by(columns: Sequence[SourceColumn], *, descending: bool = False) -> str:
    """Return the ORDER BY clause."""
    direction = " DESC" if descending else ""
    return ", ".join(quote_name(column.name) + direction for column in columns)


def selection(columns: Sequence[SourceColumn]) -> str:
    """Return the SELECT list from which `read_values` gets exact values."""
    return ", ".join(map(_select, columns))


def _select(column: SourceColumn) -> str:
    name = quote_name(column.name)
    match key_kind(column):
        case "integer":
            return name
        case "binary":
            return f"CONCAT('0x', LOWER(HEX({name})))"
        case _:
            return f"CONCAT({name})"


def read_values(columns: Sequence[SourceColumn], row: Sequence[int | str]) -> tuple[int | str, ...]:
    """Return the values of a row that was selected with `selection`."""
    return tuple(
        int(value) if key_kind(column) == "integer" else str(value)
        for column, value in zip(columns, row, strict=True)
    )


def literal(column: SourceColumn, value: Value) -> str:
    """Return a value as a literal to compare with a column."""
    if isinstance(value, datetime):
        return f"'{plain(value)}'"
    match key_kind(column):
        case "integer":
            return str(int(value))
        case "decimal":
            return format(Decimal(value), "f")
        case _ if column.data_type == "bit":
            return str(int(value))
        case kind if kind == "binary" or column.data_type.endswith("blob"):
            return f"X'{bytes.fromhex(str(value).removeprefix('0x')).hex()}'"
        case _:
            text = str(value)
            # Hexadecimal needs no escaping, whatever the session's SQL mode.
            return f"'{text}'" if _SAFE.fullmatch(text) else f"_utf8mb4 X'{text.encode().hex()}'"


def above(columns: Sequence[SourceColumn], values: Values) -> str:
    """Select rows after these values; a prefix is after all rows that begin with it."""
    return _beyond(columns, values, ">", ">")


def up_to(columns: Sequence[SourceColumn], values: Values) -> str:
    """Select rows up to these values, inclusive; a prefix includes all that begin with it."""
    return _beyond(columns, values, "<", "<=")


def below(columns: Sequence[SourceColumn], values: Values) -> str:
    """Select rows before these values."""
    return _beyond(columns, values, "<", "<")


def _beyond(columns: Sequence[SourceColumn], values: Values, strict: str, last: str) -> str:
    name, value = quote_name(columns[0].name), literal(columns[0], values[0])
    if len(values) == 1:
        return f"{name} {last} {value}"
    rest = _beyond(columns[1:], values[1:], strict, last)
    return f"({name} {strict} {value} OR ({name} = {value} AND {rest}))"


def between(columns: Sequence[SourceColumn], start: Values, end: Values) -> str:
    """Select rows in `(start, end]`; a side without values is open."""
    conditions = []
    while len(start) > 1 and len(end) > 1 and start[0] == end[0]:
        conditions.append(f"{quote_name(columns[0].name)} = {literal(columns[0], start[0])}")
        columns, start, end = columns[1:], start[1:], end[1:]
    if start:
        conditions.append(above(columns, start))
    if end:
        conditions.append(up_to(columns, end))
    return " AND ".join(conditions) or "TRUE"


def window_predicate(table: SourceTable, cursor: Cursor, start: Position, end: Position) -> str:
    """Select exactly the rows in `(start, end]`, in a key scan or not."""
    if start.walk is None and end.walk is None:
        return cursor_predicate(table, cursor, start, end)
    key = between(
        key_columns(table),
        identity_values(start.walk.key) if start.walk else (),
        identity_values(end.walk.key) if end.walk else (),
    )
    bound = end.walk.bound if end.walk else end
    return f"{key} AND {cursor_predicate(table, cursor, start, bound)}"


def cursor_predicate(table: SourceTable, cursor: Cursor, start: Position, end: Position) -> str:
    """Select the rows whose cursor is in `(start, end]`."""
    values, last = (cursor_values(table, cursor, position) for position in (start, end))
    condition = between(cursor_columns(table, cursor), values, last)
    if cursor.timestamp is None or values:
        return condition
    first = _FIRST_TIMES[table.column(cursor.timestamp).data_type]
    return f"{quote_name(cursor.timestamp)} >= {first} AND {condition}"


def keys_predicate(table: SourceTable, keys: Sequence[tuple[int | str, ...]]) -> str:
    """Select the rows with these primary keys."""
    columns = key_columns(table)
    names = [quote_name(column.name) for column in columns]
    rows = [[literal(c, value) for c, value in zip(columns, key, strict=True)] for key in keys]
    if len(names) == 1:
        return f"{names[0]} IN ({', '.join(value for (value,) in rows)})"
    return " OR ".join(
        "(" + " AND ".join(f"{n} = {v}" for n, v in zip(names, row, strict=True)) + ")"
        for row in rows
    )


def unusable_predicate(table: SourceTable, cursor: Cursor) -> str | None:
    """Select the rows that no position reaches; None if there cannot be any."""
    conditions = [
        f"{quote_name(column.name)} IS NULL"
        for column in cursor_columns(table, cursor)
        if column.nullable
    ]
    if cursor.timestamp is not None:
        first = _FIRST_TIMES[table.column(cursor.timestamp).data_type]
        conditions.append(f"{quote_name(cursor.timestamp)} < {first}")
    return " OR ".join(conditions) or None


def cursor_columns(table: SourceTable, cursor: Cursor) -> tuple[SourceColumn, ...]:
    """Return the columns of the cursor."""
    return tuple(table.column(name) for name in cursor.columns)


def cursor_values(table: SourceTable, cursor: Cursor, position: Position) -> Values:
    """Return a position as values of the cursor's columns, or of a prefix of them."""
    key = () if position.id is None else identity_values(position.id)
    if len(key) > len(cursor.key) and cursor.kind != "none":
        raise UsageError(
            f"position {position} does not fit the cursor {cursor}",
            hint=f"set one that does: floodmark watermark set -t {table.name} --timestamp …",
        )
    match cursor.kind:
        case "none":
            return ()
        case "id":
            return key
        case "timestamp" if position.timestamp is not None:
            return (position.timestamp, *key)
        case _ if not key:
            return ()
    raise UsageError(
        f"position {position} has an id but no timestamp, and the cursor is {cursor}",
        hint=f"set both: floodmark watermark set -t {table.name} --timestamp … --id …",
    )


def identity_values(identity: Identity) -> tuple[int | str, ...]:
    """Return the parts of an id."""
    return identity if isinstance(identity, tuple) else (identity,)


def key_columns(table: SourceTable) -> tuple[SourceColumn, ...]:
    """Return the columns of the primary key."""
    return tuple(table.column(name) for name in table.primary_key)
