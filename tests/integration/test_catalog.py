from collections.abc import Iterator

import pymysql
import pytest

from floodmark.config.models import MysqlConnection
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import ConfigError, FloodmarkError, UsageError
from floodmark.model.schema import SourceIndex, SourceTable
from floodmark.model.table import TableName
from floodmark.mysql.catalog import read_table
from floodmark.mysql.connection import connect
from pipelines import numbers
from servers.mysql import PrivateMySQL

SCHEMA = "catalog_test"


@pytest.fixture(scope="module")
def connection(server: PrivateMariaDB) -> Iterator[MysqlConnection]:
    server.execute(f"DROP DATABASE IF EXISTS {SCHEMA}")
    server.execute(f"CREATE DATABASE {SCHEMA}")
    yield MysqlConnection(
        host=server.host,
        port=server.port,
        user=server.user,
        password=Secret(server.password),
    )
    server.execute(f"DROP DATABASE {SCHEMA}")


def describe(server: PrivateMariaDB, connection: MysqlConnection, columns: str) -> SourceTable:
    server.execute(f"DROP TABLE IF EXISTS {SCHEMA}.orders")
    server.execute(f"CREATE TABLE {SCHEMA}.orders ({columns})")
    with connect(connection) as session:
        return read_table(session, TableName("S", SCHEMA, "orders"))


def test_columns_in_their_order_with_all_facts(
    server: PrivateMariaDB, connection: MysqlConnection
) -> None:
    table = describe(
        server,
        connection,
        "z BIGINT UNSIGNED NOT NULL, a DECIMAL(12,4), m DATETIME(3) NOT NULL,"
        " t VARCHAR(7) COLLATE utf8mb4_bin, b BIT(9), j JSON, `j``2` JSON NOT NULL,"
        " l LONGTEXT CHECK (LENGTH(l) > 2), e ENUM('unsigned', 'x')",
    )
    z, a, m, t, b, j, j2, plain, e = table.columns
    assert [c.name for c in table.columns] == ["z", "a", "m", "t", "b", "j", "j`2", "l", "e"]
    assert (z.data_type, z.unsigned, z.nullable) == ("bigint", True, False)
    assert (a.data_type, a.precision, a.scale, a.nullable) == ("decimal", 12, 4, True)
    assert (m.data_type, m.fraction, m.nullable) == ("datetime", 3, False)
    assert (t.length, t.collation) == (7, "utf8mb4_bin")
    assert b.precision == 9
    assert [c.column_type for c in (j, j2, plain)] == ["json", "json", "longtext"]
    assert not e.unsigned
    assert table.primary_key == ()


def test_indexes_that_can_serve_a_range(
    server: PrivateMariaDB, connection: MysqlConnection
) -> None:
    others = "KEY ignored (at) IGNORED"
    if isinstance(server, PrivateMySQL):
        others = (
            "KEY hidden (at) INVISIBLE, KEY computed ((a + 1)), KEY partly (at, (b + 1)),"
            " KEY back (at DESC), KEY many ((CAST(j AS UNSIGNED ARRAY)))"
        )
    table = describe(
        server,
        connection,
        "a INT, b INT, t VARCHAR(50), at DATETIME, j JSON, p POINT NOT NULL, PRIMARY KEY (b, a),"
        f" UNIQUE u (at, a), KEY k (t, at), KEY prefix (t(3)), FULLTEXT f (t), {others},"
        " SPATIAL KEY s (p)",
    )
    assert table.primary_key == ("b", "a")
    assert set(table.indexes) == {
        SourceIndex(name="PRIMARY", columns=("b", "a"), unique=True),
        SourceIndex(name="u", columns=("at", "a"), unique=True),
        SourceIndex(name="k", columns=("t", "at"), unique=False),
    }


def test_generated_and_invisible_columns_are_columns(
    server: PrivateMariaDB, connection: MysqlConnection
) -> None:
    table = describe(
        server,
        connection,
        "a INT, double_a INT AS (a * 2) VIRTUAL, triple INT AS (a * 3) STORED, i INT INVISIBLE",
    )
    assert [c.name for c in table.columns] == ["a", "double_a", "triple", "i"]


