"""Queries for what PostgreSQL's catalog says about a table: columns, key, NOT NULL, collations."""

from floodmark.warehouse.sql_dialect import text_literal


def columns_query(schema: str, table: str) -> str:
    """Return the query for a table's columns and their types, in order."""
    return (
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod)"  # noqa: S608
        f" FROM pg_attribute a {_of_table(schema, table)}"
        " WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )


def key_query(schema: str, table: str) -> str:
    """Return the query for the columns of a table's primary key."""
    return (
        "SELECT a.attname"  # noqa: S608
        f" FROM pg_attribute a {_of_table(schema, table)}"
        " JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary AND i.indimmediate"
        " WHERE a.attnum = ANY (i.indkey::int2[])"
    )


def not_null_query(schema: str, table: str) -> str:
    """Return the query for a table's NOT NULL columns, and whether they have a default."""
    return (
        "SELECT a.attname, a.atthasdef OR a.attidentity <> ''"  # noqa: S608
        f" FROM pg_attribute a {_of_table(schema, table)}"
        " WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull"
    )


def loose_collations_query(schema: str, table: str) -> str:
    """Return the query for columns with a nondeterministic collation: name, collation, type."""
    return (
        "SELECT a.attname, l.collname, format_type(a.atttypid, a.atttypmod)"  # noqa: S608
        f" FROM pg_attribute a {_of_table(schema, table)}"
        " JOIN pg_collation l ON l.oid = a.attcollation AND NOT l.collisdeterministic"
    )


def _of_table(schema: str, table: str) -> str:
    return (
        f"JOIN pg_class c ON c.oid = a.attrelid AND c.relname = {text_literal(table)}"
        " AND c.relkind IN ('r', 'p')"
        f" JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = {text_literal(schema)}"
    )
