"""Extract windows into the lake, on a real Spark and without it, with tasks that fail or die."""

import hashlib
import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from floodmark.config.models import LakeSettings, MysqlConnection, RetrySettings
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import FloodmarkError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import Receipt, Window
from floodmark.model.manifest import DataFile
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.mysql.catalog import read_table
from floodmark.mysql.connection import connect
from floodmark.mysql.types import plan_columns
from floodmark.spark.class_archive import find_archive
from floodmark.spark.extract import extract, title_of
from floodmark.spark.jvm_launcher import find_java
from floodmark.spark.processes import Processes
from floodmark.spark.runner import Spark
from floodmark.spark.session import spark_session
from floodmark.storage.opening import open_lake
from floodmark.worker.job import ExtractionJob
from floodmark.worker.mysql_reader import connectorx_url
from pipelines import numbers, wait_until
from scenarios import use_test_keys
from servers.seaweedfs import SeaweedFS

SCHEMA = "extract_test"
BUCKET = "extract-test"
TABLE = TableName("S", SCHEMA, "orders")
ROWS = 20_000
# A password that means something to a URL, to SQL and to a shell.
USER, PASSWORD = "reader", "p@ss:w/o?r%d#'$x"


@pytest.fixture(scope="module")
def bucket(seaweedfs: SeaweedFS) -> SeaweedFS:
    seaweedfs.create_bucket(BUCKET)
    return seaweedfs


@pytest.fixture(scope="module")
def connection(server: PrivateMariaDB) -> Iterator[MysqlConnection]:
    server.execute(f"DROP DATABASE IF EXISTS {SCHEMA}")
    server.execute(f"CREATE DATABASE {SCHEMA}")
    server.execute(f"DROP USER IF EXISTS {USER}@'127.0.0.1'")
    server.execute(f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY %s", [PASSWORD])
    server.execute(f"GRANT SELECT ON {SCHEMA}.* TO {USER}@'127.0.0.1'")
    server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, update_at DATETIME NOT NULL, note VARCHAR(200),"
        " KEY (update_at, id))",
        database=SCHEMA,
    )
    server.execute(
        "INSERT INTO orders SELECT seq, '2025-01-01' + INTERVAL (seq DIV 10) SECOND,"
        f" SHA2(seq, 256) FROM {numbers(1, ROWS)}",
        database=SCHEMA,
    )
    yield MysqlConnection(host=server.host, port=server.port, user=USER, password=Secret(PASSWORD))
    server.execute(f"DROP DATABASE {SCHEMA}")
    server.execute(f"DROP USER {USER}@'127.0.0.1'")


@pytest.fixture(params=["local", "seaweedfs"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, bucket: SeaweedFS) -> LakeSettings:
    if request.param == "local":
        return LakeSettings(url=str(tmp_path))
    return LakeSettings(url=f"s3://{BUCKET}/{tmp_path.name}", endpoint=bucket.endpoint)


@pytest.fixture(params=["spark", "processes"])
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spark]:
    """Spark, and processes of our own."""
    if request.param == "spark":
        yield request.getfixturevalue("spark")
        return
    use_test_keys(monkeypatch)  # they inherit them
    processes = Processes(2, 4, lambda: None)
    yield processes
    processes.close()


@pytest.fixture
def folder(tmp_path: Path) -> LakeSettings:
    return LakeSettings(url=str(tmp_path))


def make_job(
    connection: MysqlConnection,
    lake: LakeSettings,
    *,
    order: str = "`update_at`, `id`",
    file_bytes: int = 1 << 30,
    row_group_bytes: int = 1 << 20,
    batch_rows: int = 1000,
) -> ExtractionJob:
    with connect(connection) as session:
        table = read_table(session, TABLE)
    return ExtractionJob(
        table=TABLE,
        session_id="20250809_200001_abcd",
        sequence=7,
        source=connection,
        relation=f"`{SCHEMA}`.`orders`",
        columns=plan_columns(table),
        cursor=Cursor(kind="timestamp", timestamp="update_at", key=("id",)),
        lake=lake,
        order=order,
        file_bytes=file_bytes,
        row_group_bytes=row_group_bytes,
        batch_rows=batch_rows,
    )


def small_files(connection: MysqlConnection, lake: LakeSettings) -> ExtractionJob:
    """A job that finishes a file every hundred rows, as they come."""
    return make_job(connection, lake, order="", file_bytes=1, row_group_bytes=1, batch_rows=100)


