"""Targets for tests: each empty, with a lake beside it and rows to put there."""

import json
import os
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs
from psycopg.types.json import set_json_loads

from floodmark.config.aws_login import with_login
from floodmark.config.models import (
    Connection,
    DuckdbConnection,
    IamSettings,
    LakeSettings,
    PostgresConnection,
    RedshiftConnection,
)
from floodmark.config.secret import Secret
from floodmark.errors import FloodmarkError
from floodmark.model.load import LoadBatch, LoadChunk, LoadDeletes, TargetTable
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Column
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore
from floodmark.warehouse.factory import open_target
from floodmark.warehouse.parallel import ParallelRun
from floodmark.warehouse.quarantine import Quarantine, load_what_fits
from floodmark.warehouse.redshift.target import RedshiftTarget
from floodmark.warehouse.sql_target import SqlTarget
from floodmark.warehouse.unsupported_values import may_be_null
from floodmark.worker.conversion import arrow_type
from parallel_loads import ALWAYS
from scenarios import Lake, new_lake
from servers.postgres import PrivatePostgres
from servers.redshift import RedshiftStandIn

Row = Mapping[str, Any]

NO_LAKE = LakeSettings(url="s3://none")
DELETED_AT = datetime(2025, 8, 2, 3, 4, 5, 678901, UTC)
"""When every reconciliation of a test was committed."""

ODD = "odd"
# Defaults of a database that would change what text means, if a session did not say otherwise.
ODD_DEFAULTS = {
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
    "datestyle": "SQL, DMY",
    "default_transaction_isolation": "serializable",
    "search_path": "nowhere",
    "timezone": "Asia/Kolkata",
}


@dataclass(frozen=True)
class Warehouse:
    """An empty target, and its lake. Can be sent to another process."""

    connection: Connection
    lake: Lake
    spread: ParallelRun | None = None

    def open(
        self, objects: ObjectStore | None = None, spread: ParallelRun | None = None
    ) -> SqlTarget:
        """Open the target as a run does."""
        url = self.lake.folder or f"s3://{self.lake.bucket}/{self.lake.prefix}"
        settings = LakeSettings(url=url, endpoint=self.lake.endpoint or None)
        objects = objects or self.lake.open()
        target = open_target(self.connection, objects, settings, spread=spread or self.spread)
        assert isinstance(target, SqlTarget)
        target.pause = lambda _: None
        return target

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the target with a client of our own; `{schema}` stands for its schema."""
        match self.connection:
            case DuckdbConnection(path=path):
                with duckdb.connect(path) as database:
                    database.execute("SET TimeZone = 'UTC'")
                    cursor = database.execute(sql.replace("{schema}", '"main"'))
                    return cursor.fetchall() if cursor.description else []
            case RedshiftConnection(ssl=True) as settings:
                with RedshiftTarget(settings, MemoryObjectStore(), NO_LAKE) as target:
                    return target._query(sql.replace("{schema}", quoted(settings.schema)))
            case PostgresConnection() | RedshiftConnection() as settings:
                with connect_postgres(settings) as connection:
                    answer = connection.execute(sql.replace("{schema}", quoted(settings.schema)))
                    return answer.fetchall() if answer.description else []
        raise NotImplementedError(type(self.connection))

    def rows(self, table: TargetTable) -> list[dict[str, Any]]:
        """All rows of a table, with values as they went in."""
        names = [column.name for column in table.columns]
        wanted = ", ".join(map(quoted, names))
        found = self.query(f"SELECT {wanted} FROM {{schema}}.{quoted(table.name)}")
        return [
            {column.name: plain(column, v) for column, v in zip(table.columns, row, strict=True)}
            for row in found
        ]


def connect_postgres(
    settings: PostgresConnection | RedshiftConnection,
) -> "psycopg.Connection[tuple[Any, ...]]":
    """A session of a person, in UTC."""
    assert settings.password is not None
    connection = psycopg.connect(
        host=settings.host,
        port=settings.port,
        dbname=settings.database,
        user=settings.user,
        password=settings.password.reveal(),
        autocommit=True,
        options="-c timezone=UTC -c datestyle=ISO -c client_encoding=UTF8",
    )
    set_json_loads(lambda text: text.decode() if isinstance(text, bytes) else text, connection)
    return connection


def new_duckdb(folder: Path, lake: Lake) -> Warehouse:
    return Warehouse(DuckdbConnection(path=str(folder / "warehouse.duckdb")), lake)


def new_postgres(server: PrivatePostgres, lake: Lake) -> Warehouse:
    """A schema that is not there yet, in a database with odd defaults."""
    _make_odd_database(server)
    return Warehouse(
        PostgresConnection(
            host=server.host,
            port=server.port,
            database=ODD,
            user=server.user,
            password=Secret(server.password),
            schema=f'the "lake" {uuid.uuid4().hex[:8]}',
        ),
        lake,
    )


def new_redshift(server: RedshiftStandIn, lake: Lake) -> Warehouse:
    """A schema that is not there yet."""
    server.forget()
    return Warehouse(server.connection(schema=f'the "lake" {uuid.uuid4().hex[:8]}'), lake)


def real_redshift() -> Warehouse | None:
    """A schema that is not there yet on the cluster that the environment names, if it does.

    An address without a user is entered by IAM.
    """
    names = ("FLOODMARK_REDSHIFT_URL", "FLOODMARK_REDSHIFT_LAKE", "FLOODMARK_REDSHIFT_ROLE")
    url, lake, role = (os.environ.get(name, "") for name in names)
    if not (url and lake and role):
        return None
    parts = urlsplit(url)
    bucket, _, prefix = lake.removeprefix("s3://").strip("/").partition("/")
    connection = RedshiftConnection(
        host=str(parts.hostname),
        port=parts.port or 5439,
        database=parts.path.strip("/"),
        user=unquote(parts.username or ""),
        password=Secret(unquote(parts.password)) if parts.password else None,
        iam=None if parts.password else IamSettings(),
        schema=f"floodmark_test_{uuid.uuid4().hex[:8]}",
        iam_role=role,
    )
    return Warehouse(
        with_login(connection),
        Lake(bucket=bucket, prefix=f"{prefix}/{uuid.uuid4().hex}".strip("/")),
    )


@cache
def _make_odd_database(server: PrivatePostgres) -> None:
    server.execute(f"CREATE DATABASE {ODD}")
    for name, value in ODD_DEFAULTS.items():
        server.execute(f"ALTER DATABASE {ODD} SET {name} = '{value}'")


def new_warehouse(kind: str, request: pytest.FixtureRequest, folder: Path) -> Warehouse:
    """An empty target of a kind, with an empty lake; servers are asked for by their fixtures."""
    make: dict[str, Callable[[], Warehouse]] = {
        "duckdb": lambda: new_duckdb(folder, new_lake("local", request, folder)),
        "duckdb-s3": lambda: new_duckdb(folder, new_lake("ministack", request, folder)),
        "postgres": lambda: new_postgres(
            request.getfixturevalue("postgres"), new_lake("local", request, folder)
        ),
        "postgres-workers": lambda: replace(
            new_warehouse("postgres", request, folder), spread=ALWAYS
        ),
        "postgres-s3": lambda: new_postgres(
            request.getfixturevalue("postgres"), new_lake("ministack", request, folder)
        ),
        "redshift": lambda: new_redshift(
            request.getfixturevalue("redshift"), new_lake("ministack", request, folder)
        ),
    }
    return make[kind]()


def name_target(config: str, connection: Connection) -> None:
    """Let a configuration name another target than its own DuckDB."""
    fields = {name: getattr(connection, name) for name in connection.__struct_fields__}
    settings: dict[str, Any] = {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in fields.items()
        if isinstance(value, str | int | Secret)
    }
    settings["type"] = type(connection).__struct_config__.tag
    file = Path(config)
    local = "{type: duckdb, path: ./warehouse.duckdb}"
    text = file.read_text()
    assert local in text
    file.write_text(text.replace(local, json.dumps(settings)))


def quoted(name: str) -> str:
    """A name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def plain(column: Column, value: Any) -> Any:
    """A value that a target returned, in the form in which tests write it."""
    if value is None:
        return None
    if column.type == "json":
        return json.loads(value)
    if column.type.startswith("decimal") and isinstance(value, str):
        return Decimal(value)
    if column.arrow == "binary" and isinstance(value, str):  # as Redshift shows it
        return bytes.fromhex(value)
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if column.arrow == "float32":
        return single(value)
    return value


