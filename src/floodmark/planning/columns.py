"""Check which columns are excluded, hashed or read as booleans."""

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from floodmark.errors import ConfigError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import ColumnChoices, ColumnPlan
from floodmark.model.manifest import Column
from floodmark.model.schema import SourceColumn, SourceTable


def find_column(table: SourceTable, name: str, used_as: str) -> SourceColumn:
    """Return a column by its configured name; ConfigError suggests the closest match."""
    known = {column.name.lower(): column for column in table.columns}
    if name.lower() not in known:
        near = get_close_matches(name.lower(), known, n=1)
        drop = f"remove it from {used_as}"
        if used_as == "cursor":
            drop = f"if it was renamed, write its new name into 'cursor:'; if it is gone, {drop}"
        raise ConfigError(
            f"{table.name} has no column {name!r}, which is in its {used_as}",
            hint=f"did you mean {known[near[0]].name!r}?" if near else drop,
        )
    return known[name.lower()]


def check_choices(table: SourceTable, cursor: Cursor, choices: ColumnChoices) -> ColumnChoices:
    """Return the choices with the server's spelling of names; ConfigError if one is invalid.

    Key and cursor columns must not be changed: they identify and order the rows.
    """
    found = ColumnChoices(
        exclude=_names(table, choices.exclude, "'exclude'"),
        hash=_names(table, choices.hash, "'hash'"),
        booleans=_names(table, choices.booleans, "'booleans'"),
    )
    named = Counter((*found.exclude, *found.hash, *found.booleans))
    for name, times in named.items():
        column = table.column(name)
        if name in table.primary_key or name in cursor.columns:
            part = "primary key" if name in table.primary_key else "cursor"
            raise ConfigError(
                f"{name} is part of the {part} of {table.name} and cannot be excluded, hashed or"
                " read as boolean"
            )
        if times > 1:
            raise ConfigError(
                f"{table.name}: {name} is listed twice in 'exclude', 'hash' and 'booleans'"
            )
        if name in found.booleans and column.data_type != "tinyint":
            raise ConfigError(
                f"{name} of {table.name} is {column.column_type}: only a TINYINT is read as boolean"
            )
    if len(found.exclude) == len(table.columns):
        raise ConfigError(f"{table.name}: every column is excluded")
    return found


def leave_out_new(
    table: SourceTable, cursor: Cursor, choices: ColumnChoices, before: Iterable[Column]
) -> ColumnChoices:
    """Also exclude columns that a table did not have before, unless they identify its rows."""
    needed = {name.lower() for name in (*table.primary_key, *cursor.columns)}
    known = {column.name.lower() for column in before} | needed
    new = [column.name for column in table.columns if column.name.lower() not in known]
    lowered = {name.lower() for name in new}

    def kept(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name.lower() not in lowered)

    return ColumnChoices(
        exclude=(*kept(choices.exclude), *new),
        hash=kept(choices.hash),
        booleans=kept(choices.booleans),
    )


def refuse_names(table: SourceTable, cursor: Cursor, names: Sequence[str]) -> None:
    """Raise ConfigError if there are columns with names that the target reserves."""
    if not names:
        return
    needed = [name for name in names if name in table.primary_key or name in cursor.columns]
    raise ConfigError(
        f"{table.name}: the target reserves the column name {', '.join(names)}",
        hint="rename it in the source, or load the table into DuckDB: key and cursor are needed"
        if needed
        else f"exclude it: 'exclude: [{', '.join(names)}]' for the table",
    )


def newly_hashed(planned: Sequence[ColumnPlan], before: Sequence[Column]) -> list[str]:
    """Return the columns that are hashed now, but were not in an earlier chunk."""
    types = {column.name: column.type for column in before}
    hashed = [plan for plan in planned if plan.hashed]
    return [plan.name for plan in hashed if types.get(plan.name, plan.type) != plan.type]


def _names(table: SourceTable, names: Iterable[str], used_as: str) -> tuple[str, ...]:
    return tuple(find_column(table, name, used_as).name for name in names)
