"""Read table definitions from the server's catalog."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import pymysql
from msgspec import Struct
from pymysql.constants import ER

from floodmark.errors import UsageError
from floodmark.model.schema import SourceColumn, SourceIndex, SourceTable
from floodmark.model.table import TableName
from floodmark.mysql.connection import MysqlSession, query_dicts
from floodmark.mysql.keys import KnownKey, Parts, choose_key, free_choice, is_usable, read_indexes
from floodmark.mysql.types import quote_name

# On MariaDB, JSON is text with this check constraint.
_JSON_CHECK = re.compile(r"json_valid\(`((?:[^`]|``)+)`\)", re.IGNORECASE)

SYSTEM_VERSIONED = "SYSTEM VERSIONED"
"""Type of a MariaDB table that keeps earlier versions of its rows, which are not read."""

_TABLES = (
    "t.table_name AS name, t.engine AS engine, t.table_rows AS estimated_rows,"
    " t.avg_row_length AS average_row_bytes, t.table_type AS kind,"
    " @@lower_case_table_names AS folded"
)
_COLUMNS = (
    "c.column_name AS name, c.data_type AS data_type, c.column_type AS column_type,"
    " c.is_nullable AS nullable, c.numeric_precision AS number_precision,"
    " c.numeric_scale AS scale, c.datetime_precision AS fraction,"
    " c.character_maximum_length AS length, c.collation_name AS collation_name,"
    " c.extra AS extra"
)
_OURS = "t.table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')"


class Definition(Struct, frozen=True, kw_only=True):
    """What the catalog contains about one table, as rows."""

    facts: Mapping[str, Any]
    columns: Sequence[Mapping[str, Any]]
    indexes: Mapping[str, Parts]
    json_columns: Collection[str] = ()
    partial: bool = False


def read_table(
    session: MysqlSession,
    name: TableName,
    *,
    changed: Collection[str] = (),
    known_key: KnownKey = free_choice,
    definition: Definition | None = None,
) -> SourceTable:
    """Describe a table; UsageError, with similar names, if there is none.

    `changed` are columns whose values are changed on the way; see `choose_key`. With a
    `definition`, the catalog is not read.
    """
    found = _read_definition(session, name) if definition is None else definition
    facts, columns, indexes = found.facts, found.columns, found.indexes
    readable = {row["name"] for row in columns}
    lowered = {column.lower() for column in changed}
    key = choose_key(
        session,
        TableName(name.scope, name.schema, facts["name"]),
        indexes,
        readable=readable,
        changed=[column for column in readable if column.lower() in lowered],
        known=known_key,
    )
    usable = {
        index: parts
        for index, parts in indexes.items()
        if all(is_usable(row) and row["COLUMN_NAME"] in readable for row in parts)
    }
    return SourceTable(
        name=name,
        columns=tuple(_column(row, found.json_columns) for row in columns),
        primary_key=key.columns,
        key_index=key.index,
        unused_key=key.unused,
        indexes=tuple(
            SourceIndex(
                name=index,
                columns=tuple(row["COLUMN_NAME"] for row in parts),
                unique=not parts[0]["NON_UNIQUE"],
            )
            for index, parts in usable.items()
        ),
        engine=facts["engine"] or "",
        estimated_rows=int(facts["estimated_rows"] or 0),
        average_row_bytes=int(facts["average_row_bytes"] or 0),
        partial=found.partial,
    )


def _read_definition(session: MysqlSession, name: TableName) -> Definition:
    facts = _find(session, name)
    stored = facts["name"]
    json_columns = _json_columns(session, name.schema, stored)
    # The server uses an index on the name; the binary comparison makes it exact.
    columns = query_dicts(
        session,
        f"SELECT {_COLUMNS} FROM information_schema.columns c"  # noqa: S608
        " WHERE c.table_schema = %s AND c.table_name = %s AND CAST(c.table_name AS BINARY) = %s"
        " ORDER BY c.ordinal_position",
        (name.schema, stored, stored),
    )
    indexes = read_indexes(session, name.schema, stored)
    if facts["kind"] == SYSTEM_VERSIONED:
        indexes = _of_current_rows(session, name.schema, stored, indexes)
    return Definition(
        facts=facts,
        columns=columns,
        indexes=indexes,
        json_columns=json_columns,
        partial=_is_partial(session, name.schema, stored),
    )


def read_definitions(
    session: MysqlSession, schema: str, names: Sequence[str]
) -> dict[str, Definition]:
    """Read the definitions of many tables of a schema with four statements.

    Tables that need a closer look are left out: those without this exact name, and those with
    system versioning. Whether a table has columns that the user may not read is not known.
    """
    wanted = (schema, list(names))
    tables = query_dicts(
        session,
        f"SELECT {_TABLES} FROM information_schema.tables t"  # noqa: S608
        " WHERE t.table_schema = %s AND t.table_name IN %s",
        wanted,
    )
    columns = query_dicts(
        session,
        f"SELECT c.table_name AS in_table, {_COLUMNS} FROM information_schema.columns c"  # noqa: S608
        " WHERE c.table_schema = %s AND c.table_name IN %s ORDER BY c.ordinal_position",
        wanted,
    )
    indexes = query_dicts(
        session,
        "SELECT i.* FROM information_schema.statistics i"
        " WHERE i.table_schema = %s AND i.table_name IN %s"
        " ORDER BY i.index_name, i.seq_in_index",
        wanted,
    )
    checks: list[dict[str, Any]] = []
    if _is_mariadb(session):
        checks = query_dicts(
            session,
            "SELECT k.table_name AS in_table, k.check_clause AS clause"
            " FROM information_schema.check_constraints k"
            " WHERE k.constraint_schema = %s AND k.table_name IN %s",
            wanted,
        )
    columns_of, indexes_of, checks_of = (
        _grouped(columns, "in_table"),
        _grouped(indexes, "TABLE_NAME"),
        _grouped(checks, "in_table"),
    )
    return {
        facts["name"]: Definition(
            facts=facts,
            columns=columns_of[facts["name"]],
            indexes=_grouped(indexes_of.get(facts["name"], ()), "INDEX_NAME"),
            json_columns=_checked_as_json(checks_of.get(facts["name"], ())),
        )
        for facts in tables
        if facts["kind"] != SYSTEM_VERSIONED and facts["name"] in columns_of
    }


def _grouped(rows: Iterable[Mapping[str, Any]], column: str) -> dict[str, list[Mapping[str, Any]]]:
    """Group rows by a column, in order."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def list_tables(session: MysqlSession, scope: str) -> dict[TableName, str]:
    """List all tables and views that the user may see, in order, with their type."""
    rows = query_dicts(
        session,
        "SELECT t.table_schema AS table_schema, t.table_name AS name, t.table_type AS kind"  # noqa: S608
        f" FROM information_schema.tables t WHERE {_OURS} ORDER BY t.table_schema, t.table_name",
    )
    return {TableName(scope, row["table_schema"], row["name"]): row["kind"] for row in rows}


