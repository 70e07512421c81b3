"""Windows of any size in constant memory: rows are fetched on demand."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec import structs

from floodmark.config.models import LakeSettings, MysqlConnection
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.process import free_ports
from floodmark.errors import FloodmarkError, TooFarAhead
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import Window
from floodmark.model.position import START
from floodmark.model.table import TableName
from floodmark.mysql import connection
from floodmark.mysql.catalog import read_table
from floodmark.mysql.connection import Sessions, connect, query
from floodmark.mysql.types import plan_columns
from floodmark.worker import extract_window, login
from floodmark.worker.extract_window import run_window
from floodmark.worker.job import MEBIBYTE, ExtractionJob
from floodmark.worker.mysql_reader import read_batches
from pipelines import Pipeline, ask_once, numbers

New = Callable[..., Pipeline]

SCHEMA = "reading_test"
ROWS, WIDTH = 40_000, 1000
TABLE_BYTES = ROWS * WIDTH
WHOLE = Window(part=1, start=START, end=START, predicate="TRUE")
STREAMED = structs.replace(WHOLE, streamed=True)


def connection_to(server: PrivateMariaDB) -> MysqlConnection:
    return MysqlConnection(
        host=server.host, port=server.port, user=server.user, password=Secret(server.password)
    )


@pytest.fixture(scope="module")
def restarting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMariaDB]:
    """A server that tests stop; each starts it again."""
    with PrivateMariaDB(tmp_path_factory.mktemp("restarting")) as server:
        yield server


def start_at_pause(
    server: PrivateMariaDB, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> list[float]:
    """Start the server when a module pauses before another try; return the pauses."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        server.start()

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(module, "time", clock)
    return pauses


@pytest.fixture(scope="module")
def job(
    server: PrivateMariaDB, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExtractionJob]:
    """A table without a key, far larger than what sockets hold on their way."""
    server.execute(f"DROP DATABASE IF EXISTS {SCHEMA}")
    server.execute(f"CREATE DATABASE {SCHEMA}")
    server.execute("CREATE TABLE wide (id INT, note TEXT)", database=SCHEMA)
    server.execute(
        f"INSERT INTO wide SELECT seq, REPEAT(CHAR(65 + seq % 26), {WIDTH})"
        f" FROM {numbers(1, ROWS)}",
        database=SCHEMA,
    )
    source = connection_to(server)
    name = TableName("S", SCHEMA, "wide")
    with connect(source) as session:
        columns = plan_columns(read_table(session, name))
    yield ExtractionJob(
        table=name,
        session_id="20250809_200001_abcd",
        sequence=1,
        source=source,
        relation=f"{SCHEMA}.wide",
        columns=columns,
        cursor=Cursor(kind="none"),
        lake=LakeSettings(url=str(tmp_path_factory.mktemp("lake"))),
        batch_rows=100,
    )
    server.execute(f"DROP DATABASE {SCHEMA}")


def sent(server: PrivateMariaDB) -> int:
    """How many bytes the server has sent to whomever, once it sends no more."""
    before, now = -1_000_000, 0
    while now - before > 10_000:  # an answer to this very question takes some
        before = now
        time.sleep(0.3)
        now = int(server.execute("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")[0][1])
    return now


@pytest.mark.parametrize("window", [WHOLE, STREAMED], ids=["ahead", "streamed"])
def test_streamed_rows_are_fetched_on_demand(
    server: PrivateMariaDB, job: ExtractionJob, window: Window
) -> None:
    before = sent(server)
    batches = read_batches(job, window)
    assert next(batches).num_rows == 100
    on_the_way = sent(server) - before
    if window.streamed:
        assert on_the_way < TABLE_BYTES / 2
    else:  # so the check above could fail
        assert on_the_way > TABLE_BYTES
    assert sum(batch.num_rows for batch in batches) == ROWS - 100


