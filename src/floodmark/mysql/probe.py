"""Look for rows after a position with one statement."""

from datetime import UTC, datetime
from typing import Any

import pymysql
from msgspec import Struct
from pymysql.constants import FIELD_TYPE

from floodmark.model.cursor import Cursor, is_time
from floodmark.model.position import START, Position
from floodmark.model.schema import SourceTable
from floodmark.mysql.connection import MysqlSession, repeatable
from floodmark.mysql.predicates import (
    cursor_predicate,
    relation,
    unusable_predicate,
)
from floodmark.mysql.types import quote_name

_TYPES = {"timestamp": FIELD_TYPE.TIMESTAMP, "datetime": FIELD_TYPE.DATETIME}


class Probe(Struct, frozen=True, kw_only=True):
    """What one statement found.

    now        the server's clock
    above      whether any row is after the position, also one in the future; without a position,
               whether there is any row
    at         whether the row at an id position is still there; True for other positions
    unusable   the number of rows that no position reaches
    """

    now: datetime
    above: bool
    at: bool
    unusable: int


def probe(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    position: Position,
    *,
    index: str | None,
) -> Probe | None:
    """Look for rows after a position; None if the table is not the one that was described.

    The statement fails if the cursor's columns or the index are gone, or if the user may not read
    all columns. If the time column has another type than described, the position may mean another
    time there.
    """
    guard = session.server.guard if session.server else "TRUE"
    anything = position.is_start
    above = "TRUE" if anything else cursor_predicate(table, cursor, position, START)
    at = "TRUE"
    if isinstance(position.id, int) and cursor.kind == "id":
        name = quote_name(cursor.key[0])
        at = f"EXISTS (SELECT 1 FROM {relation(table)} WHERE {name} = {position.id})"  # noqa: S608
    where, unusable = unusable_predicate(table, cursor), "0"
    if where is not None:
        unusable = f"(SELECT COUNT(*) FROM {relation(table)} WHERE {where})"  # noqa: S608
    time = "NULL"
    if cursor.timestamp is not None:
        time = f"(SELECT {quote_name(cursor.timestamp)} FROM {relation(table)} LIMIT 0)"  # noqa: S608
    sql = (
        f"SELECT UTC_TIMESTAMP(6), {time},"  # noqa: S608
        f" EXISTS (SELECT 1 FROM {relation(table, None if anything else index)} WHERE {above}),"
        f" {at}, {unusable},"
        f" (SELECT COUNT(*) FROM (SELECT * FROM {relation(table)} LIMIT 0) AS every_column)"
        f" FROM DUAL WHERE {guard}"
    )

    def run() -> Probe | None:
        with session.cursor(pymysql.cursors.Cursor) as reader:
            reader.execute(sql)
            assert reader.description is not None
            kind: Any = reader.description[1][1]
            ((now, _, found, there, count, _),) = reader.fetchall()
        if cursor.timestamp is not None:
            column = table.column(cursor.timestamp)
            if not is_time(column) or kind != _TYPES[column.data_type]:
                return None
        return Probe(
            now=now.replace(tzinfo=UTC), above=bool(found), at=bool(there), unusable=int(count)
        )

    return repeatable(session, run)
