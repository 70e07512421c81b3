"""What differs between MySQL and MariaDB, or is set otherwise on a server: a sync of each."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest

from floodmark.config.models import MysqlConnection
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.model.position import Position
from floodmark.planning.cursor import choose_cursor
from floodmark.planning.route import choose_route
from floodmark.sources.catalog import read_table
from floodmark.sources.connection import connect
from floodmark.sources.counts import estimate_rows
from pipelines import Ended, Pipeline, ask_once

New = Callable[..., Pipeline]


def load(pipeline: Pipeline, *arguments: str) -> Ended:
    """Run both stages, which must succeed."""
    ended = pipeline.call("sync", "-p", "main", "--json", *arguments)
    assert ended.code == 0, ended
    return ended


def target(pipeline: Pipeline, sql: str = "SELECT * FROM t ORDER BY ALL") -> list[tuple[Any, ...]]:
    """Ask the warehouse."""
    with duckdb.connect(str(pipeline.folder / "warehouse.duckdb"), read_only=True) as warehouse:
        return warehouse.execute(sql).fetchall()


@pytest.mark.parametrize("cursor", ["[update_at]", "none"])
@pytest.mark.parametrize(
    "key",
    ["id DESC", "a, id DESC", "name(10)", "id", "id, name(10)"],
)
def test_rows_of_any_primary_key_are_replaced(
    pipeline: New, server: PrivateMariaDB, key: str, cursor: str
) -> None:
    it = pipeline({"t": f"{{cursor: {cursor}}}"}, server=server)
    ask_once(
        it,
        "CREATE TABLE t (id INT NOT NULL, a INT NOT NULL, name VARCHAR(50) NOT NULL, v INT,"
        f" update_at DATETIME NOT NULL, PRIMARY KEY ({key}), KEY k (update_at))",
    )
    rows = [f"({n}, {n % 2}, '{n} name', 0, '2025-06-0{1 + n % 3}')" for n in range(9)]
    ask_once(it, f"INSERT INTO t VALUES {', '.join(rows)}")
    load(it)
    assert target(it, "SELECT id, v FROM t ORDER BY id") == [(n, 0) for n in range(9)]
    ask_once(it, "UPDATE t SET v = 1, update_at = '2025-07-01' WHERE id IN (3, 4)")
    load(it, "--verify-data")
    assert target(it, "SELECT id, v FROM t ORDER BY id") == [
        (n, int(n in (3, 4))) for n in range(9)
    ]


def connection_to(server: PrivateMariaDB) -> MysqlConnection:
    return MysqlConnection(
        host=server.host, port=server.port, user=server.user, password=Secret(server.password)
    )


def fill(server: PrivateMariaDB, pipeline: Pipeline, rows: int) -> None:
    """Make a table of so many rows, a second apart, and have the server count them."""
    ask_once(pipeline, "DROP TABLE IF EXISTS t")
    ask_once(
        pipeline,
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL, KEY k (update_at))",
    )
    digits = "(SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION"
    digits += " SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"
    number = "a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d"
    ask_once(
        pipeline,
        f"INSERT INTO t SELECT {number}, '2025-06-01' + INTERVAL {number} SECOND"
        f" FROM {', '.join(f'{digits} {name}' for name in 'abcde')} WHERE {number} < {rows}",
    )
    ask_once(pipeline, "ANALYZE TABLE t")


@pytest.mark.parametrize("rows", [20_206, 20_207])
def test_a_first_load_walks_the_key_whatever_the_number_of_rows(
    pipeline: New, server: PrivateMariaDB, rows: int
) -> None:
    it = pipeline({"t": "{}"}, server=server)
    fill(server, it, rows)

    def route(start: datetime) -> tuple[str, int]:
        with connect(connection_to(server)) as session:
            table = read_table(session, it.table())
            choice = choose_cursor(table, ("update_at",))
            assert choice.index
            estimate = estimate_rows(
                session,
                table,
                choice.cursor,
                Position(start),
                Position(datetime(2026, 1, 1, tzinfo=UTC)),
                index=choice.index,
            )
        found = choose_route(
            table, choice.cursor, Position(start), rows_in_range=estimate, large=10_000
        )
        return found.by, estimate

    first = datetime(2025, 6, 1, tzinfo=UTC)
    by, estimate = route(first)
    assert by == "key"
    assert estimate > 0.6 * rows  # a few pages are sampled, so it is rough
    assert route(first + timedelta(seconds=rows * 0.1))[0] == "key"
    by, estimate = route(first + timedelta(seconds=rows * 0.9))
    assert by == "cursor"
    assert estimate < 0.4 * rows
