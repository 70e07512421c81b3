"""Failures during a sync: it ends cleanly with a correct position; the next one completes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pymysql
import pytest

import processes
from floodmark.api import runner
from floodmark.config.models import LakeSettings, RetrySettings
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import StorageError
from floodmark.model import lake_layout
from floodmark.model.timestamps import utc_now
from floodmark.spark.rdd_runner import ClassicSpark
from floodmark.state.lease import Lease, read_lease
from floodmark.storage.objects import ObjectStore
from floodmark.storage.opening import open_lake
from floodmark.sync.spark_engine import SparkEngine
from pipelines import (
    DirectEngine,
    Ended,
    Pipeline,
    ask,
    ask_once,
    finish,
    numbers,
    session,
    wait_until,
    warm_engine,
)
from processes import DoomedObjectStore
from scenarios import Lake
from servers.faults import FaultyProxy, random_faults
from servers.seaweedfs import SeaweedFS

New = Callable[..., Pipeline]

SMALL = "extraction: {window_rows: 10, windows_per_chunk: 2}\n"


def create(pipeline: Pipeline, rows: int, more: str = "", name: str = "t") -> None:
    ask_once(
        pipeline,
        f"CREATE TABLE {name} (id INT PRIMARY KEY, update_at DATETIME NOT NULL{more},"
        " KEY by_change (update_at, id))",
    )
    if rows:
        add(pipeline, 1, rows, name)


def add(pipeline: Pipeline, first: int, last: int, name: str = "t") -> None:
    ask_once(
        pipeline,
        f"INSERT INTO {name} (id, update_at)"
        f" SELECT seq, '2025-06-01' + INTERVAL seq DIV 7 SECOND FROM {numbers(first, last)}",
    )


def check_complete(pipeline: Pipeline, rows: int, name: str = "t") -> None:
    assert pipeline.ids(name) == dict.fromkeys(range(1, rows + 1), 1)
    pipeline.check_tracking(name)


# Two runs of one table


def sync_once(pipeline: Pipeline, *arguments: str) -> None:
    """Runs in a process of its own, and ends it with the exit code.

    It reads nothing before the file `go` is there.
    """
    go = pipeline.folder / "go"

    class WaitingEngine(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            wait_until(go.exists)
            return super().extract(job, windows, progress)

    sys.exit(pipeline.sync(*arguments, engine=WaitingEngine).code)


def two_are_refused(runs: list[BaseProcess]) -> bool:
    return [run.exitcode for run in runs].count(4) == 2


@pytest.mark.enough_on("mariadb")
@pytest.mark.parametrize("lake", ["local", "seaweedfs"])
def test_syncs_of_one_table_started_together(pipeline: New, lake: str) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=SMALL, lake=lake)
    create(it, rows=0)
    for number in range(3):
        add(it, number * 100 + 1, number * 100 + 100)
        runs = [processes.start(sync_once, it) for _ in range(3)]
        wait_until(partial(two_are_refused, runs), 60)
        (it.folder / "go").touch()
        for run in runs:
            run.join(60)
        (it.folder / "go").unlink()
        assert sorted(run.exitcode or 0 for run in runs) == [0, 4, 4]
        check_complete(it, number * 100 + 100)


def stop_here() -> None:
    """Stop this process, as if the machine were suspended."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.5)  # another thread may take the signal, an instant later


