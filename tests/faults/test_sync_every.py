"""`sync --every` as a real process: it survives failures, and ends when it is stopped."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import LeaseHeld
from floodmark.state.lease import read_lease
from pipelines import Ended, Pipeline, ask_once, numbers, wait_until
from scenarios import open_store
from servers.faults import SLOW_DOWN, FaultyProxy, no_faults, random_faults
from servers.postgres import PrivatePostgres
from servers.seaweedfs import SeaweedFS
from warehouses import name_target, new_postgres

New = Callable[..., Pipeline]
Found = dict[str, Any]

CURSOR = {"t": "{cursor: [update_at, id]}"}


class Running:
    """A sync that goes on; `rounds` are those that it has reported."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.rounds: list[Found] = []
        self.said: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_rounds),
            threading.Thread(target=self._read_log),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def log(self) -> str:
        """What it said on stderr so far."""
        return "".join(self.said)

    @property
    def java(self) -> list[int]:
        """Its Java, if it runs one."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = [child for task in tasks for child in (task / "children").read_text().split()]
        return [int(child) for child in children if _is_java(child)]

    def wait_for(self, condition: Callable[[Found], Any]) -> Found:
        """Wait for a round, of those that end from now on, that fits."""
        seen = len(self.rounds)
        fits = self.wait_until(lambda: [done for done in self.rounds[seen:] if condition(done)])
        found: Found = fits[0]
        return found

    def wait_until(self, condition: Callable[[], Any]) -> Any:
        """Wait until something is true."""

        def found() -> Any:
            assert self.process.poll() is None, "it has ended"
            return condition()

        try:
            return wait_until(found, seconds=60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.rounds}\n{self.log}") from None

    def end(self, number: int = signal.SIGTERM, *, group: bool = False) -> Ended:
        """Send it a signal, and wait for its end."""
        with suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.process.pid, number)
        code = self.process.wait(30)
        for reader in self._readers:
            reader.join()
        return Ended(code, "", self.log)

    def _read_rounds(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            self.rounds.extend(map(json.loads, lines))

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self.said.extend(lines)


def _is_java(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:  # it has just ended
        return False


@contextmanager
def running(it: Pipeline, *arguments: str, every: str = "1s") -> Iterator[Running]:
    process = it.start("sync", "-p", "main", "--every", every, "--json", *arguments)
    run = Running(process)
    try:
        yield run
    finally:
        run.end(signal.SIGKILL, group=True)


def create(it: Pipeline) -> None:
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL, KEY c (update_at, id))",
    )


def add(it: Pipeline, first: int, last: int) -> None:
    ask_once(
        it,
        "INSERT INTO t (id, update_at)"
        f" SELECT seq, '2025-06-01' + INTERVAL seq DIV 7 SECOND FROM {numbers(first, last)}",
    )


def rows_of(done: Found) -> tuple[int, int]:
    (table,) = done["tables"]
    return table["rows"], table["loaded_rows"]


def went_well(done: Found) -> bool:
    return not done["error"] and all(table["error"] is None for table in done["tables"])


def failed(done: Found) -> bool:
    return not went_well(done)


def is_busy(done: Found) -> bool:
    return [table["exit_code"] for table in done["tables"]] == [4]


def check_complete(it: Pipeline, rows: int, *, loaded: bool = True) -> None:
    assert it.ids() == dict.fromkeys(range(1, rows + 1), 1)
    it.check_tracking()
    if loaded:
        with duckdb.connect(str(it.folder / "warehouse.duckdb"), read_only=True) as warehouse:
            query = "SELECT COUNT(*), COUNT(DISTINCT id), MAX(id) FROM t"
            assert warehouse.execute(query).fetchone() == (rows, rows, rows)
        assert it.watermark().redshift_state.total_rows == rows


def check_left_in_order(it: Pipeline, ended: Ended) -> None:
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err, ended.err
    lease = read_lease(it.lake.open(), it.table())
    assert lease is None or lease.released


def test_one_run_survives_everything(pipeline: New, server: PrivateMariaDB, tmp_path: Path) -> None:
    with type(server)(tmp_path / "own") as own:
        it = pipeline(CURSOR, server=own)
        create(it)
        with running(it) as run:
            # Nothing is new: Spark is not started.
            run.wait_for(went_well)
            run.wait_for(went_well)
            assert run.java == []

            add(it, 1, 100)
            assert rows_of(run.wait_for(lambda done: rows_of(done)[0])) == (100, 100)
            (java,) = run.java
            add(it, 101, 200)
            assert rows_of(run.wait_for(lambda done: rows_of(done)[0])) == (100, 100)
            assert run.java == [java]

            # MySQL goes away and comes back.
            own.stop()
            away = run.wait_for(failed)
            assert "MySQL" in away["tables"][0]["error"]
            own.start()
            run.wait_for(went_well)
            assert it.watermark().mysql_state.status == "success"

            # Java is killed while nobody needs it.
            os.kill(java, signal.SIGKILL)
            add(it, 201, 300)
            assert rows_of(run.wait_for(lambda done: done["tables"][0]["rows"])) == (100, 100)
            assert run.java not in ([], [java])

            # Another run holds the table, and then the warehouse.
            with run.wait_until(lambda: _leased(it)):
                run.wait_for(is_busy)
            run.wait_for(went_well)
            warehouse = run.wait_until(lambda: _opened(it))
            add(it, 301, 400)
            run.wait_for(is_busy)
            warehouse.close()
            run.wait_for(lambda done: rows_of(done)[1])

            ended = run.end()
        check_left_in_order(it, ended)
        assert ended.err.count("starting Spark") == 2
        assert ended.err.count("next round at") == len(run.rounds)
        assert len({done["session_id"] for done in run.rounds}) == len(run.rounds)
        check_complete(it, 400)


def _leased(it: Pipeline) -> ExitStack | None:
    """Hold the table's lease, unless a round holds it right now."""
    with ExitStack() as held:
        try:
            held.enter_context(open_store(it.lake.open()).lease(it.table()))
        except LeaseHeld:
            return None
        return held.pop_all()