def test_size_is_estimated(server: PrivateMariaDB, connection: MysqlConnection) -> None:
    describe(server, connection, "id INT PRIMARY KEY, t CHAR(100)")
    server.execute(f"INSERT INTO orders SELECT seq, 'x' FROM {numbers(1, 10000)}", database=SCHEMA)
    server.execute(f"ANALYZE TABLE {SCHEMA}.orders")
    with connect(connection) as session:
        table = read_table(session, TableName("S", SCHEMA, "orders"))
    assert 5_000 < table.estimated_rows < 20_000
    assert 50 < table.average_row_bytes < 500


def test_names_that_differ_only_in_case_are_two_tables(
    server: PrivateMariaDB, connection: MysqlConnection
) -> None:
    for name in ("Twin", "twin"):
        server.execute(f"DROP TABLE IF EXISTS {SCHEMA}.{name}")
        server.execute(f"CREATE TABLE {SCHEMA}.{name} (in_{name} INT PRIMARY KEY)")
    with connect(connection) as session:
        for name in ("Twin", "twin"):
            table = read_table(session, TableName("S", SCHEMA, name))
            assert [c.name for c in table.columns] == [f"in_{name}"]
            assert table.primary_key == (f"in_{name}",)
        with pytest.raises(UsageError):
            read_table(session, TableName("S", SCHEMA, "TWIN"))


def test_a_missing_table_is_refused_with_what_comes_near(
    server: PrivateMariaDB, connection: MysqlConnection
) -> None:
    describe(server, connection, "a INT")
    with connect(connection) as session, pytest.raises(UsageError) as caught:
        read_table(session, TableName("S", SCHEMA, "ordres"))
    assert f"S:{SCHEMA}.ordres" in caught.value.message
    assert f"{SCHEMA}.orders" in (caught.value.hint or "")


def test_sessions_are_in_utc_and_neutral(connection: MysqlConnection) -> None:
    with connect(connection) as session, session.cursor() as cursor:
        cursor.execute(
            "SELECT @@time_zone, @@sql_mode, @@character_set_results, @@autocommit,"
            " @@sql_select_limit"
        )
        assert cursor.fetchone() == ("+00:00", "", "utf8mb4", 1, 2**64 - 1)


def test_errors_are_ours_and_never_hold_the_password(connection: MysqlConnection) -> None:
    wrong = MysqlConnection(
        host=connection.host, port=connection.port, user="nobody", password=Secret("hunter2")
    )
    closed = MysqlConnection(host="127.0.0.1", port=1, user="nobody", password=Secret("hunter2"))
    nowhere = MysqlConnection(
        host="no-such-host.invalid", user="nobody", password=Secret("hunter2")
    )
    for broken, kind, words in (
        (wrong, ConfigError, "refuses user 'nobody'"),
        (closed, FloodmarkError, "127.0.0.1:1 does not answer"),
        (nowhere, FloodmarkError, "no-such-host.invalid:3306 does not answer"),
    ):
        with pytest.raises(kind, match=words) as caught, connect(broken):
            pass
        assert caught.value.hint
        assert "hunter2" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__}"


@pytest.mark.parametrize(
    ("sql", "kind", "words"),
    [
        ("SELECT 1 FROM nope.nope", UsageError, "doesn't exist|Unknown database"),
        ("USE nope", UsageError, "Unknown database"),
        ("SELECT nope", FloodmarkError, r"Unknown column.*\(error 1054\)"),
    ],
)
def test_errors_of_queries_are_ours(
    connection: MysqlConnection, sql: str, kind: type[FloodmarkError], words: str
) -> None:
    with (
        pytest.raises(kind, match=words) as caught,
        connect(connection) as session,
        session.cursor() as cursor,
    ):
        cursor.execute(sql)
    assert isinstance(caught.value.__cause__, pymysql.MySQLError)