def read_and_stop(pipeline: Pipeline) -> None:
    """A sync that stops itself when it has read its second chunk."""
    chunks = count(1)

    class StoppingEngine(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            read = super().extract(job, windows, progress)
            if next(chunks) == 2:
                stop_here()
            return read

    sys.exit(pipeline.sync(engine=StoppingEngine).code)


def stopping_sync(pipeline: Pipeline, key: str, lease: str = "") -> None:
    """A sync that stops itself right before it puts an object.

    When it continues, its lease is "renewed" or "expired" before anything else happens; else it may
    be either.
    """

    class Stopping(DoomedObjectStore):
        def put_if_absent(self, name: str, data: bytes) -> str:
            if key in name:
                if lease == "expired":
                    patch.object(Lease, "_write", side_effect=StorageError("no answer")).start()
                stop_here()
                if lease == "renewed":
                    wait_until(self.is_renewed)
            return self._store.put_if_absent(name, data)

        def is_renewed(self) -> bool:
            found = read_lease(self._store, pipeline.table())
            return found is not None and found.held(utc_now())

    def stopping_lake(lake: LakeSettings, retries: RetrySettings) -> ObjectStore:
        return Stopping(open_lake(lake, retries), processes.Doom(0, ""))

    with patch.object(runner, "open_lake", stopping_lake):
        sys.exit(pipeline.sync().code)


def is_stopped(pid: int | None) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextmanager
def paused(pipeline: Pipeline, work: Callable[..., None], *arguments: str) -> Iterator[Any]:
    """A run that has stopped itself, and whose lease has run out since."""
    run = processes.start(work, pipeline, *arguments)
    try:
        wait_until(lambda: is_stopped(run.pid))
        time.sleep(1.1)
        yield run
    finally:
        run.kill()


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("lake", ["local", "seaweedfs"])
def test_a_run_paused_before_its_commit_and_overtaken(pipeline: New, lake: str) -> None:
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"}, settings=f"{SMALL}lease_seconds: 1\n", lake=lake
    )
    create(it, rows=45)
    # One chunk is committed, the second is written.
    with paused(it, stopping_sync, "/00000002.json") as run:
        assert it.watermark().mysql_state.chunk_count == 1
        assert it.synced()["rows"] == 25
        assert run.pid
        os.kill(run.pid, signal.SIGCONT)
        run.join(60)
        assert run.exitcode == 4
    check_complete(it, 45)
    # The third may be in flight.
    left = [path.rpartition("/")[2] for path in it.files() - it.named_files()]
    assert [lake_layout.sequence_of_data_file(name) for name in sorted(left)][:2] == [2, 2]


@pytest.mark.enough_on("mariadb")
def test_a_run_paused_while_it_reads_and_overtaken(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=f"{SMALL}lease_seconds: 1\n")
    create(it, rows=45)
    with paused(it, read_and_stop) as run:
        assert it.sync().code == 0
        add(it, 46, 50)
        assert run.pid
        os.kill(run.pid, signal.SIGCONT)
        run.join(60)
        assert run.exitcode == 4
    it.synced()
    check_complete(it, 50)


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(("lease", "code", "rows"), [("renewed", 0, 45), ("expired", 4, 40)])
def test_paused_run_continues_if_its_lease_was_renewed(
    pipeline: New, lease: str, code: int, rows: int
) -> None:
    """What it was about to commit is safe in any case; then it needs its lease."""
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=f"{SMALL}lease_seconds: 1\n")
    create(it, rows=45)
    with paused(it, stopping_sync, "/00000002.json", lease) as run:
        assert run.pid
        os.kill(run.pid, signal.SIGCONT)
        run.join(60)
        assert run.exitcode == code
    assert it.watermark().mysql_state.total_rows == rows
    it.synced()
    check_complete(it, 45)


@pytest.mark.enough_on("mariadb")
def test_a_paused_run_whose_files_were_cleaned_away(pipeline: New) -> None:
    """It must not commit files that are no longer there."""
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=f"{SMALL}lease_seconds: 1\n")
    create(it, rows=45)
    with paused(it, stopping_sync, "/00000002.json") as run:
        it.call("s3clean", "clean", "-t", f"{it.schema}.t")
        assert run.pid
        os.kill(run.pid, signal.SIGCONT)
        run.join(60)
    it.sync()
    check_complete(it, 45)


# MySQL fails


BIG = "extraction: {window_rows: 1500, windows_per_chunk: 2}\n"


