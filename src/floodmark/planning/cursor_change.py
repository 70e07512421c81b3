"""Check that a position still belongs to the table's cursor.

A position is a value of a cursor. With other columns, or columns whose values or order have
changed, it would mean another place, and the rows in between would never be read.
"""

import re
from collections.abc import Sequence

from floodmark.errors import AnotherCursor
from floodmark.model.cursor import Cursor, CursorColumn
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName

_TYPE = re.compile(r"(\w+)(?:\(([\d,]+)\))?")
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TIMES = ("datetime", "timestamp")
_TEXTS = ("char", "varchar")


def describe_cursor(table: SourceTable, cursor: Cursor) -> tuple[CursorColumn, ...]:
    """Return the description of a cursor that is stored with its positions."""
    columns = (table.column(name) for name in cursor.columns)
    return tuple(CursorColumn(c.name, c.column_type, c.collation) for c in columns)


def keeps(known: Sequence[CursorColumn], configured: tuple[str, ...] | None) -> bool:
    """Return whether the configuration keeps a table's known cursor.

    It may configure none, or omit the columns that break ties.
    """
    if configured is None:
        return True
    names = [column.name.lower() for column in known]
    expected = [name.lower() for name in configured]
    return names[: len(expected)] == expected and bool(names) == bool(expected)


def cursor_change(
    known: Sequence[CursorColumn], table: SourceTable, cursor: Cursor, position: Position
) -> str | None:
    """Return why a position does not belong to the table's current cursor; None if it does."""
    if position.is_start or cursor.kind == "none":
        return None
    now = describe_cursor(table, cursor)
    before = [column.name.lower() for column in known]
    names = [column.name.lower() for column in now]
    # After all rows of a moment, it does not matter which columns break ties from now on.
    extended = position.id is None and names[: len(before)] == before
    if names != before and not (before and extended):
        return f"its position was read by {show_cursor(known)}, but its cursor is now {cursor}"
    for old, new in zip(known, now, strict=False):
        if not _same_order(old, new):
            was, becomes = (_show_type(column) for column in (old, new))
            return (
                f"{new.name} was {was} when its position was read, but is now {becomes}: unread"
                " rows may now be before the position"
            )
        if not table.primary_key and {_parse(old.type)[0], _parse(new.type)[0]} == set(_TIMES):
            return (
                f"{new.name} was {old.type} when its position was read, but is now {new.type}:"
                " without a primary key, rows that are read again would be duplicated"
            )
    return None


def refuse_another_cursor(
    known: Sequence[CursorColumn] | None, source: SourceTable, cursor: Cursor, position: Position
) -> None:
    """Raise AnotherCursor unless a position belongs to the table's current cursor."""
    change = None if known is None else cursor_change(known, source, cursor, position)
    if known is None or change is None:
        return
    names = [column.name.lower() for column in known]
    other = [name.lower() for name in cursor.columns] != names
    otherwise = keep_it(known) if other and names else ""
    error = another_cursor(source.name, change, otherwise, keyed=bool(source.primary_key))
    if _other_keys(known, source, cursor):
        error.hint = other_keys_hint(source.name)
    raise error


def other_keys_hint(table: TableName) -> str:
    """Return how to remove target rows whose keys no longer exist in the source."""
    return (
        f"drop its table in the target, then 'floodmark watermark reset -t {table} --force' and"
        " sync read it again"
    )


def _other_keys(known: Sequence[CursorColumn], table: SourceTable, cursor: Cursor) -> bool:
    """Return whether a cursor column got another type that changes the rows' keys."""
    before = {column.name.lower(): column for column in known}
    pairs = ((before.get(n.name.lower(), n), n) for n in describe_cursor(table, cursor))
    return any(
        new.name in table.primary_key and old.type != new.type and not _same_order(old, new)
        for old, new in pairs
    )


def another_cursor(
    table: TableName, change: str, otherwise: str = "", *, keyed: bool
) -> AnotherCursor:
    """Return the error for a changed cursor; the hint reads the table by the current one."""
    stages = " --extract-only" if keyed else ""
    return AnotherCursor(
        f"{table}: {change}",
        hint=f"'floodmark watermark reset -t {table}{stages}', then sync, reads the table again"
        f" from the start{otherwise}",
    )


def keep_it(known: Sequence[CursorColumn]) -> str:
    """Return the part of a hint that keeps a known cursor."""
    names = ", ".join(column.name for column in known)
    return f"; 'cursor: [{names}]' in the configuration keeps the previous one"


def show_cursor(columns: Sequence[CursorColumn]) -> str:
    """Format cursor columns as `Cursor` does."""
    return f"({', '.join(column.name for column in columns)})" if columns else "none"


def _same_order(old: CursorColumn, new: CursorColumn) -> bool:
    """Return whether a column's values kept their order when it got another type."""
    if not old.type or (old.type, old.collation) == (new.type, new.collation):
        return True
    (before, size), (after, new_size) = _parse(old.type), _parse(new.type)
    if before in _INTEGERS and after in _INTEGERS:
        return True
    if before in _TIMES and after in _TIMES:
        return new_size >= size  # a lower precision rounds; clocks are checked elsewhere
    if before in _TEXTS and after in _TEXTS:
        return old.collation == new.collation and new_size >= size
    if before == after == "decimal":
        return size[1:] == new_size[1:] and new_size >= size
    return before == after == "varbinary" and new_size >= size


def _parse(type_: str) -> tuple[str, tuple[int, ...]]:
    found = _TYPE.match(type_.lower())
    if found is None:
        return type_, ()
    numbers = found[2] or "0"
    return found[1], tuple(map(int, numbers.split(",")))


def _show_type(column: CursorColumn) -> str:
    return f"{column.type} ({column.collation})" if column.collation else column.type
