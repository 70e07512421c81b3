"""Which columns are left out, hashed or read as booleans."""

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from floodmark.errors import ConfigError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import ColumnChoices, ColumnPlan
from floodmark.model.manifest import Column
from floodmark.model.schema import SourceColumn, SourceTable


def find_column(table: SourceTable, name: str, used_as: str) -> SourceColumn:
    """A column by what the configuration calls it; ConfigError names the nearest one."""
    known = {column.name.lower(): column for column in table.columns}
    if name.lower() not in known:
        near = get_close_matches(name.lower(), known, n=1)
        raise ConfigError(
            f"{table.name} has no column {name!r}, which its {used_as} names",
            hint=f"did you mean {known[near[0]].name!r}?" if near else f"take it out of {used_as}",
        )
    return known[name.lower()]


def check_choices(table: SourceTable, cursor: Cursor, wanted: ColumnChoices) -> ColumnChoices:
    """The same choices, with names as the server spells them; ConfigError if one cannot be.

    A key tells rows apart and a cursor says when they changed: both are needed as they are.
    """
    found = ColumnChoices(
        exclude=_names(table, wanted.exclude, "'exclude'"),
        hash=_names(table, wanted.hash, "'hash'"),
        booleans=_names(table, wanted.booleans, "'booleans'"),
    )
    named = Counter((*found.exclude, *found.hash, *found.booleans))
    for name, times in named.items():
        column = table.column(name)
        if name in table.primary_key or name in cursor.columns:
            part = "primary key" if name in table.primary_key else "cursor"
            raise ConfigError(
                f"{name} is part of the {part} of {table.name}: it must stay as it is"
            )
        if times > 1:
            raise ConfigError(f"{table.name}: {name} is named twice by what is done to columns")
        if name in found.booleans and column.data_type != "tinyint":
            raise ConfigError(
                f"{name} of {table.name} is {column.column_type}: only a TINYINT is read as boolean"
            )
    if len(found.exclude) == len(table.columns):
        raise ConfigError(f"{table.name}: every column is left out")
    return found


def refuse_names(table: SourceTable, cursor: Cursor, names: Sequence[str]) -> None:
    """ConfigError if there are columns whose names the target keeps for its own."""
    if not names:
        return
    needed = [name for name in names if name in table.primary_key or name in cursor.columns]
    raise ConfigError(
        f"{table.name}: no column can be called {', '.join(names)} in the target",
        hint="rename it in the source, or load the table into DuckDB: key and cursor are needed"
        if needed
        else f"leave it out: 'exclude: [{', '.join(names)}]' for the table",
    )


def newly_hashed(planned: Sequence[ColumnPlan], before: Sequence[Column]) -> list[str]:
    """The columns that are hashed by now, but were not yet in an earlier chunk."""
    types = {column.name: column.type for column in before}
    hashed = [plan for plan in planned if plan.hashed]
    return [plan.name for plan in hashed if types.get(plan.name, plan.type) != plan.type]


def _names(table: SourceTable, wanted: Iterable[str], used_as: str) -> tuple[str, ...]:
    return tuple(find_column(table, name, used_as).name for name in wanted)
