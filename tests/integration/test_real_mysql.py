"""What differs between MySQL and MariaDB, or is set otherwise on a server: a sync of each."""

import struct
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pymysql
import pytest
from msgspec import structs

from floodmark.config.models import LakeSettings, MysqlConnection, TlsSettings
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import ColumnPlan, Window
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.mysql.catalog import read_table
from floodmark.mysql.connection import connect, query
from floodmark.mysql.row_estimates import estimate_rows
from floodmark.mysql.types import plan_columns
from floodmark.planning.access_path import choose_route
from floodmark.planning.cursor import choose_cursor
from floodmark.worker.conversion import Conversion
from floodmark.worker.job import ExtractionJob
from floodmark.worker.mysql_reader import read_batches
from pipelines import Ended, Pipeline, ask, ask_once, session, source_of
from servers.mysql import MISSING, PrivateMySQL

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
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL, KEY k (update_at))"
        " STATS_AUTO_RECALC = 0",  # else statistics may change in between
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
    assert estimate > 0.4 * rows  # a few pages are sampled, so it is rough
    assert route(first + timedelta(seconds=rows * 0.1))[0] == "key"
    by, estimate = route(first + timedelta(seconds=rows * 0.9))
    assert by == "cursor"
    assert estimate < 0.4 * rows