def single(value: float) -> float:
    """The number of single precision that is nearest: what 0.1 is in a FLOAT."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def data_file(columns: Sequence[Column], rows: Sequence[Row]) -> bytes:
    """A Parquet file as stage 1 writes it."""
    schema = pa.schema(
        pa.field(column.name, arrow_type(column.arrow), may_be_null(column)) for column in columns
    )
    arrays = [
        pa.array([lake_value(c, row[c.name]) for row in rows], field.type)
        for c, field in zip(columns, schema, strict=True)
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=schema),
        sink,
        compression="snappy",
        store_schema=False,
        row_group_size=100_000,
    )
    return bytes(sink.getvalue().to_pybytes())


class AsItIs(str):
    """The text of a JSON column, which need not be JSON."""


def lake_value(column: Column, value: Any) -> Any:
    """A value as it lies in the lake."""
    if value is None or column.arrow != "string":
        return value
    if column.type == "json" and not isinstance(value, AsItIs):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


PEOPLE = TargetTable(
    name="people",
    columns=(
        Column("id", "bigint", False, "int64"),
        Column("name", "varchar(10)", True, "string"),
    ),
    primary_key=("id",),
    version=None,
)
"""A small table for tests of one target."""


class Loads:
    """Chunks of one table, and batches of them for a target."""

    def __init__(self, warehouse: Warehouse, table: TargetTable, source: str = "") -> None:
        self.warehouse = warehouse
        self.table = table
        self.source = source or f"A:b.{table.name}"
        self._objects = warehouse.lake.open()
        self._sequence = 0

    def chunk(
        self, *files: Sequence[Row], table: TargetTable | None = None, **facts: Any
    ) -> LoadChunk:
        """Write files into the lake, and describe them as the next manifest would."""
        self._sequence += 1
        data = [data_file((table or self.table).columns, rows) for rows in files]
        paths = [f"incremental/A/b.t/{uuid.uuid4().hex}.parquet" for _ in files]
        for path, content in zip(paths, data, strict=True):
            self._objects.put(path, content)
        return LoadChunk(
            head=facts.pop("head", ManifestId(1, self._sequence)),
            manifest=f"manifests/A/b.t/{self._sequence}.json",
            digest=facts.pop("digest", f"digest of {self._sequence}"),
            rows=facts.pop("rows", sum(map(len, files))),
            bytes=sum(map(len, data)),
            paths=tuple(paths),
            sizes=tuple(map(len, data)),
            start=f"id {self._sequence}",
            end=f"id {self._sequence + 1}",
        )

    def reconciled(
        self, deleted: Sequence[Row] = (), repaired: Sequence[Row] = (), **facts: Any
    ) -> tuple[LoadChunk, LoadDeletes]:
        """Write what a reconciliation commits: keys with the version seen, and whole rows."""
        deleted_at = facts.pop("deleted_at", None)
        chunk = self.chunk(*([repaired] if repaired else []), **facts)
        table = facts.get("table") or self.table
        version = [table.version] if table.version else []
        names = dict.fromkeys([*table.primary_key, *version])
        columns = tuple(table.column(name) for name in names)
        data, path = data_file(columns, deleted), f"deletes/A/b.t/{uuid.uuid4().hex}.parquet"
        self._objects.put(path, data)
        deletes = LoadDeletes(
            head=chunk.head,
            keys=len(deleted),
            paths=(path,),
            sizes=(len(data),),
            columns=columns,
            primary_key=table.primary_key,
            version=table.version,
            at=DELETED_AT,
            deleted_at=deleted_at,
        )
        return chunk, deletes

    def load_reconciled(self, found: tuple[LoadChunk, LoadDeletes], **options: Any) -> int:
        """Load a reconciliation as a run does."""
        chunk, deletes = found
        table = options.pop("table", self.table)
        options["table"] = structs.replace(table, deleted_at=deletes.deleted_at)
        return self.load(chunk, deletes=deletes, wins=True, **options)

    def deleted_rows(self, load_epoch: int = 1) -> dict[ManifestId, int]:
        """The number of rows that each manifest deleted, according to the ledger."""
        with self.warehouse.open() as target:
            return {e.head: e.deleted_rows for e in target.ledger(self.source, load_epoch)}

    def batch(self, *chunks: LoadChunk, **options: Any) -> LoadBatch:
        """A transaction's worth of chunks."""
        return LoadBatch(
            table_name=self.source,
            load_epoch=options.pop("load_epoch", 1),
            table=options.pop("table", self.table),
            chunks=chunks,
            session_id="20250801_000000_abcdef",
            **options,
        )

    def load(self, *chunks: LoadChunk, **options: Any) -> int:
        """Load as a run does: prepare the table, then load."""
        with self.warehouse.open() as target:
            batch = self.batch(*chunks, **options)
            target.prepare(batch.table)
            return target.load(batch)

    def load_what_fits(self, *chunks: LoadChunk, most_rows: int = 100, **options: Any) -> int:
        """Load as a run does, with rows that do not fit set aside."""
        with self.warehouse.open() as target:
            batch = self.batch(*chunks, **options)
            target.prepare(batch.table)
            return load_what_fits(target, batch, self.quarantine(most_rows))

    def quarantine(self, most_rows: int = 100) -> Quarantine:
        """Where rows are set aside."""
        return Quarantine(
            objects=self._objects,
            folder="quarantine/A/b.t/00000001/",
            copies="loads/copies/A/b.t/00000001/",
            most_rows=most_rows,
        )

    def set_aside(self) -> list[dict[str, Any]]:
        """What the files in quarantine say."""
        found = self._objects.list_objects(self.quarantine().folder)
        tables = [pq.read_table(pa.BufferReader(self._objects.get(i.key).data)) for i in found]
        return [record for table in tables for record in table.to_pylist()]

    def copies(self) -> list[str]:
        """Copies of data files that are still there."""
        return [info.key for info in self._objects.list_objects(self.quarantine().copies)]

    def rows(self, table: TargetTable | None = None) -> list[dict[str, Any]]:
        """What the target holds, in an order that does not depend on it."""
        return sorted(self.warehouse.rows(table or self.table), key=repr)


STEPS = ("_begin", "_lock_table", "_stage", "_execute", "_commit")


def fail_at(
    target: SqlTarget, number: int, moment: str, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Make the n-th step of a target fail; returns the steps taken, as they are taken."""
    steps: list[str] = []

    def struck(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            steps.append(name)
            mine = len(steps)
            if mine == number and moment == "before":
                raise FloodmarkError("struck")
            result = work(*arguments)
            if mine == number:
                raise FloodmarkError("struck")
            return result

        return step

    for name in STEPS:
        monkeypatch.setattr(target, name, struck(name, getattr(target, name)))
    return steps
