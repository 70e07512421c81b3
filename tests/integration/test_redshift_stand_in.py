"""The stand-in for Redshift: it does what Redshift does, and refuses what Redshift refuses."""

import gc
import json
import socket
import struct
import uuid
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redshift_connector
from obstore.store import S3Store
from redshift_connector.core import Connection
from redshift_connector.error import InterfaceError, ProgrammingError

from floodmark.config.logins import LOGINS
from floodmark.config.models import RedshiftConnection
from floodmark.config.secret import Secret
from floodmark.errors import FloodmarkError
from floodmark.warehouse.redshift.session import RedshiftSession
from servers import REGION, S3Server
from servers.ministack import Ministack
from servers.postgres import PrivatePostgres
from servers.redshift import ROLE, RedshiftStandIn
from servers.redshift.faults import (
    CANCELLED,
    DENIED,
    NOT_SERIALIZABLE,
    S3_FORBIDDEN,
    SERIALIZATION_VIOLATION,
    DropAfter,
    DropBefore,
    Fail,
    first,
)

BUCKET = "stand-in"
AUTHORIZED = f"IAM_ROLE '{ROLE}'"
PARQUET = "FORMAT AS PARQUET MANIFEST"


@pytest.fixture(scope="module")
def stand_in(postgres: PrivatePostgres, ministack: Ministack) -> Iterator[RedshiftStandIn]:
    ministack.create_bucket(BUCKET)
    with RedshiftStandIn(postgres, ministack) as server:
        yield server


def connect(server: RedshiftStandIn, **options: Any) -> Connection:
    connection = server.connection()
    assert connection.password is not None
    made = redshift_connector.connect(
        host=connection.host,
        port=connection.port,
        database=connection.database,
        user=connection.user,
        password=connection.password.reveal(),
        ssl=False,
        **options,
    )
    made.autocommit = True
    return made


@pytest.fixture
def session(stand_in: RedshiftStandIn) -> Iterator["Asking"]:
    stand_in.forget()
    with Asking(connect(stand_in, max_prepared_statements=0)) as asking:
        yield asking


