"""Edges that several connections find: which rows windows hold, and what ends the search."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise, repeat
from threading import active_count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_tables import (
    BOUND,
    SHAPES,
    described,
    new_database,
    plan,
    read,
    run,
    windows_of,
)
from floodmark.config.models import MysqlConnection
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import FloodmarkError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import Edge
from floodmark.model.position import START, Position
from floodmark.model.schema import SourceTable
from floodmark.model.server import Server
from floodmark.mysql.connection import MysqlSession, Sessions, connect
from floodmark.mysql.index_pieces import pieces
from floodmark.mysql.index_scan import Scan, Walk, count, strides
from floodmark.mysql.predicates import (
    cursor_columns,
    cursor_predicate,
    key_columns,
    relation,
)
from floodmark.mysql.window_edges import cursor_edges, key_edges
from floodmark.planning.windows import check_tiling
from floodmark.sync.parallel_strides import parallel_strides
from floodmark.sync.source import Source
from pipelines import numbers

_LAST_ID = Position(id=18446744073709551615)


@pytest.fixture
def settings_of(server: PrivateMariaDB) -> MysqlConnection:
    return new_database(server)


@pytest.fixture
def source(settings_of: MysqlConnection) -> Iterator[Source]:
    with Source(settings_of) as opened:
        yield opened


def ours(source: Source) -> int:
    """How many sessions the source has open."""
    return source.limit - source.readers_at_once(None)


@pytest.fixture
def connection(source: Source) -> Iterator[MysqlSession]:
    with source.session() as session:
        run(session, "USE edges")
        yield session


def bound_of(cursor: Cursor) -> Position:
    return BOUND if cursor.kind == "timestamp" else _LAST_ID


def touched(connection: MysqlSession) -> int:
    """How many rows and index entries were read by all sessions."""
    found = run(connection, "SHOW GLOBAL STATUS LIKE 'Handler_read_%'")
    return sum(int(value) for _, value in found)


def edges_of(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    index: str | None,
    stride: int,
    walk: Walk,
) -> Iterator[Edge]:
    """Edges along the cursor, or along the key without an index."""
    bound = bound_of(cursor)
    if index is None:
        return key_edges(session, table, cursor, START, bound, stride=stride, walk=walk)
    return cursor_edges(session, table, cursor, START, bound, index=index, stride=stride, walk=walk)


def scan_of(table: SourceTable, cursor: Cursor, index: str | None) -> Scan:
    """Scan along the cursor, or along the key without an index."""
    return Scan(
        relation=relation(table, index or "PRIMARY"),
        columns=cursor_columns(table, cursor) if index else key_columns(table),
        where=cursor_predicate(table, cursor, START, bound_of(cursor)),
        unique=True,
        by_time=index is not None and cursor.kind == "timestamp",
        filtered=index is None,
    )


MORE_SHAPES = {
    **SHAPES,
    "UUID as text": (
        (
            "code CHAR(36) PRIMARY KEY, n INT, update_at DATETIME NOT NULL, pad CHAR(100),"
            " INDEX by_time (update_at)"
        ),
        (
            "SELECT INSERT(INSERT(LEFT(SHA2(seq, 256), 34), 9, 0, '-'), 14, 0, '-'), seq,"
            " {time} + INTERVAL seq DIV 3000 SECOND, 'x'"
        ),
        ("update_at",),
    ),
    "hash in upper and lower case": (
        (
            "code VARCHAR(70) COLLATE utf8mb4_bin PRIMARY KEY, n INT, update_at DATETIME NOT NULL,"
            " pad CHAR(100), INDEX by_time (update_at)"
        ),
        (
            "SELECT IF(seq % 3, SHA2(seq, 256), UPPER(SHA2(seq, 256))), seq,"
            " {time} + INTERVAL seq DIV 3000 SECOND, 'x'"
        ),
        ("update_at",),
    ),
    "accents and cases are equal": (
        (
            "code VARCHAR(40) COLLATE utf8mb4_unicode_ci PRIMARY KEY, n INT,"
            " update_at DATETIME NOT NULL, pad CHAR(100), INDEX by_time (update_at)"
        ),
        (
            "SELECT CONCAT(ELT(1 + seq % 6, 'É', 'e', 'Z', 'ß', 'ä', '_'), seq DIV 9, '-', seq),"
            " seq, {time} + INTERVAL seq DIV 3000 SECOND, 'x'"
        ),
        ("update_at",),
    ),
    "negative and sparse": (
        (
            "id BIGINT PRIMARY KEY, n INT, update_at DATETIME NOT NULL, pad CHAR(100),"
            " INDEX by_time (update_at, id)"
        ),
        (
            "SELECT (seq - 5000) * (seq - 5000) * (seq - 5000) * 1000, seq,"
            " {time} + INTERVAL POW(seq, 1.1) SECOND, 'x'"
        ),
        ("update_at", "id"),
    ),
}


@pytest.mark.parametrize("shape", MORE_SHAPES)
@pytest.mark.parametrize("route", ["cursor", "key"])
def test_windows_hold_each_row_once(
    source: Source, connection: MysqlSession, shape: str, route: str
) -> None:
    columns, filling, names = MORE_SHAPES[shape]
    run(connection, f"CREATE TABLE t ({columns})")
    select = filling.format(time="TIMESTAMP'2025-08-04 12:00:00'")
    run(connection, f"INSERT INTO t {select} FROM {numbers(1, 10000)}")
    table, choice = described(connection, names)
    index = choice.index if route == "cursor" else None
    before = touched(connection)
    walk = partial(parallel_strides, source, 3)
    found = list(edges_of(connection, table, choice.cursor, index, 100, walk))
    # Of each piece, what is left after its last full stride is read twice.
    assert touched(connection) - before <= 12_500
    chunks = plan(table, choice, START, iter(found))
    windows = windows_of(chunks)
    check_tiling(START, chunks[-1].end, windows)
    held = [read(connection, table, window, "n") for window in windows]
    assert sorted(n for rows in held for n in rows) == list(range(1, 10001))
    assert [len(rows) for rows in held] == [edge.rows for edge in found]
    assert max(map(len, held)) <= 100
    assert all(len(one) + len(other) > 100 for one, other in pairwise(held))
    assert len(held) <= 130

    scan = scan_of(table, choice.cursor, index)
    ends = list(pieces(connection, scan, (), repeat(1000)))
    sizes = [count(connection, scan, *ends) for ends in pairwise([(), *ends, ()])]
    assert max(sizes) <= 2500, sizes


ROWS = st.lists(
    st.tuples(st.integers(0, 10**12), st.integers(1, 150)), min_size=1, max_size=25
)  # the microseconds after the time before, and how many rows have it


@given(groups=ROWS, unique=st.booleans(), stride=st.integers(3, 60), many=st.integers(2, 4))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_skewed_times_and_ties(
    source: Source,
    connection: MysqlSession,
    groups: list[tuple[int, int]],
    unique: bool,
    stride: int,
    many: int,
) -> None:
    key = "PRIMARY KEY" if unique else ""
    run(connection, "DROP TABLE IF EXISTS t")
    columns = f"id INT NOT NULL {key}, update_at DATETIME(6) NOT NULL, KEY k (update_at)"
    run(connection, f"CREATE TABLE t ({columns})")
    rows, micros = [], 0
    for gap, ties in groups:
        micros += gap
        rows += [micros] * ties
    values = ", ".join(
        f"({-n}, '2024-08-04' + INTERVAL {micros} MICROSECOND)" for n, micros in enumerate(rows)
    )
    run(connection, f"INSERT INTO t VALUES {values}")
    table, choice = described(connection, ("update_at", "id") if unique else ("update_at",))
    walk = partial(parallel_strides, source, many)
    found = list(edges_of(connection, table, choice.cursor, "k", stride, walk))
    windows = windows_of(plan(table, choice, START, iter(found)))
    held = [read(connection, table, window, "id") for window in windows]
    assert sorted(n for one in held for n in one) == sorted(-n for n in range(len(rows)))
    assert [len(one) for one in held] == [edge.rows for edge in found]
    assert all(len(one) + len(other) > stride for one, other in pairwise(held))
    most = stride if unique else stride - 1 + max(Counter(rows).values())
    assert max(map(len, held)) <= most


def test_one_time_for_all_rows_is_divided_along_the_id(
    source: Source, connection: MysqlSession
) -> None:
    columns = "id BIGINT PRIMARY KEY, update_at DATETIME NOT NULL, KEY k (update_at)"
    run(connection, f"CREATE TABLE t ({columns})")
    run(connection, f"INSERT INTO t SELECT seq * seq, '2025-08-04' FROM {numbers(1, 20000)}")
    table, choice = described(connection, ("update_at", "id"))
    scan = scan_of(table, choice.cursor, "k")
    ends = list(pieces(connection, scan, (), repeat(2000)))
    sizes = [count(connection, scan, *ends) for ends in pairwise([(), *ends, ()])]
    assert sum(sizes) == 20000
    assert len(sizes) >= 10
    assert max(sizes) <= 4000


def test_invalid_times_stay_with_the_next_valid_one(
    source: Source, connection: MysqlSession
) -> None:
    run(connection, "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME, KEY k (update_at))")
    run(connection, "SET sql_mode = 'ALLOW_INVALID_DATES'")
    days = "CONCAT('2025-', LPAD(1 + seq DIV 500, 2, '0'), '-', LPAD(seq * (seq % 2) % 32, 2, '0'))"
    run(connection, f"INSERT INTO t SELECT seq, {days} FROM {numbers(1, 3000)}")
    run(connection, f"INSERT INTO t SELECT seq, NULL FROM {numbers(4001, 4500)}")
    run(connection, f"INSERT INTO t SELECT seq, '0000-00-00' FROM {numbers(5001, 5500)}")
    run(connection, "SET sql_mode = ''")
    table, choice = described(connection, ("update_at", "id"))
    walk = partial(parallel_strides, source, 3)
    found = list(edges_of(connection, table, choice.cursor, "k", 20, walk))
    alone = list(edges_of(connection, table, choice.cursor, "k", 20, strides))
    assert found[-1].end == alone[-1].end  # later rows wait for a valid time
    scan = scan_of(table, choice.cursor, "k")
    ends = list(pieces(connection, scan, (), repeat(300)))
    assert len(ends) >= 5
    assert all(map(scan.ends_at, ends))
    windows = windows_of(plan(table, choice, START, iter(found)))
    held = [read(connection, table, window, "id") for window in windows]
    june_31st = {n for n in range(2501, 3000, 2) if n % 32 == 31}
    assert {n for rows in held for n in rows} == set(range(1, 3000)) - june_31st
    assert [len(rows) for rows in held] == [edge.rows for edge in found]


def fill(connection: MysqlSession, rows: int = 50_000) -> tuple[SourceTable, Cursor]:
    run(connection, "CREATE TABLE t (id CHAR(64) PRIMARY KEY, n INT)")
    run(connection, f"INSERT INTO t SELECT SHA2(seq, 256), seq FROM {numbers(1, rows)}")
    table, choice = described(connection, ())
    return table, choice.cursor


def test_a_key_that_cannot_be_divided_is_scanned_as_by_one_connection(
    source: Source, connection: MysqlSession
) -> None:
    run(connection, "CREATE TABLE t (y YEAR, id INT, n INT, PRIMARY KEY (y, id))")
    run(connection, f"INSERT INTO t SELECT 1950 + seq % 90, seq, seq FROM {numbers(1, 5000)}")
    table, choice = described(connection, ())
    scans = (strides, partial(parallel_strides, source, 3))
    alone, found = (
        list(edges_of(connection, table, choice.cursor, None, 100, walk)) for walk in scans
    )
    assert found == alone
    assert len(found) == 50


def test_few_rows_of_a_filtered_scan_are_few_windows(
    source: Source, connection: MysqlSession
) -> None:
    run(connection, "CREATE TABLE t (code CHAR(64) PRIMARY KEY, n INT, update_at DATETIME)")
    seconds = "'2025-08-04' + INTERVAL seq SECOND"
    run(connection, f"INSERT INTO t SELECT SHA2(seq, 256), seq, {seconds} FROM {numbers(1, 10000)}")
    table, choice = described(connection, ("update_at",))
    start = Position(datetime(2025, 8, 4, 2, 43, 20, tzinfo=UTC))
    walk = partial(parallel_strides, source, 3)
    found = list(key_edges(connection, table, choice.cursor, start, BOUND, stride=150, walk=walk))
    windows = windows_of(plan(table, choice, start, iter(found)))
    held = [read(connection, table, window, "n") for window in windows]
    assert sorted(n for rows in held for n in rows) == list(range(9801, 10001))
    assert [len(rows) for rows in held] == [edge.rows for edge in found]
    assert all(len(one) + len(other) > 150 for one, other in pairwise(held))


def breaking(opened: list[MysqlSession]) -> Any:
    """Connect, but let the server end all sessions but the first before they are used."""

    @contextmanager
    def connecting(
        connection: MysqlConnection, *, server: Server | None = None
    ) -> Iterator[MysqlSession]:
        with connect(connection, server=server) as session:
            opened.append(session)
            if len(opened) > 1:
                with connect(connection) as other:
                    run(other, f"KILL {run(session, 'SELECT CONNECTION_ID()')[0][0]}")
            yield session

    return connecting


def test_lost_connections_are_opened_again(settings_of: MysqlConnection) -> None:
    opened: list[MysqlSession] = []
    threads = active_count()
    with Source(settings_of, connect=breaking(opened)) as source, source.session() as session:
        run(session, "USE edges")
        table, cursor = fill(session)
        found = edges_of(session, table, cursor, None, 500, partial(parallel_strides, source, 3))
        assert sum(edge.rows for edge in found) == 50_000
        assert len(opened) == 4
        assert not any(one.open for one in opened[1:])
        assert ours(source) == 1
    assert active_count() == threads


def begun(source: Source, session: MysqlSession) -> Iterator[Edge]:
    """A search of which two edges are found."""
    run(session, "USE edges")
    table, cursor = fill(session)
    found = edges_of(session, table, cursor, None, 500, partial(parallel_strides, source, 3))
    assert next(found).rows + next(found).rows > 500
    assert ours(source) == 4
    return found


def test_leaving_early_closes_the_connections(source: Source) -> None:
    threads = active_count()
    with source.session() as session:
        found = begun(source, session)
        found.close()  # type: ignore[attr-defined]
        assert ours(source) == 1
        assert active_count() == threads
        assert run(session, "SELECT 1")


def stopped(source: Source, sessions: Sessions) -> None:
    with source.session() as session:
        found = begun(source, session)
        sessions.end()
        list(found)


def test_stopping_the_run_ends_all_connections(settings_of: MysqlConnection) -> None:
    sessions, threads = Sessions(), active_count()
    with Source(settings_of, connect=sessions.connect) as source:
        with pytest.raises(FloodmarkError, match="the run was stopped"):
            stopped(source, sessions)
        assert ours(source) == 0
    assert active_count() == threads


@pytest.mark.enough_on("mysql")
def test_all_connections_reach_the_same_server(
    settings_of: MysqlConnection, mariadb: PrivateMariaDB
) -> None:
    elsewhere = new_database(mariadb)
    opened: list[MysqlConnection] = []

    def connecting(
        connection: MysqlConnection, *, server: Server | None = None
    ) -> AbstractContextManager[MysqlSession]:
        opened.append(connection)
        return connect(elsewhere if len(opened) == 3 else connection, server=server)

    with Source(settings_of, connect=connecting) as source, source.session() as session:
        run(session, "USE edges")
        table, cursor = fill(session)
        found = edges_of(session, table, cursor, None, 500, partial(parallel_strides, source, 3))
        with pytest.raises(FloodmarkError, match="reached a different server"):
            list(found)