def _opened(it: Pipeline) -> "duckdb.DuckDBPyConnection | None":
    try:
        return duckdb.connect(str(it.folder / "warehouse.duckdb"))
    except duckdb.IOException:
        return None  # the run has it open just now


@pytest.mark.enough_on("mariadb")
@pytest.mark.parametrize("whom", ["process", "group"])
def test_killed_java_and_sigterm_in_the_middle_of_a_chunk(pipeline: New, whom: str) -> None:
    """A service's stop sends the signal to the process alone, or to Java as well."""
    it = pipeline(CURSOR, settings="extraction: {window_rows: 500, windows_per_chunk: 2}")
    create(it)
    add(it, 1, 10_000)
    with running(it, "--backup-only") as run:
        run.wait_until(lambda: len(it.chunks()) >= 2)
        os.kill(run.java[0], signal.SIGKILL)
        # The round fails, or it goes on with another Java if that one was not running just then.
        run.wait_for(went_well)
        check_complete(it, 10_000, loaded=False)
        chunks = len(it.chunks())
        for first in range(10_001, 20_001, 1000):  # a round in between may take what is there
            add(it, first, first + 999)
        run.wait_until(lambda: len(it.chunks()) >= chunks + 2)
        ended = run.end(group=whom == "group")
    check_left_in_order(it, ended)
    assert ended.err.count("starting Spark") == 2
    assert it.watermark().mysql_state.total_rows < 20_000
    it.check_tracking()
    it.write_config("extraction: {window_rows: 100000}")
    it.synced()
    check_complete(it, 20_000, loaded=False)


@pytest.mark.enough_on("mysql")
def test_ctrl_c_between_rounds(pipeline: New) -> None:
    it = pipeline(CURSOR)
    create(it)
    with running(it, every="1h") as run:
        run.wait_for(went_well)
        ended = run.end(signal.SIGINT)
    assert ended.code == 130
    assert "Traceback" not in ended.err, ended.err