def test_a_stream_that_is_left_is_not_read_to_its_end(
    server: PrivateMariaDB, job: ExtractionJob
) -> None:
    before = sent(server)
    batches = read_batches(job, STREAMED)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert sent(server) - before < TABLE_BYTES / 2
    reading = "SELECT 1 FROM information_schema.processlist WHERE info LIKE '%%reading_test.wide%%'"
    assert server.execute(f"{reading} AND id <> CONNECTION_ID()") == []


def test_batches_of_a_stream_are_measured_and_not_estimated(
    server: PrivateMariaDB, job: ExtractionJob
) -> None:
    """Huge values among tiny ones: no batch waits for so many of them."""
    server.execute("CREATE TABLE skewed (id INT, note LONGTEXT)", database=SCHEMA)
    server.execute(
        "INSERT INTO skewed SELECT seq, REPEAT('x', IF(seq > 990, 5000000, 1))"
        f" FROM {numbers(1, 1000)}",
        database=SCHEMA,
    )
    skewed = structs.replace(job, relation=f"{SCHEMA}.skewed", batch_rows=16_384)
    sizes = [batch.nbytes for batch in read_batches(skewed, STREAMED)]
    assert sum(sizes) > 50_000_000
    assert max(sizes) < 16 * MEBIBYTE
    server.execute("DROP TABLE skewed", database=SCHEMA)


def test_rows_far_larger_than_planned_are_streamed_after_all(
    job: ExtractionJob, tmp_path: Path
) -> None:
    small = structs.replace(
        job, most_ahead_bytes=MEBIBYTE, lake=LakeSettings(url=str(tmp_path)), file_bytes=MEBIBYTE
    )
    with pytest.raises(TooFarAhead):
        list(read_batches(small, WHOLE))
    outcome = run_window(small, WHOLE, attempt_id=7, failures=0)
    assert outcome.receipt is not None
    assert outcome.receipt.rows == ROWS
    named = {file.path for file in outcome.receipt.files}
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")} == named