def window(part: int, first: int, last: int, *, slowly: bool = False) -> Window:
    pause = " AND SLEEP(0.002) = 0" if slowly else ""
    return Window(
        part=part, start=START, end=START, predicate=f"id BETWEEN {first} AND {last}{pause}"
    )


def sliced(part: int, *slices: Window) -> Window:
    return Window(part=part, start=START, end=START, predicate="FALSE", slices=slices)


def position(identity: int) -> Position:
    moment = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=identity // 10)
    return Position(timestamp=moment, id=identity)


def load(lake: LakeSettings, file: DataFile) -> pa.Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", SeaweedFS.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SeaweedFS.secret_key)
        found = open_lake(lake, RetrySettings()).get(file.path)
    assert (len(found.data), found.etag) == (file.bytes, file.etag)
    assert file.checksum == f"sha256:{hashlib.sha256(found.data).hexdigest()}"
    table = pq.read_table(io.BytesIO(found.data))
    assert table.num_rows == file.rows
    return table


def ids(lake: LakeSettings, receipts: list[Receipt]) -> list[int]:
    tables = [load(lake, file) for receipt in receipts for file in receipt.files]
    return [identity for table in tables for identity in table.column("id").to_pylist()]


def test_windows_become_files_with_receipts(
    connection: MysqlConnection, workers: Spark, lake: LakeSettings
) -> None:
    windows = [window(3, 1, 7000), window(4, 7001, 7001), window(5, 7002, ROWS)]
    receipts = extract(workers, make_job(connection, lake), windows)
    assert [(r.part, r.rows, len(r.files)) for r in receipts] == [
        (3, 7000, 1),
        (4, 1, 1),
        (5, ROWS - 7001, 1),
    ]
    assert ids(lake, receipts) == list(range(1, ROWS + 1))
    file = receipts[0].files[0]
    assert file.path.startswith(
        f"incremental/S/{SCHEMA}.orders/year=2025/month=08/day=09/20250809_200001_abcd-000007-00003-"
    )
    assert (file.first, file.last) == (position(1), position(7000))
    assert receipts[1].files[0].first == receipts[1].files[0].last == position(7001)
    assert all(r.seconds > 0 and r.peak_memory_bytes > 1 << 20 for r in receipts)


@pytest.mark.parametrize("order", ["", "`update_at`, `id`"])
def test_large_windows_roll_over_to_further_files(
    connection: MysqlConnection, workers: Spark, folder: LakeSettings, order: str
) -> None:
    job = make_job(connection, folder, order=order, file_bytes=100_000, row_group_bytes=100_000)
    (receipt,) = extract(workers, job, [window(0, 1, ROWS)])
    assert len(receipt.files) >= 4
    assert sorted(ids(folder, [receipt])) == list(range(1, ROWS + 1))
    for file in receipt.files:
        rows = load(folder, file).column("id").to_pylist()
        assert (file.first, file.last) == (position(min(rows)), position(max(rows)))
        assert 100_000 <= file.bytes < 300_000 or file is receipt.files[-1]


@pytest.mark.parametrize("order", ["", "`update_at`, `id`"])
def test_slices_of_a_window_share_a_file(
    connection: MysqlConnection, workers: Spark, lake: LakeSettings, order: str
) -> None:
    empty = window(3, -5, 0)
    windows = [
        sliced(3, empty, window(3, 1, 10), empty, window(3, 11, 4000), empty),
        sliced(4, empty, empty),
        sliced(5, window(5, 4001, 5000), structs.replace(window(5, 5001, ROWS), streamed=True)),
    ]
    receipts = extract(workers, make_job(connection, lake, order=order), windows)
    assert [(r.part, r.slices, r.rows, len(r.files)) for r in receipts] == [
        (3, 5, 4000, 1),
        (4, 2, 0, 0),
        (5, 2, ROWS - 4000, 1),
    ]
    assert sorted(ids(lake, receipts)) == list(range(1, ROWS + 1))
    first, last = (receipt.files[0] for receipt in receipts if receipt.files)
    assert (first.first, first.last) == (position(1), position(4000))
    assert (last.first, last.last) == (position(4001), position(ROWS))