@pytest.mark.enough_on("mysql")
def test_a_lake_that_fails_for_a_while(pipeline: New, seaweedfs: SeaweedFS, tmp_path: Path) -> None:
    it = pipeline(
        CURSOR, lake="seaweedfs", settings="lease_seconds: 3\nretries: {first_seconds: 0.01}\n"
    )
    create(it)
    with FaultyProxy(seaweedfs.endpoint) as proxy:
        lake = replace(it.lake, endpoint=proxy.endpoint)
        faulty = replace(it, folder=tmp_path / "faulty", lake=lake).write_config()
        with running(faulty) as run:
            add(it, 1, 50)
            run.wait_for(lambda done: rows_of(done)[1])
            proxy.plan = lambda _request: SLOW_DOWN
            run.wait_for(failed)
            run.wait_for(failed)
            for seed in range(4):
                proxy.plan = random_faults(seed, 0.2)
                add(it, 51 + seed * 50, 100 + seed * 50)
                run.wait_for(lambda _done: True)
            proxy.plan = no_faults
            run.wait_for(went_well)
            run.wait_for(went_well)
            ended = run.end()
        check_left_in_order(it, ended)
    check_complete(replace(it, folder=faulty.folder), 250)


@pytest.mark.enough_on("mariadb")
def test_a_warehouse_that_goes_away_and_comes_back(pipeline: New, tmp_path: Path) -> None:
    """Told in a log for programs, which is JSON from its first line to its last."""
    with PrivatePostgres(tmp_path / "postgres") as server:
        it = pipeline(CURSOR)
        warehouse = new_postgres(server, it.lake)
        name_target(it.config, warehouse.connection)
        create(it)
        add(it, 1, 100)
        with running(it, "--log-format", "json") as run:
            run.wait_for(lambda done: rows_of(done)[1])
            server.kill()
            add(it, 101, 200)
            away = run.wait_for(failed)
            assert "cannot connect to PostgreSQL" in away["tables"][0]["error"]
            server.start()
            assert rows_of(run.wait_for(lambda done: rows_of(done)[1])) == (0, 100)
            server.restart()  # while nobody needs it
            add(it, 201, 300)
            assert rows_of(run.wait_for(lambda done: rows_of(done)[1])) == (100, 100)
            ended = run.end()
        check_left_in_order(it, ended)
        check_complete(it, 300, loaded=False)
        query = "SELECT COUNT(*), COUNT(DISTINCT id), MAX(id) FROM {schema}.t"
        assert warehouse.query(query) == [(300, 300, 300)]
    check_log_for_programs(run)


def check_log_for_programs(run: Running) -> None:
    log = [json.loads(line) for line in run.said]
    assert all({"time", "level", "message", "session"} <= entry.keys() for entry in log), log
    rounds = [entry["session"] for entry in log if entry.get("event") == "round"]
    printed = [done["session_id"] for done in run.rounds]
    assert rounds in (printed, printed[:-1])  # it may have been told to stop between the two
    failures = [entry for entry in log if entry.get("event") == "failed"]
    assert len(failures) == sum(map(failed, run.rounds))
    assert all(entry["hint"] and entry["exit_code"] == 1 for entry in failures)
    assert (log[-1]["event"], log[-1]["level"]) == ("stopped", "info")


@pytest.mark.enough_on("mysql")
def test_two_at_once(pipeline: New) -> None:
    it = pipeline(CURSOR)
    create(it)
    with running(it) as one, running(it) as other:
        for number in range(6):
            add(it, number * 50 + 1, number * 50 + 50)
            one.wait_for(lambda _done: True)
            other.wait_for(lambda _done: True)
        one.wait_until(lambda: it.watermark().redshift_state.total_rows == 300)
        ends = one.end(), other.end()
    for ended in ends:
        check_left_in_order(it, ended)
    problems = [t for run in (one, other) for done in run.rounds for t in done["tables"]]
    # Which of them is first is up to the scheduler; the other one is refused, and reads nothing.
    for table in problems:
        refused = "is held by session" in (table["error"] or "")
        assert (table["exit_code"], refused) in ((0, False), (4, True)), table
    assert sum(table["rows"] for table in problems) == 300
    check_complete(it, 300)


@pytest.mark.enough_on("mysql")
def test_sigterm_ends_a_single_sync_too(pipeline: New) -> None:
    it = pipeline(CURSOR, settings="extraction: {window_rows: 500, windows_per_chunk: 2}")
    create(it)
    add(it, 1, 10_000)
    run = Running(it.start("sync", "-p", "main", "--backup-only", "--json"))
    run.wait_until(lambda: len(it.chunks()) >= 2)
    ended = run.end()
    assert ended.code == 143
    assert "Traceback" not in ended.err, ended.err
    lease = read_lease(it.lake.open(), it.table())
    assert lease is not None
    assert lease.released
    it.check_tracking()
