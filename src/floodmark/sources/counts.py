"""Numbers that a plan is made from."""

import pymysql

from floodmark.model.cursor import Cursor
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.sources.connection import MysqlSession
from floodmark.sources.statements import cursor_predicate, relation, unusable_predicate
from floodmark.sources.strides import query


def count_unusable(session: MysqlSession, table: SourceTable, cursor: Cursor) -> int:
    """How many rows no position reaches, because their cursor is NULL or a zero date."""
    where = unusable_predicate(table, cursor)
    if where is None:
        return 0
    found = query(session, f"SELECT COUNT(*) FROM {relation(table)} WHERE {where}")  # noqa: S608
    return int(found[0][0])


def has_rows(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position,
    *,
    index: str | None,
) -> bool:
    """Whether there is any row in `(start, bound]`."""
    where = cursor_predicate(table, cursor, start, bound)
    return bool(query(session, f"SELECT 1 FROM {relation(table, index)} WHERE {where} LIMIT 1"))  # noqa: S608


def estimate_rows(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position,
    *,
    index: str,
) -> int:
    """How many rows the optimizer expects in `(start, bound]`, without reading them.

    MySQL prints a tree unless asked for a table, and under FORCE INDEX expects a plain SELECT to
    find one row; a COUNT is estimated properly.
    """
    where = cursor_predicate(table, cursor, start, bound)
    with session.cursor(pymysql.cursors.DictCursor) as reader:
        reader.execute(
            "EXPLAIN FORMAT=TRADITIONAL"
            f" SELECT COUNT(*) FROM {relation(table, index)} WHERE {where}"  # noqa: S608
        )
        row = reader.fetchone()
    return int(row["rows"] or 0) if row else 0
