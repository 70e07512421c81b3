"""Edges and windows on a real server: which rows they hold, and how they are reached."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise, repeat

import pytest
from pymysql.cursors import DictCursor

from edge_tables import (
    BOUND,
    NOON,
    SHAPES,
    described,
    new_database,
    plan,
    read,
    run,
    windows_of,
)
from floodmark.config.models import ExtractionSettings
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import UsageError
from floodmark.model.bound import Bound
from floodmark.model.extraction import ChunkPlan, Edge
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.mysql.catalog import read_table
from floodmark.mysql.connection import MysqlSession, connect
from floodmark.mysql.predicates import relation
from floodmark.mysql.row_estimates import count_unusable, estimate_rows
from floodmark.mysql.window_edges import (
    cursor_edges,
    key_edges,
    limited_bound,
    read_ids,
    read_numbers,
)
from floodmark.planning.access_path import choose_route
from floodmark.planning.windows import check_tiling
from floodmark.sync.plan import TablePlan
from floodmark.sync.plan_windows import chunks_of
from pipelines import numbers


@pytest.fixture
def connection(server: PrivateMariaDB) -> Iterator[MysqlSession]:
    with connect(new_database(server)) as opened:
        run(opened, "USE edges")
        yield opened


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("route", ["cursor", "key"])
def test_windows_hold_each_row_once_and_are_ranges_over_an_index(
    connection: MysqlSession, shape: str, route: str
) -> None:
    columns, filling, names = SHAPES[shape]
    run(connection, f"CREATE TABLE t ({columns})")
    select = filling.format(time="TIMESTAMP'2025-08-04 12:00:00'")
    run(connection, f"INSERT INTO t {select} FROM {numbers(1, 10000)}")
    table, choice = described(connection, names)
    bound = BOUND if choice.cursor.kind == "timestamp" else Position(id=18446744073709551615)
    if route == "cursor":
        index = choice.index
        edges = cursor_edges(
            connection, table, choice.cursor, START, bound, index=index, stride=900
        )
    else:
        index = "PRIMARY"
        edges = key_edges(connection, table, choice.cursor, START, bound, stride=900)
    chunks = plan(table, choice, START, edges)
    windows = windows_of(chunks)
    check_tiling(START, chunks[-1].end, windows)
    held = [read(connection, table, window, "n") for window in windows]
    assert sorted(n for rows in held for n in rows) == list(range(1, 10001))
    assert [len(rows) for rows in held] == [900] * 11 + [100]
    assert [chunk.rows for chunk in chunks] == [1800] * 5 + [1000]
    for window in windows:
        sql = f"SELECT * FROM {relation(table, index)} WHERE {window.predicate}"
        assert_range(connection, sql, index, rows=900)


def assert_range(connection: MysqlSession, sql: str, index: str | None, *, rows: int) -> None:
    """Read EXPLAIN, and count what the statement really touches."""
    with connection.cursor(DictCursor) as cursor:
        cursor.execute(f"EXPLAIN FORMAT=TRADITIONAL {sql}")
        (explained,) = cursor.fetchall()
    assert explained["type"] in ("range", "ref", "const", "eq_ref"), (sql, explained)
    assert explained["key"] == index, (sql, explained)
    run(connection, "FLUSH STATUS")
    run(connection, sql)
    touched = run(connection, "SHOW STATUS LIKE 'Handler_read%'")
    assert sum(int(count) for _, count in touched) <= rows + 10, (sql, touched)


def test_the_walk_to_the_edges_reads_the_index_once(connection: MysqlSession) -> None:
    fill(connection)
    table, choice = described(connection, ("update_at", "id"))
    run(connection, "FLUSH STATUS")
    edges = list(
        cursor_edges(connection, table, choice.cursor, START, BOUND, index=choice.index, stride=300)
    )
    touched = dict(run(connection, "SHOW STATUS LIKE 'Handler_read%'"))
    assert [edge.rows for edge in edges] == [300] * 3 + [100]
    assert sum(map(int, touched.values())) <= 1000 + 100 + 40
    assert int(touched["Handler_read_rnd_next"]) == 0
    expected = estimate_rows(
        connection, table, choice.cursor, edges[0].end, edges[1].end, index="by_time"
    )
    assert 150 <= expected <= 600


def fill(connection: MysqlSession, rows: int = 1000, *, key: str = "PRIMARY KEY") -> None:
    run(
        connection,
        f"CREATE TABLE t (id INT NOT NULL {key}, update_at DATETIME(6), INDEX by_time (update_at))",
    )
    run(
        connection,
        "INSERT INTO t SELECT seq, '2025-08-04 12:00:00' + INTERVAL seq DIV 100 SECOND"
        f" FROM {numbers(1, rows)}",
    )


@pytest.mark.parametrize("limit", [1, 50, 99, 100, 101, 777, 1000, 5000])
def test_a_limit_is_exact_among_ties(connection: MysqlSession, limit: int) -> None:
    fill(connection)
    table, choice = described(connection, ("update_at", "id"))
    edges = list(
        cursor_edges(
            connection,
            table,
            choice.cursor,
            START,
            BOUND,
            index="by_time",
            stride=70,
            limit=limit,
        )
    )
    chunks = plan(table, choice, START, iter(edges))
    held = [n for window in windows_of(chunks) for n in read(connection, table, window, "id")]
    assert sorted(held) == list(range(1, min(limit, 1000) + 1))
    walked = list(key_edges(connection, table, choice.cursor, START, BOUND, stride=70, limit=limit))
    assert sum(edge.rows for edge in walked) == min(limit, 1000)
    assert (walked[-1].end == BOUND) == (limit > 1000)


def test_without_a_key_a_limit_ends_before_the_ties(connection: MysqlSession) -> None:
    fill(connection, key="")
    table, choice = described(connection, ("update_at",))
    assert not choice.cursor.unique

    def edges(limit: int | None, stride: int = 70) -> list[Edge]:
        return list(
            cursor_edges(
                connection,
                table,
                choice.cursor,
                START,
                BOUND,
                index="by_time",
                stride=stride,
                limit=limit,
            )
        )

    assert [edge.rows for edge in edges(None)] == [99] + [100] * 9 + [1]
    assert sum(edge.rows for edge in edges(250)) == 199
    assert sum(edge.rows for edge in edges(299)) == 299
    with pytest.raises(UsageError, match="more than 50 rows"):
        edges(50)
    for before, after in pairwise(edges(None)):
        assert before.end.id is None
        assert before.end.compare(after.end) == -1


def test_without_an_index_the_primary_key_is_split_and_filtered(connection: MysqlSession) -> None:
    fill(connection)
    run(connection, "ALTER TABLE t DROP INDEX by_time")
    table, choice = described(connection, ("update_at", "id"))
    assert choice.index is None
    start = Position(NOON + timedelta(seconds=3))  # behind rows 1 to 399
    bound = limited_bound(connection, table, choice.cursor, start, BOUND, limit=250)
    assert bound == Position(NOON + timedelta(seconds=6), 649)
    chunks = plan(
        table,
        choice,
        start,
        key_edges(connection, table, choice.cursor, start, bound, stride=90),
    )
    windows = windows_of(chunks)
    assert chunks[-1].end == bound
    held = [n for window in windows for n in read(connection, table, window, "id")]
    assert sorted(held) == list(range(400, 650))
    for window in windows[1:-1]:
        sql = f"SELECT * FROM {relation(table, 'PRIMARY')} WHERE {window.predicate}"
        assert_range(connection, sql, "PRIMARY", rows=90)
    assert not list(key_edges(connection, table, choice.cursor, BOUND, BOUND, stride=90))


def test_interrupted_key_scan_resumes_and_hands_over_to_the_cursor(
    connection: MysqlSession,
) -> None:
    fill(connection)
    table, choice = described(connection, ("update_at", "id"))
    bound = Position(NOON + timedelta(seconds=8))  # 101 rows lie above it
    held: list[int] = []

    def read_chunks(start: Position, most: int) -> Position:
        edges = key_edges(connection, table, choice.cursor, start, bound, stride=100)
        for chunk in plan(table, choice, start, edges)[:most]:
            for window in chunk.windows:
                held.extend(read(connection, table, window, "id"))
            start = chunk.end
        return start

    position = read_chunks(START, 2)
    assert position.walk
    assert (position.timestamp, position.walk.key, position.walk.bound) == (None, 400, bound)
    run(connection, "UPDATE t SET update_at = '2025-08-04 13:00:00' WHERE id IN (10, 500)")
    run(connection, "INSERT INTO t VALUES (-1, '2025-08-04 13:00:01')")
    position = read_chunks(position, 100)
    assert position == bound
    assert sorted(held) == [n for n in range(1, 900) if n != 500]
    edges = cursor_edges(
        connection, table, choice.cursor, position, BOUND, index="by_time", stride=100
    )
    chunks = plan(table, choice, position, edges)
    later = [n for window in windows_of(chunks) for n in read(connection, table, window, "id")]
    assert sorted(later) == [-1, 10, 500, *range(900, 1001)]


@pytest.mark.parametrize(
    ("columns", "key", "values", "found"),
    [
        ("id BIGINT", "id", "(-3), (9)", range(-3, 10)),
        ("id BIGINT UNSIGNED", "id", "(1), (18446744073709551615)", range(1, 2**64)),
        ("id DECIMAL(30, 0)", "id", "(5)", range(5, 6)),
        ("id INT", "id", "", None),
        ("id VARCHAR(9)", "id", "('1')", None),
        ("id DECIMAL(9, 2)", "id", "(1.5)", None),
        ("a INT, b INT", "a, b", "(1, 2)", None),
    ],
)
def test_the_numbers_of_a_key(
    connection: MysqlSession, columns: str, key: str, values: str, found: range | None
) -> None:
    run(connection, f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}))")
    if values:
        run(connection, f"INSERT INTO t VALUES {values}")
    table = read_table(connection, TableName("S", "edges", "t"))
    assert read_numbers(connection, table) == found


def test_rows_without_a_usable_cursor_are_counted_and_not_read(connection: MysqlSession) -> None:
    fill(connection, 10)
    run(connection, "INSERT INTO t VALUES (11, NULL), (12, NULL), (13, '0000-00-00')")
    table, choice = described(connection, ("update_at", "id"))
    assert count_unusable(connection, table, choice.cursor) == 3
    edges = list(
        cursor_edges(connection, table, choice.cursor, START, BOUND, index="by_time", stride=100)
    )
    assert [edge.rows for edge in edges] == [10]
    (window,) = windows_of(plan(table, choice, START, iter(edges)))
    assert sorted(read(connection, table, window, "id")) == list(range(1, 11))


def test_a_window_moves_on_from_a_cursor_that_is_no_moment(connection: MysqlSession) -> None:
    fill(connection, 10)
    run(connection, "INSERT INTO t VALUES (11, '2025-00-15')")
    table, choice = described(connection, ("update_at", "id"))
    edges = cursor_edges(connection, table, choice.cursor, START, BOUND, index="by_time", stride=1)
    assert [edge.rows for edge in edges] == [2] + 9 * [1]


def test_dense_ids_are_divided_without_reading_them(connection: MysqlSession) -> None:
    run(connection, f"CREATE TABLE t (id {ID})")
    run(connection, f"INSERT INTO t SELECT seq, 'x' FROM {numbers(1, 10000)}")
    run(connection, "DELETE FROM t WHERE id IN (1, 900, 1800) OR id BETWEEN 4000 AND 5000")
    planned = id_plan(connection, Position(id=10000))
    run(connection, "FLUSH STATUS")
    chunks = id_chunks(connection, planned)
    touched = run(connection, "SHOW STATUS LIKE 'Handler_read%'")
    assert sum(int(count) for _, count in touched) <= 10, touched
    windows = windows_of(chunks)
    check_tiling(START, Position(id=10000), windows)
    held = [n for window in windows for n in read(connection, planned.source, window, "id")]
    assert sorted(held) == [row[0] for row in run(connection, "SELECT id FROM t ORDER BY id")]
    assert len(windows) == 10
    for window in windows:
        sql = f"SELECT * FROM {relation(planned.source, 'PRIMARY')} WHERE {window.predicate}"
        assert_range(connection, sql, "PRIMARY", rows=1000)


def test_sparse_ids_and_limits_are_divided_by_rows(connection: MysqlSession) -> None:
    run(connection, f"CREATE TABLE t (id {ID})")
    run(connection, f"INSERT INTO t SELECT seq * 3, 'x' FROM {numbers(1, 3000)}")
    sparse = id_plan(connection, Position(id=9000))
    assert [chunk.rows for chunk in id_chunks(connection, sparse)] == [2000, 1000]
    assert [chunk.rows for chunk in id_chunks(connection, sparse, limit=500)] == [500]
    beyond = id_plan(connection, Position(id=20000), start=Position(id=9000))
    assert not id_chunks(connection, beyond)


def test_ids_end_at_the_last_row(connection: MysqlSession) -> None:
    """The position is that of a row, even if the bound's row is gone."""
    run(connection, f"CREATE TABLE t (id {ID})")
    run(connection, f"INSERT INTO t SELECT seq, 'x' FROM {numbers(1, 100)}")
    planned = id_plan(connection, Position(id=100), start=Position(id=10))
    run(connection, "DELETE FROM t WHERE id > 97")
    (chunk,) = id_chunks(connection, planned)
    assert (chunk.start, chunk.end) == (Position(id=10), Position(id=97))
    cursor = planned.choice.cursor
    assert read_ids(connection, planned.source, cursor, START, Position(id=5)) == range(1, 6)
    assert read_ids(connection, planned.source, cursor, Position(id=97), Position(id=100)) is None


ID = "BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, pad CHAR(100)"


def id_plan(connection: MysqlSession, bound: Position, start: Position = START) -> TablePlan:
    table, choice = described(connection, ("id",))
    assert choice.index is not None
    return TablePlan(
        source=table,
        choice=choice,
        columns=(),
        route=choose_route(table, choice.cursor, start),
        start=start,
        bound=Bound(position=bound),
        expected_rows=estimate_rows(
            connection, table, choice.cursor, start, bound, index=choice.index
        ),
        warnings=(),
    )


def id_chunks(
    connection: MysqlSession, planned: TablePlan, limit: int | None = None
) -> list[ChunkPlan]:
    settings = ExtractionSettings(window_rows=1000)
    return list(chunks_of(connection, planned, settings, windows_per_chunk=repeat(2), limit=limit))