def _find(session: MysqlSession, name: TableName) -> dict[str, Any]:
    rows = query_dicts(
        session,
        f"SELECT {_TABLES} FROM information_schema.tables t"  # noqa: S608
        " WHERE t.table_schema = %s AND t.table_name = %s",
        (name.schema, name.table),
    )
    for row in rows:
        if row["name"] == name.table or row["folded"]:
            return row
    known = query_dicts(
        session,
        "SELECT CONCAT(t.table_schema, '.', t.table_name) AS name"  # noqa: S608
        f" FROM information_schema.tables t WHERE {_OURS}",
    )
    names = [row["name"] for row in known]
    nearest = get_close_matches(name.unscoped, names, n=3, cutoff=0.6)
    if roles := _inactive_roles(session):
        hint = (
            f"the user has a role that is not active: SET DEFAULT ROLE {', '.join(roles)} FOR the"
            " user (on MySQL: TO the user) activates it"
        )
    elif nearest:
        hint = f"did you mean {' or '.join(nearest)}?"
    else:
        hint = "check name and privileges"
    raise UsageError(f"{name} does not exist, or the user may not read it", hint=hint)


def _inactive_roles(session: MysqlSession) -> list[str]:
    """Return the user's roles that are not active in this session."""
    with suppress(pymysql.MySQLError):  # before MySQL 8.0.19 there are no such tables
        rows = query_dicts(
            session,
            "SELECT DISTINCT r.role_name AS role FROM information_schema.applicable_roles r"
            " WHERE r.role_name NOT IN (SELECT e.role_name FROM information_schema.enabled_roles e"
            " WHERE e.role_name IS NOT NULL)",
        )
        return [row["role"] for row in rows]
    return []


