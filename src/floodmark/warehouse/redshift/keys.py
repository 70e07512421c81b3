"""The key that a table of Redshift declares: Redshift does not enforce it, its planner trusts it.

A key that is not true makes queries wrong: SELECT DISTINCT may skip its work. So it is declared
only where the loader keeps it true, and dropped where it no longer does.
"""

import re
from collections.abc import Sequence

from floodmark.model.load import TargetTable
from floodmark.warehouse.redshift.session import literal
from floodmark.warehouse.sql_dialect import quote
from floodmark.warehouse.unsupported_values import may_be_null

_COLUMN = re.compile(r'"((?:[^"]|"")*)"|([^\s,()]+)')


def declared_key(table: TargetTable) -> tuple[str, ...]:
    """The key to declare for a new table; empty if Redshift could take two of its values for one.

    Text is compared without its trailing blanks, so a key of text is never declared.
    """
    columns = [table.column(name) for name in table.primary_key]
    if any(may_be_null(column) or column.arrow == "string" for column in columns):
        return ()
    return table.primary_key


def never_null(table: TargetTable) -> list[str]:
    """The key's columns that are NOT NULL: Redshift enforces that, so the source must, too."""
    return [name for name in table.primary_key if not may_be_null(table.column(name))]


def key_query(schema: str, table: str) -> str:
    """Ask for the name and the definition of a table's primary key."""
    return (
        "SELECT k.conname, pg_get_constraintdef(k.oid) FROM pg_constraint AS k"  # noqa: S608
        " JOIN pg_class AS c ON c.oid = k.conrelid"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {literal(schema)} AND c.relname = {literal(table)}"
        " AND k.contype = 'p'"
    )


def key_columns(definition: str) -> tuple[str, ...]:
    """The columns in `PRIMARY KEY (a, "b c")`."""
    inside = definition.partition("(")[2]
    found = _COLUMN.finditer(inside)
    return tuple(match[2] or match[1].replace('""', '"') for match in found)


def stays_true(declared: Sequence[str], merged: Sequence[str]) -> bool:
    """Whether rows that are merged by one key are unique by a declared one."""
    return bool(merged) and set(merged) <= set(declared)


def not_null_query(schema: str, table: str) -> str:
    """Ask for the columns of a table that take no NULL."""
    return (
        "SELECT a.attname FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid"  # noqa: S608
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {literal(schema)} AND c.relname = {literal(table)}"
        " AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull"
    )


def dropping_key(place: str, constraint: str) -> str:
    """The statement that takes a declared key from a table; `place` is its full name, quoted."""
    return f"ALTER TABLE {place} DROP CONSTRAINT {quote(constraint)}"
