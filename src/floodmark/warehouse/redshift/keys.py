"""Primary keys in Redshift: not enforced, but trusted by its planner.

If a declared key has duplicates, queries return wrong results: SELECT DISTINCT may skip its work.
So a key is declared only where the loader guarantees it, and dropped where it no longer does.
"""

import re
from collections.abc import Sequence

from floodmark.model.load import TargetTable
from floodmark.warehouse.redshift.session import literal
from floodmark.warehouse.sql_dialect import quote
from floodmark.warehouse.unsupported_values import may_be_null

# Redshift ignores trailing blanks of text, and 0 equals -0.0.
_LOOSELY_COMPARED = ("string", "float32", "float64")
_COLUMN = re.compile(r'"((?:[^"]|"")*)"|([^\s,()]+)')


def declared_key(table: TargetTable) -> tuple[str, ...]:
    """Return the key to declare for a new table; empty if two of its values could be equal."""
    columns = [table.column(name) for name in table.primary_key]
    if any(may_be_null(column) or column.arrow in _LOOSELY_COMPARED for column in columns):
        return ()
    return table.primary_key


def never_null(table: TargetTable) -> list[str]:
    """Return the key columns to declare NOT NULL, which Redshift does enforce."""
    return [name for name in table.primary_key if not may_be_null(table.column(name))]


def key_query(schema: str, table: str) -> str:
    """Return the query for the name and definition of a table's primary key."""
    return (
        "SELECT k.conname, pg_get_constraintdef(k.oid) FROM pg_constraint AS k"  # noqa: S608
        " JOIN pg_class AS c ON c.oid = k.conrelid"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {literal(schema)} AND c.relname = {literal(table)}"
        " AND k.contype = 'p'"
    )


def key_columns(definition: str) -> tuple[str, ...]:
    """Parse the columns of `PRIMARY KEY (a, "b c")`."""
    inside = definition.partition("(")[2]
    found = _COLUMN.finditer(inside)
    return tuple(match[2] or match[1].replace('""', '"') for match in found)


def stays_true(declared: Sequence[str], merged: Sequence[str]) -> bool:
    """Whether rows that are merged by one key are unique by the declared one."""
    return bool(merged) and set(merged) <= set(declared)


def not_null_query(schema: str, table: str) -> str:
    """Return the query for a table's NOT NULL columns, and whether they have a default."""
    return (
        "SELECT a.attname, a.atthasdef FROM pg_attribute AS a"  # noqa: S608
        " JOIN pg_class AS c ON c.oid = a.attrelid"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {literal(schema)} AND c.relname = {literal(table)}"
        " AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull"
    )


def dropping_key(place: str, constraint: str) -> str:
    """Return the statement that drops a table's key; `place` is its full name, quoted."""
    return f"ALTER TABLE {place} DROP CONSTRAINT {quote(constraint)}"
