"""Every type with its extreme values, read back from Parquet and held against what MySQL says."""

import io
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest
from pymysql.cursors import Cursor

from floodmark.config.models import LakeSettings, MysqlConnection, RetrySettings
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import FloodmarkError
from floodmark.model.cursor import Cursor as TableCursor
from floodmark.model.extraction import Receipt, Window, ZeroDates
from floodmark.model.position import START
from floodmark.model.table import TableName
from floodmark.mysql.catalog import read_table
from floodmark.mysql.connection import connect
from floodmark.mysql.types import plan_columns, quote_name
from floodmark.spark.extract import extract
from floodmark.spark.runner import Spark
from floodmark.storage.opening import open_lake
from floodmark.worker.job import ExtractionJob
from pipelines import source_of
from servers.mysql import PrivateMySQL
from servers.seaweedfs import SeaweedFS

SCHEMA = "types-test"
BUCKET = "types-test"
LONG = "'x', REPEAT('é', 20000), ''"

# Column, its type, the Arrow type it must become, and values that have gone wrong somewhere.
COLUMNS: dict[str, tuple[str, str, str]] = {
    "tiny": ("TINYINT", "int16", "-128, 127, 0"),
    "tiny_u": ("TINYINT UNSIGNED", "int16", "0, 255"),
    "flag": ("TINYINT(1)", "int16", "0, 1, 2, -1"),
    "small": ("SMALLINT", "int16", "-32768, 32767"),
    "small_u": ("SMALLINT UNSIGNED", "int32", "65535"),
    "medium": ("MEDIUMINT", "int32", "-8388608, 8388607"),
    "medium_u": ("MEDIUMINT UNSIGNED", "int32", "16777215"),
    "int_": ("INT", "int32", "-2147483648, 2147483647"),
    "int_u": ("INT UNSIGNED", "int64", "4294967295"),
    "int_z": ("INT(8) ZEROFILL", "int64", "42"),
    "big": ("BIGINT", "int64", "-9223372036854775808, 9223372036854775807"),
    "big_u": ("BIGINT UNSIGNED", "decimal128(20, 0)", "0, 18446744073709551615"),
    "year_": ("YEAR", "int16", "1901, 2155, 0"),
    "dec_12_4": ("DECIMAL(12,4)", "decimal128(12, 4)", "-99999999.9999, 0, 0.0001"),
    "dec_z": ("DECIMAL(9,2) ZEROFILL", "decimal128(9, 2)", "1.5"),
    "dec_5": ("DECIMAL(5,0)", "decimal128(5, 0)", "-99999"),
    "dec_38_10": ("DECIMAL(38,10)", "decimal128(38, 10)", f"-{'9' * 28}.{'9' * 10}"),
    "dec_38_30": ("DECIMAL(38,30)", "decimal128(38, 30)", f"{'9' * 8}.{'9' * 30}, 1e-30"),
    "dec_39": ("DECIMAL(39,0)", "string", "9" * 39),
    "dec_65_30": ("DECIMAL(65,30)", "string", f"-{'9' * 35}.{'9' * 30}, 0.{'0' * 29}1"),
    "float_": ("FLOAT", "float", "1.1, -3.40282e38, 1.17549e-38, 16777217, -0e0, 0.33333334"),
    "float_u": ("FLOAT UNSIGNED", "float", "0.5"),
    "double_": ("DOUBLE", "double", "1.7976931348623157e308, 2.2250738585072014e-308, 0.1, -0e0"),
    "double_u": ("DOUBLE UNSIGNED", "double", "0.1"),
    "bit_1": ("BIT(1)", "bool", "b'0', b'1'"),
    "bit_9": ("BIT(9)", "int64", "b'111111111', 0"),
    "bit_63": ("BIT(63)", "int64", "9223372036854775807"),
    "bit_64": ("BIT(64)", "decimal128(20, 0)", "18446744073709551615, 1"),
    "date_": ("DATE", "date32[day]", "'1000-01-01', '9999-12-31', '2024-02-29', '1969-12-31'"),
    "datetime_": ("DATETIME", "timestamp[us]", "'1000-01-01 00:00:00', '9999-12-31 23:59:59'"),
    "datetime_3": ("DATETIME(3)", "timestamp[us]", "'2024-01-02 03:04:05.001'"),
    "datetime_6": ("DATETIME(6)", "timestamp[us]", "'9999-12-31 23:59:59.999999'"),
    "stamp": ("TIMESTAMP NULL", "timestamp[us, tz=UTC]", "'1970-01-01 00:00:01'"),
    "stamp_6": ("TIMESTAMP(6) NULL", "timestamp[us, tz=UTC]", "'2038-01-19 03:14:07.999999'"),
    "time_": ("TIME", "string", "'-838:59:59', '838:59:59', '-00:00:01', '00:00:00'"),
    "time_6": ("TIME(6)", "string", "'-838:59:58.999999', '25:00:00.000001'"),
    "char_": ("CHAR(10)", "string", "'abc  ', '', '😀👩‍👩‍👧'"),
    "varchar_": ("VARCHAR(100)", "string", "'tail  ', '日本', 'a\\0b', '\\'\"\\\\\\n'"),
    "latin": ("VARCHAR(9) CHARACTER SET latin1", "string", "'é€'"),
    "text_": ("TEXT", "string", LONG),
    "longtext_": ("LONGTEXT", "string", LONG),
    "enum_": ("ENUM('a','b''c','')", "string", "'a', 'b''c', '', 0"),
    "set_": ("SET('x','y','z')", "string", "'x,z', ''"),
    "json_": ("JSON", "string", '\'{"b": 1.0, "a": [1e300, "é"]}\', \'null\''),
    "binary_": ("BINARY(4)", "binary", "x'00', x'FF00FF00'"),
    "varbinary_": ("VARBINARY(9)", "binary", "x'', x'00FF00'"),
    "blob_": ("BLOB", "binary", "x'00', REPEAT(x'FF', 60000)"),
    "longblob_": ("LONGBLOB", "binary", "x'DEADBEEF'"),
    "point_": ("POINT", "binary", "ST_GeomFromText('POINT(1 -2.5)')"),
    "geometry_": (
        "GEOMETRY",
        "binary",
        "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))'), ST_GeomFromText('LINESTRING(0 0,1 1)')",
    ),
    "a b": ("INT", "int32", "1"),
    "c`d": ("INT", "int32", "2"),
    "e\"f'g": ("INT", "int32", "3"),
    "100%": ("INT", "int32", "4"),
    "日本": ("INT", "int32", "5"),
    "semi;--": ("INT", "int32", "6"),
    "q?m": ("INT", "int32", "7"),
    "x.y": ("INT", "int32", "8"),
    "back\\slash": ("INT", "int32", "9"),
}
MARIADB_COLUMNS: dict[str, tuple[str, str, str]] = {
    "uuid_": ("UUID", "string", "'123E4567-e89b-12d3-a456-426655440000'"),
    "inet4_": ("INET4", "string", "'255.0.0.1'"),
    "inet6_": ("INET6", "string", "'2001:DB8::ff00:42:8329', '::ffff:1.2.3.4'"),
    "json_text": ("JSON", "string", "'[1e400]'"),
}
ZERO_DATES = {
    "date_": "'0000-00-00', '2024-00-15', '2024-01-00', '0000-05-03', '2023-02-29'",
    "datetime_": "'0000-00-00 00:00:00', '2024-00-15 10:00:01', '2024-02-31 10:00:00'",
    "datetime_6": "'2024-01-00 23:59:59.999999'",
    "stamp": "'0000-00-00 00:00:00'",
}