def test_a_slice_that_is_larger_than_planned_has_itself_and_the_later_ones_streamed(
    job: ExtractionJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, most, rest = "id <= 100", f"id > 100 AND id <= {ROWS - 100}", f"id > {ROWS - 100}"
    read: list[tuple[str, bool]] = []

    def noted(job: ExtractionJob, window: Window) -> Iterator[Any]:
        read.append((window.predicate, window.streamed))
        for number, batch in enumerate(read_batches(job, window)):
            if number == 380 and not window.streamed:  # a row group is written by then
                raise TooFarAhead("memory has grown")
            yield batch

    monkeypatch.setattr(extract_window, "read_batches", noted)
    small = structs.replace(job, lake=LakeSettings(url=str(tmp_path)))
    slices = tuple(structs.replace(WHOLE, predicate=rows) for rows in (few, most, rest))
    window = structs.replace(WHOLE, slices=slices)
    outcome = run_window(small, window, attempt_id=7, failures=0)
    assert outcome.receipt is not None
    assert (outcome.receipt.rows, outcome.receipt.slices) == (ROWS, 3)
    assert read == [(few, False), (most, False), (few, False), (most, True), (rest, True)]
    files = [tmp_path / file.path for file in outcome.receipt.files]
    assert sorted(tmp_path.rglob("*.parquet")) == sorted(files)
    found = [number for file in files for number in pq.read_table(file)["id"].to_pylist()]
    assert sorted(found) == list(range(1, ROWS + 1))


def test_stream_error_is_reported_without_the_password(job: ExtractionJob) -> None:
    broken = structs.replace(STREAMED, predicate="nope = 1")
    with pytest.raises(
        FloodmarkError, match=r"reading .* failed: .*Unknown column 'nope'"
    ) as caught:
        list(read_batches(job, broken))
    assert job.source.password
    assert job.source.password.reveal() not in f"{caught.value}"


def test_a_stream_that_is_killed_raises(server: PrivateMariaDB, job: ExtractionJob) -> None:
    batches = read_batches(job, STREAMED)
    next(batches)
    ((number,),) = server.execute(
        "SELECT id FROM information_schema.processlist"
        " WHERE info LIKE '%%reading_test.wide%%' AND id <> CONNECTION_ID()"
    )
    server.execute(f"KILL CONNECTION {number}")
    with pytest.raises(FloodmarkError, match=r"reading .* failed"):
        list(batches)


@pytest.fixture
def never_connectorx(monkeypatch: pytest.MonkeyPatch) -> None:
    """connectorx, which would try for half a minute, fails when it is imported."""
    monkeypatch.setitem(sys.modules, "connectorx", None)


@pytest.mark.usefixtures("never_connectorx")
@pytest.mark.parametrize("window", [WHOLE, STREAMED], ids=["ahead", "streamed"])
def test_unreachable_server_fails_at_the_first_try(
    job: ExtractionJob, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "PATIENCE_SECONDS", 0)
    away = structs.replace(job.source, port=free_ports(1)[0])
    wrong = structs.replace(job.source, password=Secret("wrong"))
    for source, said in ((away, "does not answer"), (wrong, "refuses user")):
        bad = structs.replace(job, source=source)
        outcome = run_window(bad, window, attempt_id=1, failures=0)
        assert outcome.refusal is not None
        assert said in outcome.refusal.message
        assert f"{source.host}:{source.port}" in outcome.refusal.message


@pytest.mark.parametrize("window", [WHOLE, STREAMED], ids=["ahead", "streamed"])
def test_a_worker_waits_for_a_server_that_restarts(
    job: ExtractionJob,
    restarting: PrivateMariaDB,
    window: Window,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = LakeSettings(url=str(tmp_path / "lake"))
    source = connection_to(restarting)
    restarts = structs.replace(
        job, source=source, lake=lake, relation="(SELECT 1 AS id, 'x' AS note) AS one"
    )
    restarting.stop()
    start_at_pause(restarting, login, monkeypatch)
    outcome = run_window(restarts, window, attempt_id=1, failures=0)
    assert outcome.refusal is None
    assert outcome.receipt is not None
    assert outcome.receipt.rows == 1


def test_a_run_waits_for_a_server_that_it_reached_before(
    restarting: PrivateMariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarting.start()
    sessions, source = Sessions(), connection_to(restarting)
    with sessions.connect(source):
        pass
    restarting.stop()
    pauses = start_at_pause(restarting, connection, monkeypatch)
    with sessions.connect(source) as session:
        assert query(session, "SELECT 1") == [(1,)]
    assert pauses
    restarting.stop()
    pauses.clear()
    with pytest.raises(FloodmarkError, match="does not answer"), Sessions().connect(source):
        pass  # the first contact
    sessions.end()
    with pytest.raises(FloodmarkError, match="the run was stopped"), sessions.connect(source):
        pass
    assert not pauses


@pytest.mark.usefixtures("never_connectorx")
def test_a_login_that_may_soon_succeed_is_left_to_connectorx(
    server: PrivateMariaDB, job: ExtractionJob
) -> None:
    server.execute("CREATE USER one@'127.0.0.1' IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 1")
    source = structs.replace(job.source, user="one", password=Secret("x"))
    with (
        connect(source),
        pytest.raises(FloodmarkError, match="import of connectorx halted"),
    ):
        run_window(structs.replace(job, source=source), WHOLE, attempt_id=1, failures=0)
    server.execute("DROP USER one@'127.0.0.1'")


def test_a_table_without_a_key_is_streamed_and_arrives_whole(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: none}"})
    ask_once(it, "CREATE TABLE t (id INT, note VARCHAR(20), f FLOAT)")
    ask_once(
        it, f"INSERT INTO t SELECT seq, IF(seq % 3, 'é', NULL), 1 / 3 FROM {numbers(1, 50000)}"
    )
    assert it.synced()["rows"] == 50_000
    assert it.ids() == dict.fromkeys(range(1, 50_001), 1)
    it.check_tracking()