class Asking:
    """A client with the real driver, that remembers nothing of its statements."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def __call__(self, sql: str) -> list[Any]:
        cursor = self.connection.cursor()
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def refused(self, sql: str) -> dict[str, str]:
        with pytest.raises(ProgrammingError) as caught:
            self(sql)
        answer = caught.value.args[0]
        assert isinstance(answer, dict)
        return answer

    def __enter__(self) -> "Asking":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


@pytest.fixture
def table(session: Asking) -> str:
    name = f"t_{uuid.uuid4().hex[:8]}"
    session(f"CREATE TABLE {name} (id INTEGER NOT NULL, name VARCHAR(10))")
    return name


class Bucket:
    """Files for COPY."""

    def __init__(self, server: S3Server) -> None:
        self._prefix = uuid.uuid4().hex
        self._store = S3Store(
            BUCKET,
            endpoint=server.endpoint,
            region=REGION,
            access_key_id=server.access_key,
            secret_access_key=server.secret_key,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )

    def put(self, name: str, data: bytes) -> str:
        obstore.put(self._store, f"{self._prefix}/{name}", data)
        return f"s3://{BUCKET}/{self._prefix}/{name}"

    def get(self, url: str) -> bytes:
        key = url.removeprefix(f"s3://{BUCKET}/")
        return bytes(obstore.get(self._store, key).bytes())

    def entry(self, rows: pa.Table, **options: Any) -> dict[str, Any]:
        """Write a Parquet file, and say how a manifest names it."""
        buffer = BytesIO()
        pq.write_table(rows, buffer, **options)
        data = buffer.getvalue()
        url = self.put(f"{uuid.uuid4().hex}.parquet", data)
        return {"url": url, "mandatory": True, "meta": {"content_length": len(data)}}

    def manifest(self, *entries: dict[str, Any]) -> str:
        return self.put(f"{uuid.uuid4().hex}.manifest", json.dumps({"entries": entries}).encode())


@pytest.fixture
def bucket(stand_in: RedshiftStandIn, ministack: Ministack) -> Bucket:
    return Bucket(ministack)


def people(*names: str | None) -> pa.Table:
    ids = pa.array(range(1, len(names) + 1), pa.int32())
    return pa.table({"id": ids, "name": pa.array(names, pa.string())})


def copy(table: str, manifest: str, options: str = PARQUET) -> str:
    return f"COPY {table} FROM '{manifest}' {AUTHORIZED} {options}"


def test_it_says_that_it_is_redshift(session: Asking) -> None:
    assert (b"server_version", b"8.0.2") in session.connection.parameter_statuses
    assert session("SHOW transaction_isolation") == [("serializable",)]


def test_encryption_is_refused_as_it_has_none(stand_in: RedshiftStandIn) -> None:
    with socket.create_connection((stand_in.host, stand_in.port)) as client:
        client.sendall(struct.pack("!ii", 8, 80877103))
        assert client.recv(1) == b"N"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_wrong_password_is_refused(stand_in: RedshiftStandIn) -> None:
    connection = stand_in.connection(password=Secret("wrong"))
    with pytest.raises(FloodmarkError, match="password authentication failed") as caught:
        RedshiftSession(connection)
    assert "'password'" in str(caught.value.hint)
    del caught
    gc.collect()  # the driver leaves its socket behind


def test_copy_loads_what_the_manifest_names(session: Asking, table: str, bucket: Bucket) -> None:
    manifest = bucket.manifest(bucket.entry(people("a", "", None)), bucket.entry(people('"é\n,')))
    session(copy(table, manifest))
    assert session("SELECT pg_last_copy_count()") == [(4,)]
    rows = session(f"SELECT id, name FROM {table} ORDER BY id, name")
    assert rows == [(1, '"é\n,'), (1, "a"), (2, ""), (3, None)]


def test_copy_is_part_of_the_transaction(session: Asking, table: str, bucket: Bucket) -> None:
    session("BEGIN")
    session(copy(table, bucket.manifest(bucket.entry(people("a")))))
    assert session(f"SELECT COUNT(*) FROM {table}") == [(1,)]
    session("ROLLBACK")
    assert session(f"SELECT COUNT(*) FROM {table}") == [(0,)]


@pytest.mark.parametrize(
    "option",
    ["MAXERROR 5", "REGION 'us-east-1'", "COMPUPDATE OFF", "TRUNCATECOLUMNS", "ACCEPTANYDATE"],
)
def test_copy_refuses_options_that_parquet_has_not(
    session: Asking, table: str, option: str
) -> None:
    answer = session.refused(copy(table, "s3://b/k", f"{PARQUET} {option}"))
    assert f"{option.split()[0]} argument is not supported for PARQUET" in answer["M"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("COPY {t} FROM 's3://b/k' FORMAT AS PARQUET MANIFEST", "CREDENTIALS"),
        ("COPY {t} FROM 's3://b/k' IAM_ROLE 'me' FORMAT PARQUET MANIFEST", "not an ARN"),
        ("COPY {t} FROM 's3://b/k' IAM_ROLE default MANIFEST CSV", "CSV argument"),
        ("COPY {t} FROM 's3://b/k' IAM_ROLE default FORMAT PARQUET", "MANIFEST names"),
        ("COPY {t} FROM STDIN", "source is not supported"),
        (
            "COPY {t} FROM 's3://b/k' IAM_ROLE 'arn:aws:iam::999999999999:role/x' PARQUET MANIFEST",
            "not authorized",
        ),
        (f"COPY {{t}} FROM 's3://{BUCKET}/none' {AUTHORIZED} PARQUET MANIFEST", "NoSuchKey"),
    ],
)
def test_copy_refuses_invalid_syntax(
    session: Asking, table: str, statement: str, message: str
) -> None:
    assert message in session.refused(statement.format(t=table))["M"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"meta": {}}, "'meta'"),
        ({"meta": {"content_length": 7}}, "the manifest says 7 bytes"),
        ({"url": f"s3://{BUCKET}/gone.parquet"}, "does not exist"),
    ],
)
def test_copy_refuses_a_manifest_that_is_not_right(
    session: Asking, table: str, bucket: Bucket, change: dict[str, Any], message: str
) -> None:
    entry = {**bucket.entry(people("a")), **change}
    answer = session.refused(copy(table, bucket.manifest(entry)))
    assert message in answer["M"] + answer.get("D", "")


def test_a_missing_file_is_passed_over_unless_mandatory(
    session: Asking, table: str, bucket: Bucket
) -> None:
    gone = {"url": f"s3://{BUCKET}/gone.parquet", "meta": {"content_length": 7}}
    session(copy(table, bucket.manifest(gone, bucket.entry(people("a")))))
    assert session("SELECT pg_last_copy_count()") == [(1,)]


MISMATCHES = {
    "nanoseconds": ("TIMESTAMP", pa.array([1], pa.timestamp("ns")), "nanoseconds"),
    "no timestamp": ("TIMESTAMPTZ", pa.array([1], pa.int64()), "not a timestamp"),
    "unsigned": ("BIGINT", pa.array([1], pa.uint32()), "unsigned"),
    "precision": ("DECIMAL(12,2)", pa.array([1], pa.decimal128(10, 2)), "not decimal(12, 2)"),
    "scale": ("DECIMAL(12,2)", pa.array([1], pa.decimal128(12, 3)), "not decimal(12, 2)"),
    "wider": ("INTEGER", pa.array([1], pa.int64()), "int64 is not int32"),
    "narrower": ("BIGINT", pa.array([1], pa.int32()), "int32 is not int64"),
    "text": ("INTEGER", pa.array(["1"]), "string is not int32"),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_copy_refuses_types_that_do_not_fit(session: Asking, bucket: Bucket, case: str) -> None:
    kind, values, message = MISMATCHES[case]
    session(f"CREATE TEMPORARY TABLE mismatched (v {kind})")
    options = {"version": "2.6"} if case == "nanoseconds" else {}
    answer = session.refused(
        copy("mismatched", bucket.manifest(bucket.entry(pa.table([values], ["v"]), **options)))
    )
    assert "incompatible Parquet schema for column 'v'" in answer["D"]
    assert message in answer["D"]


def test_copy_fills_the_columns_that_it_names(session: Asking, table: str, bucket: Bucket) -> None:
    manifest = bucket.manifest(bucket.entry(people("a").select(["name", "id"])))
    session(copy(f'{table} ("name", id)', manifest))
    assert session(f"SELECT id, name FROM {table}") == [(1, "a")]
    other = bucket.manifest(bucket.entry(people("b").select(["id"])))
    session(copy(f"{table} (id)", other))
    assert session(f"SELECT id, name FROM {table} WHERE name IS NULL") == [(1, None)]


def test_copy_fills_a_timestamptz(session: Asking, bucket: Bucket) -> None:
    session("CREATE TEMPORARY TABLE moments (v TIMESTAMPTZ)")
    rows = pa.table([pa.array([0], pa.timestamp("us", "UTC"))], ["v"])
    session(copy("moments", bucket.manifest(bucket.entry(rows))))
    assert session("SELECT v = '1970-01-01 00:00:00+00' FROM moments") == [(True,)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"compression": "zstd"}, "Unsupported compression ZSTD"),
        ({"compression": "lz4"}, "Unsupported compression LZ4"),
        ({"data_page_version": "2.0"}, "Unsupported data page version"),
        ({"compression": "gzip"}, None),
        ({"compression": "snappy"}, None),
        ({"compression": "none", "use_dictionary": False}, None),
    ],
)
def test_copy_knows_few_codecs_and_pages(
    session: Asking, table: str, bucket: Bucket, options: dict[str, Any], reason: str | None
) -> None:
    statement = copy(table, bucket.manifest(bucket.entry(people("a"), **options)))
    if reason:
        assert reason in session.refused(statement)["D"]
    else:
        session(statement)


def test_copy_refuses_a_bucket_of_another_region(
    stand_in: RedshiftStandIn, session: Asking, table: str, bucket: Bucket
) -> None:
    stand_in.buckets_elsewhere.add(BUCKET)
    answer = session.refused(copy(table, bucket.manifest(bucket.entry(people("a")))))
    assert "PermanentRedirect" in answer["M"]


def test_copy_refuses_a_decimal_of_another_width(session: Asking, bucket: Bucket) -> None:
    session("CREATE TEMPORARY TABLE mismatched (v DECIMAL(5,0))")
    rows = pa.table([pa.array([1], pa.decimal128(5, 0))], ["v"])
    session(copy("mismatched", bucket.manifest(bucket.entry(rows))))
    wide = bucket.entry(rows, store_decimal_as_integer=True)
    assert "of another width" in session.refused(copy("mismatched", bucket.manifest(wide)))["D"]


def test_copy_refuses_another_number_of_columns(
    session: Asking, table: str, bucket: Bucket
) -> None:
    manifest = bucket.manifest(bucket.entry(people("a").select(["id"])))
    assert "Unmatched number of columns" in session.refused(copy(table, manifest))["D"]


def test_text_is_measured_in_bytes_and_the_error_is_noted(
    session: Asking, table: str, bucket: Bucket
) -> None:
    session(copy(table, bucket.manifest(bucket.entry(people("é" * 5)))))
    session.refused(copy(table, bucket.manifest(bucket.entry(people("é" * 6)))))
    rows = session(
        "SELECT TRIM(column_name), TRIM(column_length), TRIM(error_message)"
        " FROM sys_load_error_detail WHERE session_id = pg_backend_pid()"
    )
    assert [(name, length) for name, length, _ in rows] == [("name", "10")]
    assert "Data: 12" in rows[0][2]


REFUSED = {
    "on conflict": "INSERT INTO {t} (id) VALUES (1) ON CONFLICT DO NOTHING",
    "returning": "INSERT INTO {t} (id) VALUES (1) RETURNING id",
    "index": "CREATE INDEX i ON {t} (id)",
    "unique index": "CREATE UNIQUE INDEX i ON {t} (id)",
    "several columns": "ALTER TABLE {t} ADD COLUMN a INTEGER, ADD COLUMN b INTEGER",
    "bytea": "CREATE TABLE x (v BYTEA)",
    "jsonb": "CREATE TABLE x (v JSONB)",
    "serial": "CREATE TABLE x (v SERIAL)",
    "uuid": "ALTER TABLE {t} ADD COLUMN v UUID",
    "long varchar": "CREATE TABLE x (v VARCHAR(65536))",
    "long varbyte": "CREATE TABLE x (v VARBYTE(16777217))",
    "many digits": "CREATE TABLE x (v DECIMAL(39,0))",
    "much after the point": "CREATE TABLE x (v DECIMAL(38,38))",
    "distkey of bytes": "CREATE TABLE x (v VARBYTE(16)) DISTKEY (v)",
    "distkey of bytes in the column": "CREATE TABLE x (v VARBYTE(16) DISTKEY)",
    "distkey of super": "CREATE TABLE x (v SUPER) DISTKEY (v)",
    "other types": "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
    "not text": "ALTER TABLE {t} ALTER COLUMN id TYPE VARCHAR(20)",
    "unknown key": "CREATE TABLE x (v INTEGER) DISTKEY (w)",
    "two distkeys": "CREATE TABLE x (v INTEGER, w INTEGER) DISTKEY (v, w)",
    "tablespace": "CREATE TABLE x (v INTEGER) TABLESPACE y",
    "alias": "DELETE FROM {t} AS a USING {t} WHERE a.id = {t}.id",
    "alias in using": "DELETE FROM {t} USING pg_class AS c WHERE c.oid = {t}.id",
    "lock mode": "LOCK TABLE {t} IN SHARE MODE",
    "leader": "INSERT INTO {t} (name) VALUES (CURRENT_TIMESTAMP)",
    "two statements": "DELETE FROM {t}; DELETE FROM {t}",
    "do": "DO $$ BEGIN END $$",
    "vacuum": "VACUUM {t}",
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_refuses_what_redshift_has_not(session: Asking, table: str, case: str) -> None:
    answer = session.refused(REFUSED[case].format(t=table))
    assert answer["C"] in ("0A000", "42601", "22023", "42703")


def test_a_refusal_ends_the_transaction_as_any_error_does(session: Asking, table: str) -> None:
    session("BEGIN")
    session(f"INSERT INTO {table} (id) VALUES (1)")
    session.refused(REFUSED["returning"].format(t=table))
    assert session.refused(f"SELECT * FROM {table}")["C"] == "25P02"
    session("ROLLBACK")
    assert session(f"SELECT COUNT(*) FROM {table}") == [(0,)]


SYSTEM_COLUMNS = [
    "oid", "tableoid", "xmin", "xmax", "cmin", "cmax", "ctid", "insertxid", "deletexid"
]  # fmt: skip


@pytest.mark.parametrize("name", SYSTEM_COLUMNS)
def test_names_of_system_columns_are_taken(session: Asking, table: str, name: str) -> None:
    for statement in (f'CREATE TABLE x ("{name}" INT)', f'ALTER TABLE {table} ADD "{name}" INT'):
        assert "conflicts with a system column name" in session.refused(statement)["M"]


# Text


@pytest.fixture
def texts(session: Asking) -> str:
    name = f"t_{uuid.uuid4().hex[:8]}"
    session(f"CREATE TABLE {name} (v VARCHAR(10), n INTEGER)")
    session(f"INSERT INTO {name} VALUES ('a', 1), ('a ', 2), ('a  ', 3), (' a', 4)")
    return name


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT COUNT(*) FROM {t} WHERE v = 'a'", 3),
        ("SELECT COUNT(*) FROM {t} WHERE v IN ('a   ', 'b')", 3),
        ("SELECT COUNT(*) FROM {t} WHERE v <> 'a'", 1),
        ("SELECT COUNT(DISTINCT v) FROM {t}", 2),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT v FROM {t}) AS d", 2),
        ("SELECT COUNT(*) FROM (SELECT v FROM {t} GROUP BY v) AS d", 2),
        ("SELECT MAX(r) FROM (SELECT RANK() OVER (PARTITION BY v ORDER BY n) AS r FROM {t}) d", 3),
        ("SELECT COUNT(*) FROM {t} AS a JOIN {t} AS b ON a.v = b.v", 10),
        ("SELECT COUNT(*) FROM {t} WHERE RTRIM(v) = 'a '", 3),
        ("SELECT SUM(LEN(v)) FROM {t}", 8),
        ("SELECT MAX(OCTET_LENGTH(v)) FROM {t}", 3),
        ("SELECT COUNT(*) FROM {t} WHERE v LIKE 'a'", 1),
        ("SELECT COUNT(DISTINCT CAST(v AS VARBYTE)) FROM {t}", 4),
    ],
)  # fmt: skip
def test_text_is_compared_without_its_trailing_blanks(
    session: Asking, texts: str, query: str, expected: int
) -> None:
    assert session(query.format(t=texts)) == [(expected,)]


def test_text_keeps_its_trailing_blanks(session: Asking, texts: str) -> None:
    assert session(f"SELECT v FROM {texts} WHERE n = 3") == [("a  ",)]
    assert session.refused(f"INSERT INTO {texts} VALUES ('éééééé', 5)")["C"] == "22001"
    session(f"INSERT INTO {texts} VALUES ('ééééé   ', 5)")
    assert session(f"SELECT v FROM {texts} WHERE n = 5") == [("é" * 5,)]


def test_a_function_returns_no_more_than_the_longest_text(session: Asking) -> None:
    session("CREATE TEMPORARY TABLE bytes (v VARBYTE(40000))")
    session(f"INSERT INTO bytes VALUES ('{'x' * 32_767}')")
    assert len(session("SELECT FROM_VARBYTE(v, 'hex') FROM bytes")[0][0]) == 65_534
    assert session("SELECT v FROM bytes") == [("x" * 32_767,)]  # the driver takes it for UTF-8
    session(f"INSERT INTO bytes VALUES ('{'x' * 32_768}')")
    assert "65535" in session.refused("SELECT FROM_VARBYTE(v, 'hex') FROM bytes")["M"]


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"b": {"a": 1, "c": 0, "a": 1}}]'])
def test_json_with_an_attribute_twice(session: Asking, text: str) -> None:
    parsed = f"SELECT JSON_SERIALIZE(JSON_PARSE('{text}'))"
    assert "duplicate" in session.refused(parsed)["M"]
    session("SET json_parse_dedup_attributes TO ON")
    assert '"a"' in session(parsed)[0][0]
    session("SET json_parse_dedup_attributes TO OFF")
    session.refused(parsed)


def test_strings_in_json_are_no_longer_than_the_longest_text(session: Asking) -> None:
    parsed = 'SELECT JSON_PARSE(\'[{{"a": "{}"}}]\') IS NULL'
    assert session(parsed.format("x" * 65_535)) == [(False,)]
    assert "65535" in session.refused(parsed.format("x" * 65_536))["M"]


# Long names


def test_names_of_127_bytes_are_distinct(session: Asking) -> None:
    table, column = f"t_{uuid.uuid4().hex}".ljust(127, "x"), "Ä" + "c" * 125
    session(f'CREATE TABLE "{table}" ("{column}" INTEGER, "{column[:-1]}d" VARCHAR(9) ENCODE ZSTD)')
    session(f'INSERT INTO {table} ("{column}") VALUES (1)')
    shown = (
        "SELECT attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        f" WHERE relname = '{table}' AND attnum > 0 ORDER BY attnum"
    )
    assert session(shown) == [(column,), (f"{column[:-1]}d",)]
    assert session(
        f"SELECT column_name, encoding FROM svv_redshift_columns WHERE table_name = '{table}'"
        " AND encoding <> 'none'"
    ) == [(f"{column[:-1]}d", "zstd")]
    cursor = session.connection.cursor()
    cursor.execute(f"SELECT \"{column}\", '{column}' FROM {table}")
    assert cursor.description[0][0] in (column, column.encode())
    assert list(map(tuple, cursor.fetchall())) == [(1, column)]
    assert table in session.refused(f"SELECT * FROM {table}y WHERE {table}.z = 1")["M"]
    session(f'ALTER TABLE {table} ALTER COLUMN "{column[:-1]}d" TYPE VARCHAR(10)')


# UNLOAD and cursors


def unload(query: str, place: str, options: str = "FORMAT AS PARQUET MANIFEST") -> str:
    return f"UNLOAD ('{query}') TO '{place}' IAM_ROLE '{ROLE}' {options}"


def test_unload_writes_parquet_and_a_manifest(
    stand_in: RedshiftStandIn, session: Asking, bucket: Bucket, table: str
) -> None:
    session(f"INSERT INTO {table} VALUES (1, 'a '), (2, NULL), (3, 'é')")
    place = bucket.put("unloaded/", b"").removesuffix("/") + "_here/"
    session(unload(f"SELECT id, name, ''x'' AS c FROM {table} ORDER BY id", place))
    assert session("SELECT pg_last_unload_count()") == [(3,)]
    entries = json.loads(bucket.get(f"{place}manifest"))["entries"]
    assert len(entries) == 2
    found = pa.concat_tables(pq.read_table(BytesIO(bucket.get(e["url"]))) for e in entries)
    assert found.to_pylist() == [
        {"id": 1, "name": "a ", "c": "x"},
        {"id": 2, "name": None, "c": "x"},
        {"id": 3, "name": "é", "c": "x"},
    ]
    again = unload(f"SELECT id FROM {table}", place)
    assert "not empty" in session.refused(again)["M"]
    session(f"{again} ALLOWOVERWRITE")
    stand_in.may_unload = False
    assert "Access Denied" in session.refused(f"{again} ALLOWOVERWRITE")["M"]


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("SELECT TO_VARBYTE(''00'', ''hex'') AS b", "PARQUET MANIFEST"),
        ("SELECT 1 AS a LIMIT 1", "PARQUET MANIFEST"),
        ("SELECT 1 AS a, 2 AS a", "PARQUET MANIFEST"),
        ("DELETE FROM t", "PARQUET MANIFEST"),
        ("SELECT 1 AS a", "PARQUET MANIFEST GZIP"),
        ("SELECT 1 AS a", "PARQUET MANIFEST MAXFILESIZE 4 MB"),
    ],
)
def test_what_cannot_be_unloaded(session: Asking, bucket: Bucket, query: str, options: str) -> None:
    session.refused(unload(query, bucket.put("refused", b"") + "/", options))


def test_cursors_have_limits(stand_in: RedshiftStandIn, session: Asking, table: str) -> None:
    session(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    declare = f"DECLARE floodmark_c CURSOR FOR SELECT * FROM {table}"
    for refused in ("FETCH ALL FROM c", "FETCH FORWARD ALL FROM c", "FETCH FORWARD 1001 FROM c"):
        session.refused(refused)
    session("BEGIN")
    session(declare)
    assert len(session("FETCH FORWARD 1000 FROM floodmark_c")) == 2
    assert "one cursor" in session.refused(declare.replace("_c ", "_d "))["M"]
    session("ROLLBACK")
    stand_in.cursor_bytes = 5
    session("BEGIN")
    assert "maximum size" in session.refused(declare)["M"]
    session("ROLLBACK")


# What cannot be altered


@pytest.fixture
def arranged(session: Asking) -> str:
    name = f"t_{uuid.uuid4().hex[:8]}"
    session(
        f"CREATE TABLE {name} (d INTEGER, s VARCHAR(10), b VARCHAR(10) ENCODE BYTEDICT,"
        " k VARCHAR(10), e VARCHAR(10) ENCODE ZSTD, v VARCHAR(10), PRIMARY KEY (k))"
        " DISTKEY (d) SORTKEY (s, d)"
    )
    session(f"CREATE VIEW {name}_seen AS SELECT v FROM {name}")
    return name


def test_the_catalog_knows_keys_and_encodings(session: Asking, arranged: str) -> None:
    assert session(
        "SELECT column_name, encoding, distkey, sortkey FROM svv_redshift_columns"
        f" WHERE table_name = '{arranged}' ORDER BY ordinal_position"
    ) == [
        ("d", "none", True, 2), ("s", "none", False, 1), ("b", "bytedict", False, 0),
        ("k", "none", False, 0), ("e", "zstd", False, 0), ("v", "none", False, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("column", ["d", "s", "k", "v"])
def test_some_columns_cannot_be_dropped(session: Asking, arranged: str, column: str) -> None:
    session.refused(f"ALTER TABLE {arranged} DROP COLUMN {column}")
    session(f"ALTER TABLE {arranged} DROP COLUMN e")


@pytest.mark.parametrize("column", ["b", "k", "v"])
def test_some_columns_cannot_grow(session: Asking, arranged: str, column: str) -> None:
    session.refused(f"ALTER TABLE {arranged} ALTER COLUMN {column} TYPE VARCHAR(20)")
    session(f"ALTER TABLE {arranged} ALTER COLUMN e TYPE VARCHAR(20)")


def test_what_is_in_the_way_of_a_change_can_be_removed(session: Asking, arranged: str) -> None:
    for change in ("ALTER DISTSTYLE EVEN", "ALTER SORTKEY NONE", "ALTER COLUMN b ENCODE ZSTD"):
        session(f"ALTER TABLE {arranged} {change}")
    session.refused(f"ALTER TABLE {arranged} ALTER COLUMN b ENCODE ZSTD")
    session(f"DROP VIEW {arranged}_seen")
    session(f"ALTER TABLE {arranged} ALTER COLUMN b TYPE VARCHAR(20)")
    session(f"ALTER TABLE {arranged} DROP COLUMN v")
    session(f"ALTER TABLE {arranged} ADD COLUMN v VARCHAR(9) ENCODE LZO")
    session(f"ALTER TABLE {arranged} ALTER DISTKEY v")
    session(f"ALTER TABLE {arranged} ALTER SORTKEY (e, d)")
    assert session(
        "SELECT column_name, encoding, distkey, sortkey FROM svv_redshift_columns WHERE table_name"
        f" = '{arranged}' AND (distkey OR sortkey > 0) ORDER BY column_name"
    ) == [("d", "none", False, 2), ("e", "zstd", False, 1), ("v", "lzo", True, 0)]


def test_a_primary_key_takes_no_null_and_can_be_dropped(session: Asking, arranged: str) -> None:
    assert session.refused(f"INSERT INTO {arranged} (d) VALUES (1)")["C"] == "23502"
    shown = (
        "SELECT conname, pg_get_constraintdef(k.oid) FROM pg_constraint k"
        f" JOIN pg_class c ON c.oid = conrelid WHERE contype = 'p' AND relname = '{arranged}'"
    )
    assert session(shown) == [(f"{arranged}_pkey", "PRIMARY KEY (k)")]
    session.refused(f"ALTER TABLE {arranged} DROP CONSTRAINT other")
    session.refused(f"ALTER TABLE {arranged} ALTER COLUMN k DROP NOT NULL")
    session(f"ALTER TABLE {arranged} DROP CONSTRAINT {arranged}_pkey")
    assert session(shown) == []
    session(f"ALTER TABLE {arranged} DROP COLUMN k")


@pytest.mark.parametrize(
    "style", ["DISTSTYLE ALL DISTKEY (id)", "DISTSTYLE KEY", "DISTSTYLE ODD", "DISTSTYLE"]
)
def test_distribution_styles_that_contradict(session: Asking, style: str) -> None:
    assert session.refused(f"CREATE TABLE t (id INTEGER) {style}")["C"] == "42601"


def test_the_catalog_knows_how_a_table_is_distributed(session: Asking, arranged: str) -> None:
    shown = f"SELECT diststyle FROM svv_table_info WHERE \"table\" = '{arranged}'"
    assert session(shown) == [("KEY(d)",)]
    session(f"ALTER TABLE {arranged} ALTER DISTSTYLE ALL")
    assert session(shown) == [("ALL",)]
    session(f"ALTER TABLE {arranged} ALTER DISTKEY d")
    assert session(shown) == [("KEY(d)",)]


def test_a_table_that_is_there_keeps_its_keys(session: Asking, arranged: str) -> None:
    session(f"CREATE TABLE IF NOT EXISTS {arranged} (d INTEGER, s INTEGER) DISTKEY (s)")
    keys = (
        f"SELECT column_name FROM svv_redshift_columns WHERE distkey AND table_name = '{arranged}'"
    )
    assert session(keys) == [("d",)]


def test_text_grows_but_not_in_a_transaction(session: Asking, table: str) -> None:
    grow = f"ALTER TABLE {table} ALTER COLUMN name TYPE VARCHAR(20)"
    session("BEGIN")
    assert session.refused(grow)["C"] == "25001"
    session("ROLLBACK")
    session(grow)
    assert ("name", "character varying(20)") in shown(session, table)


def test_keys_are_not_enforced(session: Asking) -> None:
    session(
        "CREATE TABLE IF NOT EXISTS keyed (id INTEGER PRIMARY KEY ENCODE AZ64, v INTEGER UNIQUE,"
        " PRIMARY KEY (id)) DISTSTYLE KEY DISTKEY (id) COMPOUND SORTKEY (id, v)"
    )
    for _ in range(2):
        session("INSERT INTO keyed (id, v) VALUES (1, 1)")
    assert session("SELECT COUNT(*) FROM keyed") == [(2,)]


def test_truncate_commits(session: Asking, table: str) -> None:
    session(f"INSERT INTO {table} (id) VALUES (1)")
    session("BEGIN")
    session(f"TRUNCATE TABLE {table}")
    session("ROLLBACK")
    assert session(f"SELECT COUNT(*) FROM {table}") == [(0,)]


def test_types_are_shown_as_redshift_shows_them(session: Asking) -> None:
    session(
        'CREATE TABLE "Shown" ("Id" INT, "a b" TEXT, c VARCHAR, d DECIMAL, e VARBYTE,'
        " f VARBYTE(9), g SUPER, h TIMESTAMP, i TIMESTAMPTZ, j DOUBLE PRECISION, k VARCHAR(MAX))"
    )
    assert shown(session, "shown") == [
        ("id", "integer"),
        ("a b", "character varying(256)"),
        ("c", "character varying(256)"),
        ("d", "numeric(18,0)"),
        ("e", "binary varying(64000)"),
        ("f", "binary varying(9)"),
        ("g", "super"),
        ("h", "timestamp without time zone"),
        ("i", "timestamp with time zone"),
        ("j", "double precision"),
        ("k", "character varying(65535)"),
    ]


def test_a_connection_is_dropped_before_or_after_the_commit(
    stand_in: RedshiftStandIn, table: str
) -> None:
    for fault, rows in ((DropBefore(), 0), (DropAfter(), 1)):
        with Asking(connect(stand_in)) as session:
            session("BEGIN")
            session(f"INSERT INTO {table} (id) VALUES (1)")
            stand_in.plan = first(1, "COMMIT", fault)
            with pytest.raises((InterfaceError, ConnectionError)):
                session("COMMIT")
        assert stand_in.look(f"SELECT COUNT(*) FROM {table}") == [(rows,)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_user_is_locked_after_five_wrong_passwords(stand_in: RedshiftStandIn) -> None:
    stand_in.forget()
    wrong, right = stand_in.connection(password=Secret("wrong")), stand_in.connection()

    def refused(connection: RedshiftConnection) -> str:
        LOGINS.forget()
        with pytest.raises(FloodmarkError) as caught:
            RedshiftSession(connection)
        said = str(caught.value)
        del caught
        gc.collect()  # the driver leaves its socket behind
        return said

    for _ in range(4):
        assert "password authentication failed" in refused(wrong)
    RedshiftSession(right).close()  # which counts from the start
    for _ in range(5):
        assert "password authentication failed" in refused(wrong)
    assert "user is locked" in refused(right)
    stand_in.forget()
    LOGINS.forget()
    RedshiftSession(right).close()


def test_transactions_that_cannot_be_put_in_an_order(
    stand_in: RedshiftStandIn, session: Asking, table: str
) -> None:
    other = f"{table}_other"
    session(f"CREATE TABLE {other} (id INTEGER)")
    with Asking(connect(stand_in, max_prepared_statements=0)) as second:
        for asking, read, written in ((session, table, other), (second, other, table)):
            asking("BEGIN")
            asking(f"SELECT * FROM {read}")
            asking(f"INSERT INTO {written} (id) VALUES (1)")
        session("COMMIT")
        answer = second.refused("COMMIT")
    assert (answer["C"], answer["M"]) == ("XX000", "1023")
    assert "Serializable isolation violation" in answer["D"]


def test_with_snapshot_isolation_they_can(postgres: PrivatePostgres, ministack: Ministack) -> None:
    with (
        RedshiftStandIn(postgres, ministack, isolation="repeatable read") as server,
        Asking(connect(server, max_prepared_statements=0)) as one,
        Asking(connect(server, max_prepared_statements=0)) as two,
    ):
        one("CREATE TABLE a (id INTEGER)")
        one("CREATE TABLE b (id INTEGER)")
        for asking, read, written in ((one, "a", "b"), (two, "b", "a")):
            asking("BEGIN")
            asking(f"SELECT * FROM {read}")
            asking(f"INSERT INTO {written} (id) VALUES (1)")
        one("COMMIT")
        two("COMMIT")
        assert one("SELECT (SELECT COUNT(*) FROM a), (SELECT COUNT(*) FROM b)") == [(1, 1)]


def test_who_writes_keeps_other_writers_out(
    stand_in: RedshiftStandIn, session: Asking, table: str
) -> None:
    session("BEGIN")
    session(f"INSERT INTO {table} (id) VALUES (1)")
    locks = f"SELECT mode FROM pg_locks WHERE relation = '{table}'::regclass ORDER BY mode"
    assert ("ShareRowExclusiveLock",) in stand_in.look(locks)
    session("ROLLBACK")


def test_sessions_are_listed_while_they_last(stand_in: RedshiftStandIn, session: Asking) -> None:
    with Asking(connect(stand_in, max_prepared_statements=0)) as other:
        ((pid,),) = other("SELECT pg_backend_pid()")
        listed = f"SELECT process FROM stv_sessions WHERE process = {pid}"
        assert session(listed) == [(pid,)]


@pytest.mark.parametrize("fault", [*NOT_SERIALIZABLE, CANCELLED, S3_FORBIDDEN, DENIED])
def test_it_fails_as_redshift_fails(
    stand_in: RedshiftStandIn, session: Asking, table: str, fault: Fail
) -> None:
    stand_in.plan = first(1, "DELETE", fault)
    answer = session.refused(f"DELETE FROM {table}")
    assert (answer["M"], answer["C"]) == (fault.message, fault.code)
    session(f"DELETE FROM {table}")


def test_it_raises_1023(stand_in: RedshiftStandIn, session: Asking, table: str) -> None:
    stand_in.plan = first(1, "INSERT", SERIALIZATION_VIOLATION)
    answer = session.refused(f"INSERT INTO {table} (id) VALUES (1)")
    assert answer["M"] == "1023"
    session(f"INSERT INTO {table} (id) VALUES (1)")


def shown(session: Asking, table: str) -> list[Any]:
    return session(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a"
        f" JOIN pg_class c ON c.oid = a.attrelid WHERE c.relname = '{table}' AND a.attnum > 0"
        " ORDER BY a.attnum"
    )
