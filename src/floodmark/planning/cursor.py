"""Choose a table's cursor from the configuration or its schema."""

import re
from collections.abc import Sequence

from msgspec import structs

from floodmark.errors import ConfigError
from floodmark.model.cursor import Cursor, CursorChoice, CursorColumn, is_time, key_kind
from floodmark.model.schema import SourceColumn, SourceTable
from floodmark.planning.access_path import ONE_WINDOW, has_walkable_key
from floodmark.planning.columns import find_column
from floodmark.planning.cursor_change import keeps
from floodmark.planning.indexes import is_unique, serving_index

# Common names of columns with the time of a row's last change.
_CHANGE_NAME = re.compile(
    r"(last_?)?(updated?|modify|modified)_?(at|on|time|date|datetime|ts|timestamp)?"
    r"|gmt_?(modified|update)|mtime",
    re.IGNORECASE,
)

NO_INDEX = "no index on"
"""Start of the warning that the cursor has no index."""
SMALL_TABLE_ROWS = 100_000
"""A table with fewer rows is read in full in a moment, and needs no index."""


def choose_cursor(
    table: SourceTable,
    configured: tuple[str, ...] | None,
    known: Sequence[CursorColumn] | None = None,
) -> CursorChoice:
    """Choose how a table's changes are ordered.

    `configured` are the configured columns: None chooses by the schema, an empty tuple means full
    reloads. `known` is the cursor of the table's position: it is kept unless the configuration
    names another one. Raise ConfigError if a column cannot be used.
    """
    if known is not None and keeps(known, configured) and _has(table, known):
        choice = _keep(table, configured, tuple(column.name for column in known))
    else:
        choice = _choose(table, configured)
    if choice.cursor.kind == "none" and not has_walkable_key(table):
        choice = structs.replace(choice, reasons=(*choice.reasons, f"read {ONE_WINDOW}"))
    if not table.partial:
        return choice
    return structs.replace(choice, warnings=(_only_some_columns(table), *choice.warnings))


def version_column(table: SourceTable, cursor: Cursor) -> str | None:
    """Return the column that decides which of two rows with one key is newer.

    None if no row is read twice.
    """
    if cursor.kind == "id" and cursor.key != table.primary_key:
        return cursor.key[0]
    return cursor.timestamp


def _has(table: SourceTable, known: Sequence[CursorColumn]) -> bool:
    present = {column.name.lower() for column in table.columns}
    return all(column.name.lower() in present for column in known)


def _keep(
    table: SourceTable, configured: tuple[str, ...] | None, known: tuple[str, ...]
) -> CursorChoice:
    """Keep the known cursor; if it was not configured, note what the schema suggests now."""
    choice = _choose(table, known)
    if configured is not None:
        reasons = (f"configured: {', '.join(configured) or 'none'}", *choice.reasons[1:])
        return structs.replace(choice, reasons=reasons)
    found = _find(table).cursor
    reasons = (f"kept from the first sync: {choice.cursor}", *choice.reasons[1:])
    return structs.replace(
        choice,
        reasons=reasons,
        better=found if found.columns[:1] != choice.cursor.columns[:1] else None,
    )


def _only_some_columns(table: SourceTable) -> str:
    names = ", ".join(column.name for column in table.columns)
    warning = f"the user may read only some columns, and only these are synced: {names}"
    if not table.primary_key:  # MariaDB shows no keys then
        warning += "; no primary key is visible, so the table is treated as one without"
    return warning


def _choose(table: SourceTable, configured: tuple[str, ...] | None) -> CursorChoice:
    if configured is None:
        return _find(table)
    if not configured:
        return _none("configured: the whole table is read each time")
    columns = tuple(find_column(table, name, "cursor") for name in configured)
    if is_time(columns[0]):
        reason = f"configured: {', '.join(configured)}"
        return _by_time(table, columns[0], columns[1:], reason)
    if len(columns) > 1:
        raise ConfigError(
            f"the cursor of {table.name} begins with {columns[0].name}, which is"
            f" {columns[0].column_type}, not DATETIME or TIMESTAMP",
            hint="put the time column first, or use an id column alone",
        )
    return _by_id(table, columns[0], f"configured: {configured[0]}")


def _find(table: SourceTable) -> CursorChoice:
    if not table.primary_key:
        return _none(
            "found: no primary key, so changed rows could not replace their earlier versions:"
            " the whole table is read each time"
        )
    times = sorted(filter(_tells_changes, table.columns), key=_doubt)
    if times:
        best = times[0]
        how = "ON UPDATE CURRENT_TIMESTAMP" if best.on_update else "judging by its name"
        return _by_time(table, best, (), f"found: {best.name} records changes ({how})")
    key = [table.column(name) for name in table.primary_key]
    if len(key) == 1 and key[0].auto_increment:
        reason = f"found: no column records changes, but {key[0].name} is AUTO_INCREMENT"
        return _by_id(table, key[0], reason)
    return _none(
        "found: no column records changes and no AUTO_INCREMENT primary key,"
        " so the whole table is read each time"
    )


def _tells_changes(column: SourceColumn) -> bool:
    return is_time(column) and (column.on_update or _is_named_so(column))


def _is_named_so(column: SourceColumn) -> bool:
    return _CHANGE_NAME.fullmatch(column.name) is not None