def test_an_empty_window_writes_nothing(
    connection: MysqlConnection, workers: Spark, lake: LakeSettings
) -> None:
    receipts = extract(workers, make_job(connection, lake), [window(0, -5, 0), window(1, 1, 2)])
    assert [(r.part, r.rows, len(r.files)) for r in receipts] == [(0, 0, 0), (1, 2, 1)]
    assert extract(workers, make_job(connection, lake), []) == []


def test_progress_is_reported(
    connection: MysqlConnection, workers: Spark, folder: LakeSettings
) -> None:
    told: list[int] = []
    windows = [window(n, n * 200 + 1, n * 200 + 200, slowly=True) for n in range(6)]
    extract(workers, make_job(connection, folder), windows, progress=told.append)
    assert told == sorted(told)
    assert {n for n in told if 0 < n <= 6}


def test_jobs_have_readable_names_in_sparks_ui(
    connection: MysqlConnection, spark: Spark, folder: LakeSettings, spark_log: Path
) -> None:
    job = structs.replace(make_job(connection, folder), sequence=77)  # a title of its own
    extract(spark, job, [window(0, 1, 2)])

    def listed() -> list[dict[str, Any]]:
        logs = [log for log in spark_log.parent.rglob("*") if log.is_file() and log != spark_log]
        lines = "\n".join(log.read_text() for log in logs).splitlines()
        events = [json.loads(line) for line in lines if line.startswith('{"Event"')]
        started = [event for event in events if event["Event"] == "SparkListenerJobStart"]
        return [
            event
            for event in started
            if event["Properties"].get("spark.job.description") == title_of(job)
        ]

    event = wait_until(listed)[-1]
    assert title_of(job) == f"{job.table} #{job.sequence}"
    (stage,) = event["Stage Infos"]
    assert stage["Stage Name"].startswith("collect at ")
    assert stage["Number of Tasks"] == 1


def interrupted(
    workers: Spark,
    job: ExtractionJob,
    server: PrivateMariaDB,
    lake: Path,
    strike: Callable[[int], object],
    slow: Window | None = None,
    first: int = 1,
) -> list[Receipt]:
    """Extract slowly; once the slow window has a file, strike at the connection that reads it.

    That is the connection whose statement reads from the row `first` on.
    """
    slow = slow or window(0, 1, 2000, slowly=True)
    struck = threading.Event()

    def wait_and_strike() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            reading = server.execute(
                "SELECT id FROM information_schema.processlist WHERE user = %s AND info LIKE %s",
                [USER, f"%BETWEEN {first} AND%SLEEP%"],
            )
            if reading and any(lake.rglob("*-00000-*.parquet")):
                strike(reading[0][0])
                struck.set()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=wait_and_strike)
    thread.start()
    try:
        receipts = extract(workers, job, [slow, window(1, 2001, 2100)])
    finally:
        thread.join()
    assert struck.is_set()
    return receipts


def strikes(server: PrivateMariaDB) -> dict[str, Callable[[int], object]]:
    return {
        "connection": lambda number: server.execute(f"KILL CONNECTION {number}"),
        "query": lambda number: server.execute(f"KILL QUERY {number}"),
        "worker": lambda _: kill_workers(),
    }


def kill_workers() -> None:
    """Kill the Python workers of our own Spark, and our processes."""
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        if is_worker(pid):
            os.kill(pid, signal.SIGKILL)


def is_worker(pid: int) -> bool:
    """Whether we started a process that reads, or the daemon of our Java forked it."""
    daemon = parent(pid)
    if daemon == os.getpid() and "process_worker" in command(pid):
        return True
    ours = any(
        name in command(daemon) for name in ("floodmark.spark.worker_daemon", "pyspark.daemon")
    )
    return ours and parent(parent(daemon)) == os.getpid()


def parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("target", ["connection", "query", "worker"])
def test_a_task_that_dies_is_done_again_and_nothing_is_doubled(
    server: PrivateMariaDB,
    connection: MysqlConnection,
    workers: Spark,
    tmp_path: Path,
    target: str,
    slices: int,
) -> None:
    lake = LakeSettings(url=str(tmp_path))
    job = small_files(connection, lake)
    slow, first = window(0, 1, 2000, slowly=True), 1
    if slices > 1:
        slow, first = sliced(0, window(0, 1, 1000), window(0, 1001, 2000, slowly=True)), 1001
    strike = strikes(server)[target]
    receipts = interrupted(workers, job, server, tmp_path, strike, slow, first)
    assert sorted(ids(lake, receipts)) == list(range(1, 2101))
    named = {file.path for receipt in receipts for file in receipt.files}
    there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
    assert named < there  # what the first try wrote lies there, and nobody names it


