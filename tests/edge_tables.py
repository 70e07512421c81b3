"""Tables with cursors and keys of many kinds, and what windows over them hold."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

from floodmark.config.models import MysqlConnection
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.model.cursor import CursorChoice
from floodmark.model.extraction import ChunkPlan, Edge, Window
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName
from floodmark.mysql.catalog import read_table
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.predicates import relation, window_predicate
from floodmark.planning.cursor import choose_cursor
from floodmark.planning.windows import plan_chunks

NOON = datetime(2025, 8, 4, 12, tzinfo=UTC)
BOUND = Position(datetime(2025, 8, 5, tzinfo=UTC))


def new_database(server: PrivateMariaDB) -> MysqlConnection:
    """Create an empty database `edges`, and return how to connect."""
    server.execute("DROP DATABASE IF EXISTS edges")
    server.execute("CREATE DATABASE edges CHARACTER SET utf8mb4")
    return MysqlConnection(
        host=server.host, port=server.port, user=server.user, password=Secret(server.password)
    )


def run(connection: MysqlSession, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement, and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def described(
    connection: MysqlSession, cursor: tuple[str, ...]
) -> tuple[SourceTable, CursorChoice]:
    """Describe the table `t` and its cursor, with fresh statistics."""
    run(connection, "ANALYZE TABLE t")
    table = read_table(connection, TableName("S", "edges", "t"))
    return table, choose_cursor(table, cursor)


def plan(
    table: SourceTable, choice: CursorChoice, start: Position, edges: Iterator[Edge]
) -> list[ChunkPlan]:
    """Plan chunks of two windows."""
    return list(
        plan_chunks(
            start,
            edges,
            most_rows=1000,
            windows_per_chunk=repeat(2),
            predicate=lambda begin, end: window_predicate(table, choice.cursor, begin, end),
        )
    )


def windows_of(chunks: list[ChunkPlan]) -> list[Window]:
    """Return the windows of all chunks."""
    return [window for chunk in chunks for window in chunk.windows]


def read(connection: MysqlSession, table: SourceTable, window: Window, column: str) -> list[Any]:
    """Return a column of the rows that a window selects."""
    rows = run(connection, f"SELECT {column} FROM {relation(table)} WHERE {window.predicate}")
    return [row[0] for row in rows]


SHAPES = {
    "time and id": (
        (
            "id BIGINT AUTO_INCREMENT PRIMARY KEY, n INT, update_at DATETIME(6) NOT NULL,"
            " pad CHAR(100) DEFAULT 'x', INDEX by_time (update_at)"
        ),
        "SELECT seq, seq, {time} + INTERVAL seq DIV 700 MICROSECOND, 'x'",
        ("update_at", "id"),
    ),
    "time and id, all tied": (
        (
            "id BIGINT AUTO_INCREMENT PRIMARY KEY, n INT, update_at DATETIME NOT NULL,"
            " pad CHAR(100) DEFAULT 'x', INDEX by_time (update_at, id)"
        ),
        "SELECT seq, seq, {time}, 'x'",
        ("update_at", "id"),
    ),
    "TIMESTAMP": (
        (
            "id BIGINT AUTO_INCREMENT PRIMARY KEY, n INT, update_at TIMESTAMP(3) NOT NULL,"
            " pad CHAR(100) DEFAULT 'x', INDEX by_time (update_at, id)"
        ),
        "SELECT seq, seq, {time} + INTERVAL seq DIV 700 SECOND, 'x'",
        ("update_at", "id"),
    ),
    "id": (
        "id BIGINT UNSIGNED PRIMARY KEY, n INT, update_at DATETIME, pad CHAR(100)",
        "SELECT 18446744073709541615 + seq, seq, NULL, 'x'",
        ("id",),
    ),
    "composite key": (
        (
            "shop VARCHAR(20), id INT, n INT, update_at DATETIME NOT NULL, pad CHAR(100),"
            " PRIMARY KEY (shop, id), INDEX by_time (update_at)"
        ),
        "SELECT CONCAT('shop ', seq % 3), seq, seq, {time} + INTERVAL seq DIV 3000 SECOND, 'x'",
        ("update_at",),
    ),
    "text key": (
        (
            "code VARCHAR(40) PRIMARY KEY, n INT, update_at DATETIME NOT NULL, pad CHAR(100),"
            " INDEX by_time (update_at)"
        ),
        (
            "SELECT CONCAT(ELT(1 + seq % 4, 'it''s ', 'a\\\\', '雨', '😀 '), seq), seq,"
            " {time} + INTERVAL seq DIV 3000 SECOND, 'x'"
        ),
        ("update_at",),
    ),
    "latin1 text key": (
        (
            "code VARCHAR(40) CHARACTER SET latin1 PRIMARY KEY, n INT, update_at DATETIME NOT NULL,"
            " pad CHAR(100), INDEX by_time (update_at)"
        ),
        "SELECT CONCAT('é', seq), seq, {time} + INTERVAL seq DIV 3000 SECOND, 'x'",
        ("update_at",),
    ),
    "binary key": (
        (
            "uid BINARY(16) PRIMARY KEY, n INT, update_at DATETIME NOT NULL, pad CHAR(100),"
            " INDEX by_time (update_at)"
        ),
        "SELECT UNHEX(LEFT(SHA2(seq, 256), 32)), seq, {time} + INTERVAL seq DIV 3000 SECOND, 'x'",
        ("update_at",),
    ),
    "whole decimal key": (
        "num DECIMAL(20,0) PRIMARY KEY, n INT, update_at DATETIME, pad CHAR(100)",
        "SELECT 10000000000000000000 + seq, seq, NULL, 'x'",
        ("num",),
    ),
    "decimal and date key": (
        (
            "day DATE, price DECIMAL(30,10), n INT, update_at DATETIME NOT NULL, pad CHAR(100),"
            " PRIMARY KEY (day, price), INDEX by_time (update_at)"
        ),
        (
            "SELECT '2025-01-01' + INTERVAL seq % 5 DAY, seq / 7, seq,"
            " {time} + INTERVAL seq DIV 3000 SECOND, 'x'"
        ),
        ("update_at",),
    ),
}
