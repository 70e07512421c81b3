"""A source, a lake and a configuration, and the syncs that tests run over them."""

import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from itertools import count, pairwise
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql

from floodmark.cli.main import run
from floodmark.config.models import PostgresConnection, RedshiftConnection
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import FloodmarkError
from floodmark.model import lake_layout
from floodmark.model.extraction import Receipt, Window
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.table import TableName
from floodmark.model.verification import Comparison, WindowPair
from floodmark.model.watermark import Watermark
from floodmark.spark.compare import answered
from floodmark.state.lake_validation import Findings, validate
from floodmark.sync import spark_engine as engines
from floodmark.sync.spark_engine import SparkEngine
from floodmark.worker.compare_window import VerificationJob, run_comparison
from floodmark.worker.extract_window import run_window
from floodmark.worker.job import ExtractionJob
from scenarios import Lake, open_store
from servers.redshift import RedshiftStandIn

SCOPE = "PROD"
PROGRAM = [sys.executable, "-m", "floodmark"]

Session: TypeAlias = "pymysql.Connection[pymysql.cursors.Cursor]"
MakeEngine = Callable[..., SparkEngine]


class DirectEngine(SparkEngine):
    """Reads windows in this process, with as many tries as Spark gives them."""

    attempts = count()
    reading = Lock()  # the reader sets environment variables while it connects

    def prepare(self) -> None:
        """There is nothing to start."""

    def extract(
        self, job: ExtractionJob, windows: Sequence[Window], progress: Callable[[int], None]
    ) -> list[Receipt]:
        """Read all windows of a chunk, one after another, and one chunk after another."""
        with self.reading:
            return [self._read(job, window) for window in windows]

    def slots(self) -> int:
        """One window is read after another."""
        return 1

    def compare(self, job: VerificationJob, pairs: Sequence[WindowPair]) -> list[Comparison]:
        """Compare windows, one after another."""
        return answered(
            job, [run_comparison(job, pair, failures=job.source.tries) for pair in pairs]
        )

    def _read(self, job: ExtractionJob, window: Window) -> Receipt:
        failures = 0
        while True:
            try:
                outcome = run_window(job, window, attempt_id=next(self.attempts), failures=failures)
            except FloodmarkError:
                failures += 1
                continue
            if outcome.receipt is None:
                assert outcome.refusal is not None
                raise FloodmarkError(outcome.refusal.message, hint=outcome.refusal.hint)
            return outcome.receipt


def warm_engine(spark: Any) -> MakeEngine:
    """Make engines that all use one Spark, which goes on running."""

    class WarmEngine(SparkEngine):
        def _started(self) -> Any:
            self._session = spark
            return spark

        def stop(self) -> None:
            pass

    return WarmEngine


@dataclass(frozen=True)
class Ended:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        """The JSON that it printed."""
        return json.loads(self.out)

    @property
    def table(self) -> Any:
        """What a sync with `--json` says of its only table."""
        (table,) = self.value["tables"]
        return table


@dataclass(frozen=True)
class Pipeline:
    """Tables of one schema of a server, and a lake that they are synced to.

    `tables` are names and what the configuration says of them. Can be sent to another process.
    """

    folder: Path
    lake: Lake
    source: Mapping[str, Any]
    schema: str
    tables: Mapping[str, str]
    settings: str = ""
    engine: MakeEngine = field(default=DirectEngine, compare=False)

    @property
    def config(self) -> str:
        """The path of the configuration."""
        return str(self.folder / "floodmark.yml")

    def write_config(self, settings: str | None = None) -> "Pipeline":
        """Write the configuration; `settings` are sections of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        names = (f"      {json.dumps(f'{self.schema}.{t}')}: {s}\n" for t, s in self.tables.items())
        Path(self.config).write_text(
            f"lake: {self.lake.yaml}\n"
            "connections:\n"
            f"  {SCOPE}: {json.dumps({'type': 'mysql', **self.source})}\n"
            "  warehouse: {type: duckdb, path: ./warehouse.duckdb}\n"
            "pipelines:\n"
            f"  main:\n    source: {SCOPE}\n    target: warehouse\n    tables:\n{''.join(names)}"
            f"{self.settings if settings is None else settings}\n"
        )
        return self

    def sync(self, *arguments: str, engine: MakeEngine | None = None) -> Ended:
        """Run stage 1 of all tables in this process."""
        return self.call("sync", "-p", "main", "--backup-only", *arguments, engine=engine)

    def synced(self, *arguments: str, engine: MakeEngine | None = None) -> Any:
        """Run stage 1 of the only table, which must succeed, and return what it says."""
        ended = self.sync("--json", *arguments, engine=engine)
        assert ended.code == 0, ended
        return ended.table

    def call(self, *arguments: str, engine: MakeEngine | None = None) -> Ended:
        """Run a command in this process."""
        out, err = StringIO(), StringIO()
        with (
            patch.object(engines, "SparkEngine", engine or self.engine),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = run([*arguments, "--config", self.config])
        return Ended(code, out.getvalue(), err.getvalue())

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command as a user would, in a process group of its own."""
        return subprocess.Popen(
            [*PROGRAM, *arguments, "--config", self.config],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            start_new_session=True,
            env=cold_environment(),
        )

    def command(self, *arguments: str) -> Ended:
        """Run a command as a user would."""
        return finish(self.start(*arguments))

    def table(self, name: str = "t") -> TableName:
        """The full name of a table."""
        return TableName(SCOPE, self.schema, name)

    def watermark(self, name: str = "t") -> Watermark:
        """Where a table stands."""
        found = open_store(self.lake.open()).get(self.table(name), write_back=False)
        assert found is not None
        return found

    def manifests(self, name: str = "t") -> list[Manifest]:
        """The log of a table."""
        log = open_store(self.lake.open()).log
        return list(log.manifests(self.table(name)))

    def chunks(self, name: str = "t") -> list[Chunk]:
        """The chunks in the log of a table."""
        return [m.change for m in self.manifests(name) if isinstance(m.change, Chunk)]

    def rows(self, name: str = "t") -> list[dict[str, Any]]:
        """All rows that the manifests of a table name, in the order in which they came."""
        objects = self.lake.open()
        paths = [file.path for chunk in self.chunks(name) for file in chunk.files]
        tables = [pq.read_table(pa.BufferReader(objects.get(path).data)) for path in paths]
        return [row for table in tables for row in table.to_pylist()]

    def ids(self, name: str = "t", key: str = "id") -> Counter[Any]:
        """How often each key came."""
        return Counter(row[key] for row in self.rows(name))

    def newest(self, name: str = "t", key: str = "id") -> dict[Any, dict[str, Any]]:
        """The rows as stage 2 will have them: the last that came of each key."""
        return {row[key]: row for row in self.rows(name)}

    def files(self, name: str = "t") -> set[str]:
        """The data files that lie in the lake."""
        found = self.lake.open().list_objects(lake_layout.data_files(self.table(name)))
        return {info.key for info in found}

    def named_files(self, name: str = "t") -> set[str]:
        """The data files that manifests name."""
        return {file.path for chunk in self.chunks(name) for file in chunk.files}

    def findings(self, name: str = "t") -> Findings:
        """What `watermark validate` finds."""
        return validate(open_store(self.lake.open()), self.table(name))

    def check_tracking(self, name: str = "t") -> None:
        """Hold watermark, manifests and files against each other."""
        assert self.findings(name).differences == ()
        chunks = [chunk for chunk in self.chunks(name) if not chunk.only_columns]
        state = self.watermark(name).mysql_state
        assert self.named_files(name) <= self.files(name)
        assert state.total_rows == sum(chunk.rows for chunk in chunks) == len(self.rows(name))
        assert state.s3_file_count == len(self.named_files(name))
        assert state.chunk_count == len(chunks)
        for before, after in pairwise(chunks):
            assert after.reload or after.start == before.end