def _is_partial(session: MysqlSession, schema: str, table: str) -> bool:
    """Whether there are columns that the user may not read, which the catalog does not show."""
    try:
        query_dicts(session, f"SELECT * FROM {quote_name(schema)}.{quote_name(table)} LIMIT 0")  # noqa: S608
    except pymysql.MySQLError as error:
        return error.args[0] in (ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR)
    return False


def _column(row: Mapping[str, Any], json_columns: Collection[str]) -> SourceColumn:
    data_type = row["data_type"].lower()
    is_json = row["name"] in json_columns and data_type.endswith(("char", "text"))
    return SourceColumn(
        name=row["name"],
        data_type=data_type,
        column_type="json" if is_json else row["column_type"],
        nullable=row["nullable"] == "YES",
        unsigned="unsigned" in row["column_type"].lower().split("'")[0],
        precision=_number(row["number_precision"]),
        scale=_number(row["scale"]),
        fraction=_number(row["fraction"]),
        length=_number(row["length"]),
        collation=row["collation_name"],
        auto_increment="auto_increment" in row["extra"].lower(),
        on_update="on update" in row["extra"].lower(),
    )


def _json_columns(session: MysqlSession, schema: str, table: str) -> set[str]:
    """Return the text columns that MariaDB checks to be JSON; MySQL has a type for it."""
    if not _is_mariadb(session):
        return set()
    rows = query_dicts(
        session,
        "SELECT k.check_clause AS clause FROM information_schema.check_constraints k"
        " WHERE k.constraint_schema = %s AND k.table_name = %s"
        " AND CAST(k.table_name AS BINARY) = %s",
        (schema, table, table),
    )
    return _checked_as_json(rows)


def _checked_as_json(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    found = (_JSON_CHECK.fullmatch(row["clause"]) for row in rows)
    return {match[1].replace("``", "`") for match in found if match}


def _is_mariadb(session: MysqlSession) -> bool:
    return bool(
        query_dicts(session, "SELECT 1 AS one FROM DUAL WHERE VERSION() LIKE '%%MariaDB%%'")
    )


def _of_current_rows(
    session: MysqlSession, schema: str, table: str, indexes: Mapping[str, Parts]
) -> dict[str, Parts]:
    """Remove the ROW END column, which is the same in all current rows, from the indexes."""
    rows = query_dicts(
        session,
        "SELECT c.column_name AS name FROM information_schema.columns c WHERE c.table_schema = %s"
        " AND c.table_name = %s AND CAST(c.table_name AS BINARY) = %s"
        " AND c.generation_expression = 'ROW END'",
        (schema, table, table),
    )
    ends = [row["name"] for row in rows]
    kept = {
        index: [part for part in parts if part["COLUMN_NAME"] not in ends]
        for index, parts in indexes.items()
    }
    return {index: parts for index, parts in kept.items() if parts}


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