def create_big(pipeline: Pipeline, rows: int) -> None:
    """Rows of 16 kB each, so that a window takes a while."""
    create(pipeline, 0, ", noise MEDIUMTEXT NOT NULL")
    ask_once(
        pipeline,
        "INSERT INTO t SELECT seq, '2025-06-01' + INTERVAL seq DIV 7 SECOND,"
        f" REPEAT(SHA2(seq, 256), 250) FROM {numbers(1, rows)}",
    )


class Killer(threading.Thread):
    """Kills connections while they stream a window."""

    def __init__(self, pipeline: Pipeline, times: int, after: float = 0.015) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._times = times
        self._after = after
        self._over = threading.Event()
        self.killed: set[int] = set()

    def run(self) -> None:
        first_seen: dict[tuple[int, str], float] = {}
        with session(self._pipeline) as connection:
            while len(self.killed) < self._times and not self._over.wait(0.005):
                reading = ask(
                    connection,
                    "SELECT ID, INFO FROM information_schema.PROCESSLIST"
                    " WHERE ID <> CONNECTION_ID()"
                    f" AND INFO LIKE 'SELECT%noise%`{self._pipeline.schema}`.`t`%'",
                )
                now = time.monotonic()
                for thread, statement in reading:
                    seconds = now - first_seen.setdefault((thread, statement), now)
                    if seconds >= self._after and thread not in self.killed:
                        with suppress(pymysql.err.OperationalError):  # it has just ended
                            ask(connection, f"KILL {thread}")
                            self.killed.add(thread)

    def __enter__(self) -> "Killer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def test_connections_killed_in_mid_stream(pipeline: New, spark: Any) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=BIG, engine=warm_engine(spark))
    create_big(it, rows=6000)
    with Killer(it, 3) as killer:
        assert it.synced()["rows"] == 6000  # what was killed was tried again
    assert killer.killed
    check_complete(it, 6000)


def test_every_try_killed(pipeline: New, spark: Any) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=BIG, engine=warm_engine(spark))
    create_big(it, rows=3000)
    with Killer(it, 1000, after=0.0) as killer:
        ended = it.sync()
    assert len(killer.killed) >= 4
    assert ended.code == 1
    assert "Traceback" not in ended.err
    state = it.watermark().mysql_state
    assert (state.status, state.total_rows) == ("failed", 0)
    assert state.error
    it.synced()
    check_complete(it, 3000)