def test_ctrl_c_ends_the_reading_and_others_can_follow(
    server: PrivateMariaDB, connection: MysqlConnection, workers: Spark, tmp_path: Path
) -> None:
    job = small_files(connection, LakeSettings(url=str(tmp_path)))

    def interrupt(_: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted(workers, job, server, tmp_path, interrupt)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and server.execute(
        "SELECT 1 FROM information_schema.processlist WHERE user = %s AND info LIKE '%%SLEEP%%'",
        [USER],
    ):
        time.sleep(0.1)
    assert time.monotonic() < deadline
    assert extract(workers, job, [window(0, 1, 10)])[0].rows == 10


def test_permanent_failure_is_reported_without_the_password(
    connection: MysqlConnection, workers: Spark, folder: LakeSettings, spark_log: Path
) -> None:
    of_spark = not isinstance(workers, Processes)
    broken = Window(part=2, start=START, end=START, predicate="nope = 1")
    with pytest.raises(FloodmarkError, match=r"window 2.*Unknown column 'nope'") as caught:
        extract(workers, make_job(connection, folder), [window(1, 1, 2), broken])
    quoted = connectorx_url(connection).reveal().split("@")[0].rpartition(":")[2]
    commands = "".join(command(int(pid)) for pid in os.listdir("/proc") if pid.isdigit())
    shown = "".join(path.read_text() for path in spark_log.parent.rglob("*") if path.is_file())
    assert not of_spark or "SparkListenerTaskEnd" in shown  # the log of events is there
    for secret in (PASSWORD, quoted):
        assert secret not in str(caught.value)
        assert secret not in shown
        assert secret not in commands
        assert secret not in repr(make_job(connection, folder))


def test_a_rejected_login_is_one_error_without_a_retry(
    server: PrivateMariaDB, connection: MysqlConnection, workers: Spark, folder: LakeSettings
) -> None:
    job = make_job(connection, folder)
    wrong = structs.replace(job, source=structs.replace(connection, password=Secret("no")))
    refused = f"MySQL at {server.host}:{server.port} refuses user '{USER}': "
    before = rejected(server)
    with pytest.raises(FloodmarkError) as caught:
        extract(workers, wrong, [window(5, 1, 2)])
    assert caught.value.message.startswith(f"{TABLE}: window 5: {refused}")
    assert caught.value.hint == "check 'user' and 'password' of the connection, and the user's host"
    assert rejected(server) == before + 1


def rejected(server: PrivateMariaDB) -> int:
    """How many logins the server refused."""
    name = "Access_denied_errors" if type(server) is PrivateMariaDB else "Aborted_connects"
    ((_, count),) = server.execute(f"SHOW GLOBAL STATUS LIKE '{name}'")
    return int(count)


def test_without_java_there_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(FloodmarkError, match="needs Java") as caught, spark_session():
        pass
    assert "JAVA_HOME has none: /nowhere/bin/java" in caught.value.message
    assert (caught.value.hint or "").startswith("correct or unset JAVA_HOME")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FloodmarkError, match="but none was found") as caught, spark_session():
        pass
    assert "openjdk-17-jre-headless" in (caught.value.hint or "")


def test_the_class_archive_is_kept_only_when_it_is_whole(tmp_path: Path) -> None:
    java = find_java(dict(os.environ))
    assert java is not None
    archive = find_archive(java, {"XDG_CACHE_HOME": str(tmp_path)})
    assert archive is not None
    assert f"ArchiveClassesAtExit={archive.unfinished}" in archive.options
    archive.keep()  # Java wrote nothing
    assert not archive.exists
    assert archive.jvm_args is None
    Path(archive.unfinished).write_bytes(b"classes")
    archive.keep()
    archive.note(["-cp", "here"])
    assert f"SharedArchiveFile={archive.path}" in archive.options
    assert archive.jvm_args == ["-cp", "here"]
    other = find_archive(java, {"XDG_CACHE_HOME": str(tmp_path)})
    assert other is not None
    assert (other.path, other.unfinished == archive.unfinished) == (archive.path, False)
    assert find_archive(java, {"XDG_CACHE_HOME": f"{archive.path}/no-folder"}) is None