HOSTILE = (
    "autocommit = 0",
    "completion_type = 2",
    "max_join_size = 1",
    "max_sort_length = 64",
    "sql_auto_is_null = 1",
    "sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
    "sql_select_limit = 1",
    "TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
    "init_connect = 'SET NAMES latin1'",
)
HOSTILE_MYSQL = ("max_execution_time = 1", "information_schema_stats_expiry = 86400")
HOSTILE_MARIADB = ("max_statement_time = 0.001", "system_versioning_asof = '2001-01-01 00:00:00'")


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def hostile(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateMariaDB]:
    """A server whose settings for the whole server would change what is read."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "mysql" and not PrivateMySQL.is_available():
        pytest.skip(MISSING)
    kind = PrivateMySQL if request.param == "mysql" else PrivateMariaDB
    with kind(folder) as running:
        running.execute("CREATE DATABASE a CHARACTER SET utf8mb4")
        running.execute("SET GLOBAL time_zone = '+07:00'")
        versioned = " WITH SYSTEM VERSIONING" if request.param == "mariadb" else ""
        running.execute(
            "CREATE TABLE a.t (id INT PRIMARY KEY, note VARCHAR(20), update_at TIMESTAMP NOT NULL,"
            f" KEY k (update_at, id)){versioned}"
        )
        running.execute("INSERT INTO a.t SELECT 1, CONVERT('é€' USING utf8mb4), '2025-06-01'")
        running.execute("INSERT INTO a.t SELECT 2, '🎈', '2025-06-02'")
        running.execute("CREATE USER reader IDENTIFIED BY 'simple'")
        running.execute("GRANT SELECT ON a.* TO reader")
        for setting in HOSTILE + (HOSTILE_MARIADB if versioned else HOSTILE_MYSQL):
            running.execute(f"SET GLOBAL {setting}")
        yield running


def job_of(server: PrivateMariaDB, source: MysqlConnection, schema: str = "a") -> ExtractionJob:
    """The extraction of the whole of a table t."""
    name = TableName("S", schema, "t")
    with connect(source) as session:
        columns = plan_columns(read_table(session, name))
    return ExtractionJob(
        table=name,
        session_id="20250809_200001_abcd",
        sequence=1,
        source=source,
        relation=f"{schema}.t",
        columns=columns,
        cursor=Cursor(kind="none"),
        lake=LakeSettings(url="/nowhere"),
    )


def read(job: ExtractionJob, predicate: str, *, streamed: bool) -> list[tuple[Any, ...]]:
    window = Window(part=1, start=START, end=START, predicate=predicate, streamed=streamed)
    conversion = Conversion(job.columns, "null")
    batches = map(conversion.convert, read_batches(job, window))
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("streamed", [False, True])
def test_settings_of_the_whole_server_change_nothing(
    hostile: PrivateMariaDB, streamed: bool
) -> None:
    source = MysqlConnection(
        host=hostile.host, port=hostile.port, user="reader", password=Secret("simple")
    )
    job = job_of(hostile, source)
    with pymysql.connect(
        host=hostile.host, port=hostile.port, user=hostile.user, password=hostile.password
    ) as writer:
        writer.cursor().execute("INSERT INTO a.t VALUES (3, 'never', '2025-06-01 12:00:00')")
        moments = "update_at > '2025-05-31 16:59:59' AND update_at <= '2025-06-01 17:00:00'"
        found = read(job, f"SLEEP(0.05) = 0 AND {moments}", streamed=streamed)
        writer.cursor().execute("SET completion_type = 0")
        writer.rollback()
    first = datetime(2025, 5, 31, 17, tzinfo=UTC)
    assert found == [(1, "é€", first), (2, "🎈", first + timedelta(days=1))]


def test_a_sync_from_a_server_with_hostile_settings(pipeline: New, hostile: PrivateMariaDB) -> None:
    it = replace(pipeline({"t": "{}"}), schema="a", source={**source_of(hostile)})
    it.write_config()
    load(it, "--verify-data")
    assert target(it, "SELECT id, note FROM t ORDER BY id") == [(1, "é€"), (2, "🎈")]


def test_sessions_do_not_inherit_what_a_result_depends_on(hostile: PrivateMariaDB) -> None:
    with connect(connection_to(hostile)) as session:
        ((version, zone, limit),) = query(session, "SELECT VERSION(), @@time_zone, @@max_join_size")
        assert (zone, limit) == ("+00:00", 2**64 - 1)
        if "MariaDB" in version:
            wanted = {"@@tx_isolation": "REPEATABLE-READ", "@@max_statement_time": 0}
        else:
            wanted = {
                "@@transaction_isolation": "REPEATABLE-READ",
                "@@max_execution_time": 0,
                "@@information_schema_stats_expiry": 0,
                "@@use_secondary_engine": "OFF",
            }
        assert list(query(session, f"SELECT {', '.join(wanted)}")[0]) == list(wanted.values())


@contextmanager
def login(server: PrivateMariaDB, how: str) -> Iterator[MysqlConnection]:
    """A new user; `how` stands behind its name in CREATE USER."""
    user = f"u_{uuid.uuid4().hex[:8]}"
    server.execute(f"CREATE USER {user} {how}")
    server.execute(f"GRANT SELECT, PROCESS ON *.* TO {user}")
    yield MysqlConnection(
        host=server.host, port=server.port, user=user, password=Secret("pässword 密码 пароль")
    )
    server.execute(f"DROP USER {user}")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("tls", [None, TlsSettings(verify="none")])
def test_a_password_that_the_server_has_not_cached(
    pipeline: New, mysql: PrivateMySQL, tls: TlsSettings | None, streamed: bool
) -> None:
    """The server then asks for the password itself, encrypted with its key if there is no TLS."""
    it = pipeline({"t": "{}"}, server=mysql)
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY)")
    ask_once(it, "INSERT INTO t VALUES (1)")
    job = job_of(mysql, connection_to(mysql), it.schema)
    with login(mysql, "IDENTIFIED WITH caching_sha2_password BY 'pässword 密码 пароль'") as source:
        cold = structs.replace(job, source=structs.replace(source, tls=tls))
        for _ in range(2):
            assert read(cold, "TRUE", streamed=streamed) == [(1,)]
            mysql.execute("FLUSH PRIVILEGES")
        with connect(cold.source) as session:
            assert query(session, "SELECT 1") == [(1,)]


@pytest.mark.follows_hint("add 'tls: {}' to the connection")
@pytest.mark.parametrize("required", ["by the server", "by the user"])
def test_a_server_that_wants_encryption_says_so_at_once(
    pipeline: New, mysql: PrivateMySQL, required: str
) -> None:
    it = pipeline({"t": "{}"}, server=mysql)
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY)")
    ask_once(it, "INSERT INTO t VALUES (1)")
    require = "REQUIRE SSL" if required == "by the user" else ""
    with login(mysql, f"IDENTIFIED BY 'pässword 密码 пароль' {require}") as source:
        if not require:
            mysql.execute("SET GLOBAL require_secure_transport = ON")
        try:
            plain = {**it.source, "user": source.user, "password": "pässword 密码 пароль"}
            it = replace(it, source=plain).write_config()
            for command in (("sync", "-p", "main", "--backup-only"), ("doctor",)):
                ended = it.call(*command)
                assert ended.code != 0
                assert "tls: {}" in ended.out + ended.err
            it = replace(it, source={**plain, "tls": {"verify": "none"}}).write_config()
            assert it.synced()["rows"] == 1
        finally:
            mysql.execute("SET GLOBAL require_secure_transport = OFF")


@pytest.mark.parametrize("settings", ["{}", "{hash: [v]}", "{exclude: [v]}"])
def test_vectors_are_left_out_or_refused_before_reading(
    pipeline: New, mysql: PrivateMySQL, settings: str
) -> None:
    it = pipeline({"t": settings}, server=mysql)
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(2))")
    ask_once(it, "INSERT INTO t VALUES (1, TO_VECTOR('[1,2]'))")
    doctor, ended = it.call("doctor"), it.sync()
    if "exclude" in settings:
        assert ended.code == 0
        assert it.rows() == [{"id": 1}]
    else:
        assert ended.code == 2
        for said in (doctor.out + doctor.err, ended.out + ended.err):
            assert "'vector(2)'" in said
            assert "exclude: [v]" in said


@pytest.mark.parametrize("streamed", [False, True])
def test_geometries_keep_their_reference_system(
    pipeline: New, server: PrivateMariaDB, streamed: bool
) -> None:
    it = pipeline({"t": "{cursor: none}"}, server=server)
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, g GEOMETRY)")
    lake = "POLYGON((0 0,0 9,9 9,9 0,0 0),(1 1,1 2,2 2,1 1))"
    ask_once(
        it,
        "INSERT INTO t VALUES (1, ST_GeomFromText('POINT(1 2)')),"
        " (2, ST_GeomFromText('POINT(1 2)', 3857)), (3, NULL),"
        f" (4, ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2),{lake})', 3857)),"
        f" (5, ST_GeomFromText('{lake}'))",
    )
    found = dict(read(job_of(server, connection_to(server), it.schema), "TRUE", streamed=streamed))
    point = struct.pack("<dd", 1, 2)
    assert found[1] == struct.pack("<bI", 1, 1) + point
    assert found[2] == struct.pack("<bII", 1, 0x20000001, 3857) + point
    assert found[3] is None
    assert found[4][:9] == struct.pack("<bII", 1, 0x20000007, 3857)
    for number, without in ((4, found[4][:4] + b"\0" + found[4][9:]), (5, found[5])):
        ((plain,),) = ask_once(it, f"SELECT ST_AsBinary(g) FROM t WHERE id = {number}")
        assert without == plain


def test_the_axes_of_a_geographic_system_are_not_swapped(
    pipeline: New, mysql: PrivateMySQL
) -> None:
    it = pipeline({"t": "{cursor: none}"}, server=mysql)
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, g POINT SRID 4326)")
    ask_once(it, "INSERT INTO t VALUES (1, ST_SRID(POINT(30, 60), 4326))")
    assert ask_once(it, "SELECT ST_Longitude(g) FROM t") == [(30.0,)]
    load(it)
    ((value,),) = target(it, "SELECT g FROM t")
    assert value == struct.pack("<bIIdd", 1, 0x20000001, 4326, 30, 60)


def test_verification_sees_another_reference_system(pipeline: New, server: PrivateMariaDB) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, server=server)
    ask_once(
        it, "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME, g GEOMETRY, KEY k (update_at))"
    )
    ask_once(it, "INSERT INTO t VALUES (1, '2025-06-01', ST_GeomFromText('POINT(1 2)', 3857))")
    load(it, "--verify-data")
    ask_once(it, "UPDATE t SET g = ST_GeomFromText('POINT(1 2)', 0)")  # the cursor stays
    ended = it.call("sync", "-p", "main", "--verify-data=all")
    assert ended.code == 5, ended


def test_rows_larger_than_a_packet_are_streamed(pipeline: New, server: PrivateMariaDB) -> None:
    it = pipeline({"t": "{}"}, server=server)
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME, a LONGBLOB, b LONGBLOB,"
        " KEY k (update_at))",
    )
    ((before,),) = ask_once(it, "SELECT @@GLOBAL.max_allowed_packet")
    server.execute("SET GLOBAL max_allowed_packet = 2097152")
    try:
        big = 1_500_000
        for number in (1, 2):
            ask_once(it, f"INSERT INTO t VALUES ({number}, '2025-06-01', REPEAT('a', {big}), '')")
        ask_once(it, f"UPDATE t SET b = REPEAT('b', {big}) WHERE id = 2")
        load(it, "--verify-data")
        found = target(it, "SELECT id, octet_length(a), octet_length(b) FROM t ORDER BY id")
        assert found == [(1, big, 0), (2, big, big)]
    finally:
        server.execute(f"SET GLOBAL max_allowed_packet = {before}")


def test_a_cursor_inside_the_primary_key_is_warned_of(
    pipeline: New, server: PrivateMariaDB
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, server=server)
    ask_once(
        it,
        "CREATE TABLE t (id INT, update_at DATETIME, KEY (update_at), PRIMARY KEY (id, update_at))"
        " PARTITION BY RANGE COLUMNS (update_at)"
        " (PARTITION a VALUES LESS THAN ('2025-06-15'), PARTITION b VALUES LESS THAN (MAXVALUE))",
    )
    ask_once(it, "INSERT INTO t VALUES (1, '2025-06-01'), (2, '2025-06-20')")
    said = "update_at is part of the primary key (id, update_at)"
    assert said in it.call("doctor").out
    (warning,) = [w for w in load(it).table["warnings"] if said in w]
    assert "cursor: none" in warning
    assert target(it, "SELECT id FROM t ORDER BY id") == [(1,), (2,)]


# In the order of the server: six of these eleven are moments.
MOMENTS = [
    "2025-03-01",
    "2025-03-02",
    "2025-05-31 23:00:00",
    "2025-06-01",
    "2025-06-01",
    "2025-07-09",
]
NO_MOMENTS = [
    "2025-04-00",
    "2025-02-31",
    "2025-06-00 10:00:00",
    "2025-06-00 10:00:00",
    "2025-08-00",
]


def odd_times(pipeline: Pipeline, values: list[str], *, key: str = "PRIMARY KEY (id)") -> None:
    """Make a table with these cursors, numbered as they come."""
    with session(pipeline) as application:
        ask(application, "SET sql_mode = 'ALLOW_INVALID_DATES'")
        columns = "id INT NOT NULL, update_at DATETIME NOT NULL"
        ask(application, f"CREATE TABLE t ({columns}, {key}, KEY k (update_at))")
        rows = ", ".join(f"({n}, '{value}')" for n, value in enumerate(values))
        ask(application, f"INSERT INTO t VALUES {rows}")


@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", "KEY (id)"])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 100])
def test_rows_without_a_timestamp_are_read_with_the_next_that_has_one(
    pipeline: New, server: PrivateMariaDB, rows: int, key: str
) -> None:
    it = pipeline(
        {"t": "{cursor: [update_at]}"},
        server=server,
        settings=f"extraction:\n  window_rows: {rows}",
    )
    values = MOMENTS + NO_MOMENTS
    odd_times(it, values, key=key)
    result = it.synced()
    last = len(values) - 1
    assert it.ids() == Counter(range(last))
    (warning,) = [w for w in result["warnings"] if "is not a valid" in w]
    assert "1 row waits" in warning
    assert it.synced()["rows"] == 0
    ask_once(it, f"INSERT INTO t VALUES ({last + 1}, '2025-08-01')")
    result = it.synced()
    assert it.ids() == Counter(range(last + 2))
    assert not any("is not a valid" in warning for warning in result["warnings"])


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7])
def test_a_limit_among_rows_without_a_moment(
    pipeline: New, server: PrivateMariaDB, limit: int
) -> None:
    it = pipeline({"t": "{cursor: [update_at]}"}, server=server)
    values = [*MOMENTS, *NO_MOMENTS, "2025-08-01"]
    odd_times(it, values)
    for _ in range(len(values)):
        before = len(it.rows())
        ended = it.sync("--limit", str(limit))
        if ended.code != 0:  # these lie between two moments: more than the limit
            assert limit < 3
            assert f"more than {limit} rows must be read together" in ended.out
            it.synced("--limit", "3")
        assert len(it.rows()) - before <= max(limit, 3)
    assert it.ids() == Counter(range(len(values)))


def test_only_rows_without_a_moment_wait(pipeline: New, server: PrivateMariaDB) -> None:
    it = pipeline({"t": "{cursor: [update_at]}"}, server=server)
    odd_times(it, ["2025-06-00", "2025-06-00 10:00:00"])
    for arguments in ((), ("--limit", "1")):
        result = it.synced(*arguments)
        assert result["rows"] == 0
        assert any("2 rows wait" in warning for warning in result["warnings"])
    ask_once(it, "INSERT INTO t VALUES (9, '2025-06-01')")
    it.synced()
    assert it.ids() == Counter([0, 1, 9])


@pytest.fixture
def shared(pipeline: New, server: PrivateMariaDB) -> Iterator[Pipeline]:
    """A table, read by a user without any privileges yet."""
    it = pipeline({"t": "{cursor: [update_at]}"}, server=server)
    ask_once(
        it,
        "CREATE TABLE t (id INT, shop INT, update_at DATETIME NOT NULL, secret INT,"
        " PRIMARY KEY (id, shop), UNIQUE s (secret), KEY k (update_at))",
    )
    ask_once(it, "INSERT INTO t VALUES (1, 1, '2025-06-01', 7)")
    server.execute("CREATE USER shared IDENTIFIED BY 'simple'")
    server.execute("GRANT PROCESS ON *.* TO shared")
    login = {**it.source, "user": "shared", "password": "simple"}
    yield replace(it, source=login).write_config()
    server.execute("DROP USER shared")


def test_columns_that_may_not_be_read_are_warned_of(
    shared: Pipeline, server: PrivateMariaDB
) -> None:
    server.execute(f"GRANT SELECT (id, shop, update_at) ON {shared.schema}.t TO shared")
    said = "only these are synced: id, shop, update_at"
    assert said in shared.call("doctor").out
    result = shared.synced()
    assert any(said in warning for warning in result["warnings"])
    assert [list(row) for row in shared.rows()] == [["id", "shop", "update_at"]]
    server.execute(f"GRANT SELECT ON {shared.schema}.t TO shared")
    assert "only these" not in shared.call("doctor").out


def test_a_key_that_may_not_be_read_is_not_half_a_key(
    shared: Pipeline, server: PrivateMariaDB
) -> None:
    server.execute(f"GRANT SELECT (id, update_at) ON {shared.schema}.t TO shared")
    ended = shared.sync()
    if isinstance(server, PrivateMySQL):
        assert ended.code == 2
        assert "shop is part of the primary key, and may not be read" in ended.out + ended.err
    else:  # MariaDB shows no keys to such a user
        assert ended.code == 0
        assert "no primary key is visible" in ended.out + ended.err
        assert shared.chunks()[0].primary_key == ()


@pytest.mark.follows_hint("SET DEFAULT ROLE … FOR the user")
def test_a_role_that_is_not_active_is_named(shared: Pipeline, server: PrivateMariaDB) -> None:
    server.execute("CREATE ROLE reading")
    try:
        server.execute(f"GRANT SELECT ON {shared.schema}.* TO reading")
        server.execute("GRANT reading TO shared")
        for ended in (shared.sync(), shared.call("doctor")):
            assert ended.code != 0
            assert "SET DEFAULT ROLE reading" in ended.out + ended.err
        to = "TO" if isinstance(server, PrivateMySQL) else "FOR"
        server.execute(f"SET DEFAULT ROLE reading {to} shared")
        assert shared.synced()["rows"] == 1
    finally:
        server.execute("DROP ROLE reading")


def test_the_catalog_of_mysql(pipeline: New, mysql: PrivateMySQL) -> None:
    it = pipeline({"t": "{}"}, server=mysql)
    ask_once(
        it,
        "CREATE TABLE t (id BIGINT UNSIGNED, name VARCHAR(20), doc JSON, note TEXT CHECK"
        " (json_valid(note)), update_at DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)"
        " ON UPDATE CURRENT_TIMESTAMP(3), hidden INT INVISIBLE DEFAULT 7,"
        " twice BIGINT AS (id * 2) STORED, initial CHAR(1) AS (LEFT(name, 1)) VIRTUAL,"
        " PRIMARY KEY (id), KEY unseen (update_at) INVISIBLE, KEY computed ((LOWER(name))),"
        " KEY many ((CAST(doc->'$.tags' AS CHAR(9) ARRAY))), KEY mixed (name, (id + 1)),"
        " KEY down (update_at DESC), KEY up (update_at, id), FULLTEXT words (note))",
    )
    ask_once(
        it,
        "INSERT INTO t (id, name, doc, note, update_at)"
        """ VALUES (1, 'Ada', '{"tags": ["x"]}', '[1]', '2025-06-01')""",
    )
    with connect(connection_to(mysql)) as session:
        table = read_table(session, it.table())
    assert table.primary_key == ("id",)
    assert {index.name for index in table.indexes} == {"PRIMARY", "up"}
    assert [(c.name, c.column_type) for c in table.columns[2:4]] == [
        ("doc", "json"),
        ("note", "text"),
    ]
    assert table.column("update_at").on_update
    load(it, "--verify-data")
    assert target(it, "SELECT id, name, doc, note, hidden, twice, initial FROM t") == [
        (1, "Ada", '{"tags": ["x"]}', "[1]", 7, 2, "A")
    ]


@pytest.mark.parametrize("shown", ["ON", "OFF"])
def test_a_generated_invisible_primary_key(pipeline: New, mysql: PrivateMySQL, shown: str) -> None:
    it = pipeline({"t": "{cursor: [update_at]}"}, server=mysql)
    variable = "show_gipk_in_create_table_and_information_schema"
    mysql.execute(f"SET GLOBAL {variable} = {shown}")
    try:
        with session(it) as application:
            ask(application, "SET sql_generate_invisible_primary_key = ON")
            ask(
                application,
                "CREATE TABLE t (v INT, update_at DATETIME NOT NULL, KEY k (update_at))",
            )
            ask(application, "INSERT INTO t VALUES (1, '2025-06-01'), (2, '2025-06-02')")
        load(it)
        ask_once(it, "UPDATE t SET v = 3, update_at = '2025-06-03' WHERE v = 1")
        load(it, "--verify-data")
        assert target(it, "SELECT my_row_id, v FROM t ORDER BY 1") == [(1, 3), (2, 2)]
    finally:
        mysql.execute(f"SET GLOBAL {variable} = ON")


def test_partitions(pipeline: New, server: PrivateMariaDB) -> None:
    it = pipeline(
        {"t": "{cursor: [update_at]}"}, server=server, settings="extraction: {window_rows: 7}"
    )
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL, KEY k (update_at))"
        " PARTITION BY HASH (id) PARTITIONS 4",
    )
    rows = ", ".join(f"({n}, '2025-06-01' + INTERVAL {n // 3} HOUR)" for n in range(60))
    ask_once(it, f"INSERT INTO t VALUES {rows}")
    load(it)
    ask_once(it, "UPDATE t SET update_at = '2025-07-01' WHERE id % 10 = 0")
    load(it, "--verify-data")
    assert target(it, "SELECT id FROM t ORDER BY id") == [(n,) for n in range(60)]


def test_only_text_is_json_by_its_check(pipeline: New, mariadb: PrivateMariaDB) -> None:
    it = pipeline({"t": "{cursor: none}"}, server=mariadb)
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, j JSON, n INT CHECK (json_valid(n)),"
        " b BLOB CHECK (json_valid(b)), v VARCHAR(20) CHECK (json_valid(v)))",
    )
    ask_once(it, "INSERT INTO t VALUES (1, '[1]', 2, '[3]', '[4]')")
    with connect(connection_to(mariadb)) as session:
        table = read_table(session, it.table())
    assert [c.column_type for c in table.columns[1:]] == ["json", "int(11)", "blob", "json"]
    load(it, "--verify-data")
    assert target(it) == [(1, "[1]", 2, b"[3]", "[4]")]


def test_the_server_has_nothing_to_warn_of(pipeline: New, mysql: PrivateMySQL) -> None:
    """Deprecations show up here years before a statement stops working."""
    tables = {
        "t": "{cursor: [update_at, id]}",
        "u": "{cursor: id}",
        "v": "{cursor: none, hash: [n]}",
    }
    it = pipeline(tables, server=mysql, settings="extraction: {window_rows: 3}")
    for name in tables:
        ask_once(
            it,
            f"CREATE TABLE {name} (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, n VARCHAR(20),"
            " d DECIMAL(20, 4), f FLOAT, g GEOMETRY, j JSON, b BIT(9), y YEAR, i TIME(3), day DATE,"
            " e ENUM('a', 'b'), s SET('a', 'b'), x VARBINARY(9), update_at DATETIME(6) NOT NULL,"
            " KEY k (update_at, id))",
        )
        values = "'é', 1.5, 2.5, POINT(1, 2), '[1]', b'101', 2025, '10:00:00.5', '2025-06-01'"
        row = f"(NULL, {values}, 'a', 'a,b', x'00ff', '2025-06-01 10:00:00.5')"
        ask_once(it, f"INSERT INTO {name} VALUES {', '.join([row] * 10)}")
    statements = "performance_schema.events_statements_summary_by_digest"
    mysql.execute(f"TRUNCATE TABLE {statements}")
    load(it, "--verify-data")
    assert it.call("doctor").code == 0
    ask_once(it, "UPDATE t SET n = 'x', update_at = '2025-06-02'")
    load(it, "--verify-data=all")
    warned = mysql.execute(
        f"SELECT digest_text FROM {statements} WHERE sum_warnings > 0"
        " AND digest_text NOT LIKE 'EXPLAIN%'"  # which says there how it understood the query
    )
    assert [text for (text,) in warned if "`PROCESSLIST`" not in text] == []


@pytest.mark.parametrize("streamed", [False, True])
def test_readers_keep_to_the_address_that_is_configured(
    pipeline: New, server: PrivateMariaDB, streamed: bool
) -> None:
    """A user who may come from anywhere is not taken over to the server's socket."""
    it = pipeline({"t": "{}"}, server=server)
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY)")
    ask_once(it, "INSERT INTO t VALUES (1)")
    job = job_of(server, connection_to(server), it.schema)
    who = ColumnPlan(name="who", expression="USER()", arrow="string", nullable=False)
    with login(server, "IDENTIFIED BY 'pässword 密码 пароль'") as source:
        ((user,),) = read(
            structs.replace(job, source=source, columns=(who,)), "TRUE", streamed=streamed
        )
        assert user == f"{source.user}@127.0.0.1"


@pytest.mark.parametrize(
    "key",
    ["t TEXT, PRIMARY KEY (t(5))", "t BLOB, PRIMARY KEY (t(5))", "t INT, PRIMARY KEY (t DESC)"],
)
def test_rows_of_any_key_are_looked_up(pipeline: New, server: PrivateMariaDB, key: str) -> None:
    """Changed since they were loaded: that is no difference."""
    it = pipeline({"t": "{cursor: [update_at]}"}, server=server)
    ask_once(it, f"CREATE TABLE t (update_at DATETIME NOT NULL, {key}, KEY k (update_at))")
    ask_once(it, "INSERT INTO t VALUES ('2025-06-01', 1), ('2025-06-02', 22), ('2025-06-03', 333)")
    load(it)
    ask_once(it, "UPDATE t SET update_at = '2025-07-01' WHERE t = 22")
    result = load(it, "--redshift-only", "--verify-data=all").table["verification"]
    assert (result["differences"], result["moved"]) == ({}, 1)