@pytest.mark.parametrize("how", ["restart", "kill", "away"])
def test_the_server_restarted_during_a_sync(
    pipeline: New, server: PrivateMariaDB, how: str
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=SMALL)
    create(it, rows=100)
    starting = threading.Thread(target=server.start)
    chunks = count(1)  # read by several threads

    class Restarting(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if next(chunks) == 3:
                # While connectorx waits for a server, no other thread of its process runs.
                with self.reading:
                    self.restart()
            return super().extract(job, windows, progress)

        def restart(self) -> None:
            if how == "kill":
                server.kill()
                server.start()
            elif how == "away":  # still down when the windows are read
                server.stop()
                starting.start()
            else:
                server.restart()

    try:
        assert it.synced(engine=Restarting)["rows"] == 100
    finally:
        if how == "away":
            starting.join()
    assert it.watermark().mysql_state.status == "success"
    it.check_tracking()
    check_complete(it, 100)


def test_the_planning_connection_is_opened_again(pipeline: New, server: PrivateMariaDB) -> None:
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"},
        settings="extraction: {window_rows: 10, windows_per_chunk: 1}",
    )
    create(it, rows=100)
    listing = "SELECT id FROM information_schema.processlist WHERE user = 'floodmark'"

    class Cutting(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if job.sequence % 3 == 1:  # a statement is repeated only once
                for (thread,) in server.execute(listing):
                    with suppress(pymysql.err.OperationalError):  # it may have ended by itself
                        server.execute(f"KILL {thread}")
            return super().extract(job, windows, progress)

    assert it.synced("--debug", engine=Cutting)["chunks"] == 10  # shows where it failed
    assert it.ids() == dict.fromkeys(range(1, 101), 1)


def test_unreachable_server_is_reported(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=SMALL)
    create(it, rows=20)
    it.synced("--limit", "5")
    away = replace(it, source={**it.source, "port": 1}).write_config()
    ended = away.sync()
    assert ended.code == 1
    assert "does not answer" in ended.out
    assert it.watermark().mysql_state.total_rows == 5
    it.write_config()
    it.synced()
    check_complete(it, 20)


# The lake fails

SAID = {0: "✓", 1: "✗", 4: "✗"}


@pytest.mark.enough_on("mysql")
def test_a_lake_with_random_errors(pipeline: New, seaweedfs: SeaweedFS, tmp_path: Path) -> None:
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"},
        settings=f"{SMALL}retries: {{first_seconds: 0.01}}\n",
        lake="seaweedfs",
    )
    create(it, rows=100)
    with FaultyProxy(seaweedfs.endpoint) as proxy:
        faulty = replace(
            it, folder=tmp_path / "faulty", lake=replace(it.lake, endpoint=proxy.endpoint)
        )
        faulty.write_config()
        for seed in range(12):
            proxy.plan = random_faults(seed, 0.15)
            ended = faulty.sync()
            assert SAID[ended.code] in ended.out, ended
            assert "Traceback" not in ended.err
            assert it.findings().differences == ()
            add(it, 100 + seed * 10 + 1, 110 + seed * 10)
        assert sum(proxy.faults.values()) > 30
    it.synced()
    check_complete(it, 220)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.enough_on("mariadb")
def test_a_disk_that_is_full(pipeline: New, small_disk: Path) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=SMALL)
    it = replace(it, lake=Lake(folder=str(small_disk / "lake"))).write_config()
    create(it, 60, ", noise LONGBLOB")
    ended = it.sync("--limit", "20")
    assert ended.code == 0
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"." * 4096)
    ended = it.sync()
    assert ended.code == 1, ended
    assert "make room" in ended.err
    assert "Traceback" not in ended.err
    assert it.watermark().mysql_state.total_rows == 20
    filler.unlink()
    assert it.synced()["rows"] == 40
    check_complete(it, 60)
    assert list((small_disk / "lake" / ".tmp").iterdir()) == []


# Ctrl-C


def test_a_planning_query_is_not_waited_for(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it, 10)
    waiting = "SELECT 1 FROM information_schema.processlist WHERE state LIKE '%metadata lock%'"
    with session(it) as other:
        ask(other, "LOCK TABLES t WRITE")  # so a look at the table takes as long as we like
        process = it.start("sync", "-p", "main", "--backup-only")
        wait_until(lambda: ask_once(it, waiting), seconds=60)
        os.killpg(process.pid, signal.SIGINT)
        ended = finish(process, seconds=60)
        assert ask_once(it, waiting) == []
    assert ended.code == 130, ended
    assert "Traceback" not in ended.err
    assert it.synced()["rows"] == 10


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("strategy", ["intra-table", "inter-table"])
def test_an_interrupted_run_ends_long_before_its_tables_are_read(
    pipeline: New, strategy: str
) -> None:
    it = pipeline(
        dict.fromkeys(["t", "u"], "{cursor: [update_at, id]}"),
        settings="extraction: {window_rows: 500, windows_per_chunk: 2}",
    )
    for name in ("t", "u"):
        create(it, 60_000, name=name)
    process = it.start("sync", "-p", "main", "--backup-only", "--strategy", strategy)
    wait_until(lambda: len(it.chunks("t")) >= 2, seconds=60)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    ended = finish(process, seconds=90)
    assert ended.code == 130, ended
    assert "Traceback" not in ended.err
    assert "stopped" in ended.err
    _nothing_is_left_of(process.pid)
    store = it.lake.open()
    for name in ("t", "u"):
        lease = read_lease(store, it.table(name))
        assert lease is None or lease.released
        if lease is not None:
            it.check_tracking(name)
    state = it.watermark("t").mysql_state
    assert 0 < state.total_rows < 60_000
    assert (state.status, state.error) == ("failed", "the run was stopped")
    it.write_config("extraction: {window_rows: 100000}")
    assert it.sync().code == 0
    for name in ("t", "u"):
        check_complete(it, 60_000, name)