def _doubt(column: SourceColumn) -> tuple[bool, bool, bool]:
    return not _is_named_so(column), not column.on_update, column.nullable


def _by_time(
    table: SourceTable, time: SourceColumn, key: tuple[SourceColumn, ...], reason: str
) -> CursorChoice:
    reasons, warnings = [reason], []
    if not key:
        key = tuple(table.column(name) for name in table.primary_key if name != time.name)
        if key and not all(map(key_kind, key)):
            warnings.append(f"the primary key ({_names(key)}) cannot break ties: {_types(key)}")
            key = ()
        elif key and _only_time_is_served(table, time, key):
            warnings.append(
                f"the primary key ({_names(key)}) cannot break ties: its index is not ascending"
                " over whole columns"
            )
            key = ()
        elif key:
            reasons.append(f"the primary key ({_names(key)}) breaks ties")
    for column in key:
        _check_key(table, column)
    columns = (time.name, *(column.name for column in key))
    cursor = Cursor(
        kind="timestamp",
        timestamp=time.name,
        key=columns[1:],
        unique=is_unique(table, columns),
    )
    if time.name in table.primary_key:
        warnings.append(
            f"{time.name} is part of the primary key ({', '.join(table.primary_key)}): updating it"
            " creates a new key, and the old version of the row stays in the target;"
            " 'cursor: none' replaces the whole table, and a cursor that is not in the key replaces"
            " each row"
        )
    if not table.primary_key:
        warnings.append(_no_key(table))
    if not cursor.unique:
        warnings.append(f"rows can tie in {cursor}: windows end between different values")
    if not time.on_update:
        warnings.append(
            f"{time.name} has no ON UPDATE CURRENT_TIMESTAMP, so the application sets it:"
            " 'lag_seconds' must cover how late it commits"
        )
    if not time.fraction:
        reasons.append(f"{time.name} has whole seconds: a row is read once its second is over")
    return _choice(table, cursor, reasons, warnings)


def _no_key(table: SourceTable) -> str:
    """Return the warning for a time cursor without a primary key."""
    if table.unused_key:
        return (
            "loaded without a key so far, and this continues: a changed row is added again;"
            f" 'floodmark watermark reset -t {table.name}', then sync, reads the table again by its"
            f" unique key ({', '.join(table.unused_key)})"
        )
    return (
        "no primary key: rows are appended, and a changed row is added again next to its earlier"
        " versions; 'cursor: none' replaces the whole table each time"
    )


def _only_time_is_served(
    table: SourceTable, time: SourceColumn, key: tuple[SourceColumn, ...]
) -> bool:
    """Return whether an index supports the time alone: with the key, every read would sort."""
    columns = (time.name, *(column.name for column in key))
    return serving_index(table, columns) is None and serving_index(table, columns[:1]) is not None


def _by_id(table: SourceTable, column: SourceColumn, reason: str) -> CursorChoice:
    if key_kind(column) != "integer":
        raise ConfigError(
            f"{column.name} of {table.name} is {column.column_type}, which cannot be a cursor",
            hint="a cursor is a DATETIME or TIMESTAMP column, an integer id, or none",
        )
    cursor = Cursor(kind="id", key=(column.name,), unique=is_unique(table, (column.name,)))
    warnings = [f"{column.name} only grows with inserts: updated rows are not seen"]
    if not cursor.unique:
        warnings.append(f"{column.name} is not unique: a row that commits late may be missed")
    if not column.auto_increment:
        warnings.append(f"{column.name} is not AUTO_INCREMENT: it must only ever grow")
    return _choice(table, cursor, [reason], warnings)


def _choice(
    table: SourceTable, cursor: Cursor, reasons: list[str], warnings: list[str]
) -> CursorChoice:
    warnings += [
        f"{name} may be NULL: rows without a value are counted but not read"
        for name in cursor.columns
        if table.column(name).nullable
    ]
    index = serving_index(table, cursor.columns)
    if index:
        reasons.append(f"index {index} supports {cursor}")
    elif table.estimated_rows < SMALL_TABLE_ROWS:
        reasons.append(f"{NO_INDEX} {cursor}, and the table is small: every sync reads all of it")
    elif has_walkable_key(table):
        warnings.append(
            f"{NO_INDEX} {cursor}: windows are split by primary key and filtered,"
            " so every sync reads the whole table"
        )
    else:
        warnings.append(
            f"{NO_INDEX} {cursor}, and no usable primary key: every window scans the whole table"
        )
    return CursorChoice(
        cursor=cursor, index=index, reasons=tuple(reasons), warnings=tuple(warnings)
    )


def _none(reason: str) -> CursorChoice:
    return CursorChoice(cursor=Cursor(kind="none"), index=None, reasons=(reason,))


def _check_key(table: SourceTable, column: SourceColumn) -> None:
    if key_kind(column) is None:
        raise ConfigError(
            f"{column.name} of {table.name} is {column.column_type}, which cannot break ties",
            hint="remove it: then the primary key breaks ties",
        )


def _names(columns: tuple[SourceColumn, ...]) -> str:
    return ", ".join(column.name for column in columns)


def _types(columns: tuple[SourceColumn, ...]) -> str:
    return ", ".join(column.column_type for column in columns if key_kind(column) is None)