def new_pipeline(
    server: PrivateMariaDB,
    lake: Lake,
    folder: Path,
    tables: Mapping[str, str],
    *,
    settings: str = "",
    engine: MakeEngine = DirectEngine,
) -> Pipeline:
    """Make an empty schema on the server, and a configuration that syncs its tables."""
    schema = f"s_{uuid.uuid4().hex[:8]}"
    server.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
    return Pipeline(
        folder=folder,
        lake=lake,
        source=source_of(server),
        schema=schema,
        tables=tables,
        settings=settings,
        engine=engine,
    ).write_config()


def source_of(server: PrivateMariaDB) -> dict[str, Any]:
    """A server as a connection of the configuration."""
    return {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
    }


@contextmanager
def session(pipeline: Pipeline) -> Iterator[Session]:
    """A session such as an application has: autocommit, in the server's own zone."""
    connection = pymysql.connect(
        **pipeline.source,
        database=pipeline.schema,
        autocommit=True,
        charset="utf8mb4",
        ssl_disabled=True,
    )
    try:
        yield connection
    finally:
        connection.close()


def ask(connection: Session, sql: str) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def numbers(first: int, last: int) -> str:
    """A relation of numbers in the column `seq`, for a FROM, on each kind of server."""
    values = f"CONCAT('[0', REPEAT(',0', {last - first}), ']')"
    rows = f"JSON_TABLE({values}, '$[*]' COLUMNS (number FOR ORDINALITY)) AS found"
    return f"(SELECT number + {first - 1} AS seq FROM {rows}) AS numbers"


def ask_once(pipeline: Pipeline, sql: str, *, sql_mode: str | None = None) -> list[tuple[Any, ...]]:
    """Run one statement in a session of its own; zero dates need a mode that allows them."""
    with session(pipeline) as connection:
        if sql_mode is not None:
            ask(connection, f"SET sql_mode = '{sql_mode}'")
        return ask(connection, sql)


def finish(process: "subprocess.Popen[str]", seconds: float = 120) -> Ended:
    """Wait for a command; whatever is left of its group ends with it."""
    try:
        out, err = process.communicate(timeout=seconds)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return Ended(process.returncode, out, err)


def cold_environment() -> dict[str, str]:
    """The environment of a user's command."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def wait_until(condition: Callable[[], Any], seconds: float = 30) -> Any:
    """Poll until something is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
    return found


def use_redshift(synced: Pipeline, server: RedshiftStandIn, **changes: Any) -> None:
    """Have the configuration name the stand-in as its target."""
    connection = server.connection()
    settings = {
        **_settings_of(connection, "host", "port", "database", "user"),
        "iam_role": connection.iam_role,
        "ssl": False,
        "type": "redshift",
        **{name: value for name, value in changes.items() if value is not None},
    }
    _use_target(synced, settings)


def use_postgres(it: Pipeline, connection: PostgresConnection) -> None:
    """Have the configuration name a schema of PostgreSQL as its target."""
    settings = _settings_of(connection, "host", "port", "database", "user", "schema")
    _use_target(it, {"type": "postgres", **settings})


def _settings_of(connection: RedshiftConnection | PostgresConnection, *names: str) -> Any:
    assert connection.password is not None
    settings = {name: getattr(connection, name) for name in names}
    return settings | {"password": connection.password.reveal()}


def _use_target(it: Pipeline, settings: Mapping[str, Any]) -> None:
    path = Path(it.config)
    text = re.sub(
        r"^  warehouse: .*$", f"  warehouse: {json.dumps(settings)}", path.read_text(), flags=re.M
    )
    assert text != path.read_text()
    path.write_text(text)