def _nothing_is_left_of(group: int) -> None:
    """All processes of the group end, or have ended."""

    def gone() -> bool:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(gone, seconds=10)


def test_what_an_error_says(pipeline: New) -> None:
    """A window that cannot be read names the table, the column and the way out."""
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings="extraction: {zero_dates: error}")
    create(it, 5, ", day DATE NOT NULL DEFAULT '2025-01-01'")
    ask_once(it, "UPDATE t SET day = '2025-00-00' WHERE id = 3", sql_mode="")
    ended: Ended = it.sync()
    assert ended.code == 1
    assert "'day'" in ended.out
    assert it.watermark().mysql_state.error


def sync_that_kills_java(pipeline: Pipeline, when: str) -> None:
    """Kill Java by a task of the third chunk, or before that chunk begins."""
    run_tasks, is_alive = ClassicSpark.run, ClassicSpark.is_alive
    jobs, looks = count(1), count(1)

    def run(spark: ClassicSpark, title: str, task: Any, tasks: int, *rest: Any) -> list[str]:
        if when == "during" and next(jobs) == 3:
            java = _java()
            task = lambda _: os.kill(java, signal.SIGKILL)  # noqa: E731
        return run_tasks(spark, title, task, tasks, *rest)

    def look(spark: ClassicSpark) -> bool:
        if when == "before" and next(looks) == 3:
            os.kill(_java(), signal.SIGKILL)
        return is_alive(spark)

    with patch.object(ClassicSpark, "run", run), patch.object(ClassicSpark, "is_alive", look):
        # One chunk at a time.
        sys.exit(pipeline.sync("--strategy", "sequential", engine=SparkEngine).code)


def _java() -> int:
    (java,) = (
        int(child)
        for task in Path("/proc/self/task").iterdir()
        for child in (task / "children").read_text().split()
        if Path(f"/proc/{child}/comm").read_text().strip() == "java"
    )
    return java


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(("when", "code"), [("during", 1), ("before", 0)])
def test_java_is_killed(pipeline: New, when: str, code: int) -> None:
    """A chunk at hand fails; between two chunks, the run goes on with another Java."""
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"},
        settings="extraction: {window_rows: 1000, windows_per_chunk: 2}",
    )
    create(it, rows=12_000)
    run = processes.start(sync_that_kills_java, it, when)
    run.join(120)
    assert run.exitcode == code
    assert it.watermark().mysql_state.status == ("failed" if code else "success")
    it.check_tracking()
    it.write_config("extraction: {window_rows: 100000}")
    it.synced()
    check_complete(it, 12_000)


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("command", [["set", "--timestamp", "2025-06-01 00:00:01"], ["reset"]])
def test_an_operator_moves_the_position_during_a_run(pipeline: New, command: list[str]) -> None:
    """What the operator said counts, and the run that did not know it cannot commit."""
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=SMALL)
    create(it, rows=45)
    said: list[Ended] = []

    class Moved(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if job.sequence == 2:
                wait_until(it.manifests)
                verb, *rest = command
                arguments = ("watermark", verb, "-t", f"{it.schema}.t", *rest, "--force")
                said.append(finish(it.start(*arguments)))
            return super().extract(job, windows, progress)

    ended = it.sync(engine=Moved)
    if said[0].code == 0:
        assert ended.code == 4, ended
        assert len(it.chunks()) == 1
    else:
        assert (said[0].code, ended.code) == (4, 0), said
    assert it.findings().differences == ()