@pytest.fixture(scope="module")
def bucket(seaweedfs: SeaweedFS) -> SeaweedFS:
    seaweedfs.create_bucket(BUCKET)
    return seaweedfs


@pytest.fixture(scope="module")
def connection(server: PrivateMariaDB) -> Iterator[MysqlConnection]:
    server.execute(f"DROP DATABASE IF EXISTS {quote_name(SCHEMA)}")
    server.execute(f"CREATE DATABASE {quote_name(SCHEMA)}")
    server.execute("SET GLOBAL time_zone = '+05:30'")  # it must not matter
    yield MysqlConnection(
        host=server.host,
        port=server.port,
        user=server.user,
        password=Secret(server.password),
    )
    server.execute("SET GLOBAL time_zone = 'SYSTEM'")
    server.execute(f"DROP DATABASE {quote_name(SCHEMA)}")


@pytest.fixture(params=["local", "seaweedfs"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, bucket: SeaweedFS) -> LakeSettings:
    if request.param == "local":
        return LakeSettings(url=str(tmp_path))
    return LakeSettings(url=f"s3://{BUCKET}/{tmp_path.name}", endpoint=bucket.endpoint)


@pytest.mark.parametrize("streamed", [False, True])
def test_every_value_arrives_as_it_is(
    server: PrivateMariaDB,
    connection: MysqlConnection,
    spark: Spark,
    lake: LakeSettings,
    streamed: bool,
) -> None:
    name = "all `types`; 100%"
    columns = COLUMNS if isinstance(server, PrivateMySQL) else {**COLUMNS, **MARIADB_COLUMNS}
    fill(server, name, {column: kind for column, (kind, _, _) in columns.items()})
    for column, (_, _, values) in columns.items():
        insert(server, name, column, values)
    receipt = read(spark, connection, name, lake, streamed=streamed)
    table = read_back(receipt, lake)
    said = what_mysql_says(connection, name, list(columns))
    assert receipt.zero_dates == {}
    assert receipt.rows == table.num_rows == len(said) > 100
    for column, (kind, arrow, _) in columns.items():
        assert str(table.schema.field(column).type) == arrow, column
        values = table.column(column).to_pylist()
        expected = [parse(row[column], table.schema.field(column).type, kind) for row in said]
        assert values == expected, column
        assert [type(v) for v in values] == [type(e) for e in expected], column
        assert any(value is not None for value in values), column


@pytest.mark.parametrize("streamed", [False, True])
def test_zero_and_partial_dates_become_null_and_are_counted(
    server: PrivateMariaDB,
    connection: MysqlConnection,
    spark: Spark,
    tmp_path: Path,
    streamed: bool,
) -> None:
    fill(server, "zeros", {name: COLUMNS[name][0] for name in ZERO_DATES})
    for column, values in ZERO_DATES.items():
        insert(server, "zeros", column, values)
        insert(server, "zeros", column, COLUMNS[column][2])
    lake = LakeSettings(url=str(tmp_path))
    receipt = read(spark, connection, "zeros", lake, streamed=streamed)
    table = read_back(receipt, lake)
    assert receipt.zero_dates == {
        column: values.count("',") + 1 for column, values in ZERO_DATES.items()
    }
    said = what_mysql_says(connection, "zeros", list(ZERO_DATES))
    for column, zeros in ZERO_DATES.items():
        kind = table.schema.field(column).type
        expected = [
            None if row[column] is None or repr(row[column]) in zeros else row[column]
            for row in said
        ]
        assert table.column(column).to_pylist() == [
            parse(text, kind, COLUMNS[column][0]) for text in expected
        ]


def test_policy_error_stops_at_a_zero_date_and_names_the_column(
    server: PrivateMariaDB, connection: MysqlConnection, spark: Spark, tmp_path: Path
) -> None:
    fill(server, "zero", {"due": "DATE NOT NULL"})
    insert(server, "zero", "due", "'2024-01-01', '0000-00-00'")
    lake = LakeSettings(url=str(tmp_path))
    with pytest.raises(FloodmarkError, match="column 'due' has zero or partial dates") as caught:
        read(spark, connection, "zero", lake, "error")
    assert caught.value.hint == "fix them, or set zero_dates: null"
    assert list(tmp_path.rglob("*.parquet")) == []


def fill(server: PrivateMariaDB, table: str, columns: dict[str, str]) -> None:
    described = ", ".join(f"{quote_name(name)} {kind}" for name, kind in columns.items())
    place = f"{quote_name(SCHEMA)}.{quote_name(table)}"
    server.execute(f"DROP TABLE IF EXISTS {place}")
    server.execute(f"CREATE TABLE {place} (id INT AUTO_INCREMENT KEY, {described})")


def insert(server: PrivateMariaDB, table: str, column: str, values: str) -> None:
    """Insert rows that are NULL but for one column."""
    rows = ", ".join(f"({value})" for value in split(values))
    neutral = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
    with (
        pymysql.connect(**source_of(server), autocommit=True, init_command=neutral) as session,
        session.cursor() as cursor,
    ):
        cursor.execute(
            f"INSERT INTO {quote_name(SCHEMA)}.{quote_name(table)} ({quote_name(column)})"
            f" VALUES {rows}"
        )


def split(values: str) -> list[str]:
    """Split at commas that stand outside quotes and parentheses."""
    parts, depth, quoted, start = [], 0, False, 0
    for place, letter in enumerate(values):
        if letter == "'" and values[place - 1] != "\\":
            quoted = not quoted
        elif not quoted and letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "," and not quoted and depth == 0:
            parts.append(values[start:place])
            start = place + 1
    return [*parts, values[start:]]


def read(
    spark: Spark,
    connection: MysqlConnection,
    table: str,
    lake: LakeSettings,
    zero_dates: ZeroDates = "null",
    *,
    streamed: bool = False,
) -> Receipt:
    name = TableName("S", SCHEMA, table)
    with connect(connection) as session:
        described = read_table(session, name)
    job = ExtractionJob(
        table=name,
        session_id="20250809_200001_abcd",
        sequence=1,
        source=connection,
        relation=f"{quote_name(SCHEMA)}.{quote_name(table)}",
        order="`id`",
        columns=plan_columns(described),
        cursor=TableCursor(kind="id", key=("id",)),
        lake=lake,
        zero_dates=zero_dates,
    )
    window = Window(part=0, start=START, end=START, predicate="1 = 1", streamed=streamed)
    (receipt,) = extract(spark, job, [window])
    return receipt


def read_back(receipt: Receipt, lake: LakeSettings) -> pa.Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", SeaweedFS.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SeaweedFS.secret_key)
        store = open_lake(lake, RetrySettings())
        (file,) = receipt.files
        found = store.get(file.path)
    assert (len(found.data), found.etag) == (file.bytes, file.etag)
    return pq.read_table(io.BytesIO(found.data))


def what_mysql_says(
    connection: MysqlConnection, table: str, columns: list[str]
) -> list[dict[str, Any]]:
    """The values as text, or as bytes where they are no text, by another client."""
    assert connection.password
    with (
        pymysql.connect(
            host=connection.host,
            port=connection.port,
            user=connection.user,
            password=connection.password.reveal(),
            charset="utf8mb4",
            conv=dict(pymysql.converters.encoders),  # type: ignore[arg-type]
            init_command="SET time_zone = '+00:00'",
        ) as session,
        session.cursor(Cursor) as cursor,
    ):
        # As text a FLOAT would come with six digits only.
        asked = ", ".join(
            f"CAST({quote_name(name)} AS DOUBLE)" if name == "float_" else quote_name(name)
            for name in columns
        )
        cursor.execute(f"SELECT {asked} FROM {quote_name(SCHEMA)}.{quote_name(table)} ORDER BY id")
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def parse(said: str | bytes | None, kind: pa.DataType, mysql: str) -> Any:
    """Read what MySQL says with nothing but Python's own parsers."""
    if said is None:
        return None
    if isinstance(said, bytes):
        if mysql.startswith("BIT"):
            number = int.from_bytes(said)
            if pa.types.is_decimal(kind):
                return Decimal(number)
            return bool(number) if pa.types.is_boolean(kind) else number
        return said[4:] if mysql in ("POINT", "GEOMETRY") else said  # behind the SRID
    if pa.types.is_integer(kind):
        return int(said)
    if pa.types.is_decimal(kind):
        return Decimal(said)
    if pa.types.is_floating(kind):
        return float(said)
    if pa.types.is_date(kind):
        return date.fromisoformat(said)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(said + ("+00:00" if kind.tz else ""))
    return said
