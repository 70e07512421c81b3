"""The engine: work that is spread over Spark's workers, and the log of Spark's driver."""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from floodmark.config.models import SparkSettings
from floodmark.errors import FloodmarkError, SparkJobFailed
from floodmark.model.notice import Notice
from floodmark.spark import session as sessions
from floodmark.spark.runner import SparkFailure
from floodmark.sync import spark_engine
from floodmark.sync.spark_engine import SparkEngine


class CountingSpark:
    """Counts the tasks that run at once."""

    def __init__(self) -> None:
        self.lock, self.running, self.most = threading.Lock(), 0, 0

    def run(self, title: str, _task: Callable[[int], str], tasks: int, _progress: Any) -> list[str]:
        with self.lock:
            self.running += tasks
            self.most = max(self.most, self.running)
        threading.Event().wait(0.01)
        with self.lock:
            self.running -= tasks
        return [f"{title} {number}" for number in range(tasks)]


class Engine(SparkEngine):
    """Uses a Spark that only counts."""

    spark = CountingSpark()

    def _started(self) -> CountingSpark:
        return self.spark


def test_parts_of_all_tables_share_the_connections_of_a_warehouse() -> None:
    engine = Engine(SparkSettings(), lambda _notice: None)
    with ThreadPoolExecutor(4) as pool:
        loads = [
            pool.submit(engine.spread, "db:5432", f"t{number}", lambda _n: b"", 40, 7)
            for number in range(4)
        ]
        assert [len(load.result(timeout=30)) for load in loads] == [40] * 4
    assert 0 < engine.spark.most <= 7


class FailingSpark(CountingSpark):
    """Its second job fails."""

    def run(self, title: str, _task: Any, tasks: int, _progress: Any) -> list[str]:
        if title == "second":
            raise SparkFailure("an executor is lost")
        return super().run(title, _task, tasks, _progress)

    def is_alive(self) -> bool:
        return True


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The logs of all sessions that are started; Spark is a fake."""
    found: list[str] = []

    @contextmanager
    def start(*, log_file: str, master: str, **_: Any) -> Iterator[FailingSpark]:
        found.append(log_file)
        if log_file != os.devnull:
            Path(log_file).write_text("WARN the driver")
        if master == "spark://nobody:7077":
            raise FloodmarkError("Spark does not start")
        yield FailingSpark()

    monkeypatch.setattr(sessions, "spark_session", start)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return found


def test_the_log_of_a_clusters_driver_stays_if_spark_fails(logs: list[str]) -> None:
    notices: list[Notice] = []
    engine = SparkEngine(SparkSettings(master="spark://host:7077"), notices.append)
    engine.spread("db", "first", lambda _n: b"", 1, 1)
    (log,) = logs
    assert stat.S_IMODE(os.stat(log).st_mode) == 0o600
    assert not [notice for notice in notices if log in notice.message]
    for _ in range(2):
        with pytest.raises(SparkJobFailed):
            engine.spread("db", "second", lambda _n: b"", 1, 1)
    (named,) = [notice for notice in notices if log in notice.message]
    assert (named.level, Path(log).read_text()) == ("warning", "WARN the driver")
    engine.stop()
    assert os.path.exists(log)


def test_the_log_of_a_driver_without_a_failure_is_removed(logs: list[str]) -> None:
    engine = SparkEngine(SparkSettings(master="spark://host:7077"), lambda _notice: None)
    engine.spread("db", "first", lambda _n: b"", 1, 1)
    engine.stop()
    assert not os.path.exists(logs[0])


def test_the_log_of_a_driver_that_does_not_start_is_named(logs: list[str]) -> None:
    notices: list[Notice] = []
    engine = SparkEngine(SparkSettings(master="spark://nobody:7077"), notices.append)
    with pytest.raises(FloodmarkError, match="does not start"):
        engine.slots()
    assert logs[0] in notices[-1].message
    engine.stop()
    assert os.path.exists(logs[0])


def test_a_local_spark_logs_nothing(logs: list[str]) -> None:
    engine = SparkEngine(SparkSettings(master="local[2]"), lambda _notice: None)
    engine.spread("db", "first", lambda _n: b"", 1, 1)
    engine.stop()
    assert logs == [os.devnull]


def test_a_job_that_fails_late_does_not_end_the_spark_that_was_started_since(
    logs: list[str],
) -> None:
    engine = SparkEngine(SparkSettings(), lambda _notice: None)
    dying, restarted = threading.Event(), threading.Event()

    def fail_late(session: Any) -> None:
        session.is_alive = lambda: False
        dying.set()
        assert restarted.wait(30)
        raise ConnectionRefusedError

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(engine._run, fail_late)
        assert dying.wait(30)
        engine.spread("db", "first", lambda _n: b"", 1, 1)
        restarted.set()
        with pytest.raises(FloodmarkError, match="ConnectionRefusedError"):
            job.result(timeout=30)
    engine.rest()
    engine.spread("db", "first", lambda _n: b"", 1, 1)
    assert len(logs) == 2
    engine.stop()


def test_known_slots_do_not_start_a_spark_that_ended(logs: list[str]) -> None:
    engine = SparkEngine(SparkSettings(master="local[3]"), lambda _notice: None)
    engine.spread("db", "first", lambda _n: b"", 1, 1)
    assert engine.known_slots == 3  # of the setting: this Spark cannot say
    assert len(logs) == 1
    engine.stop()


class LaunchingEngine(Engine):
    """Takes a moment to launch Java; `over` ends its start."""

    def __init__(self, settings: SparkSettings) -> None:
        super().__init__(settings, lambda _notice: None)
        self.over, self.java = threading.Event(), False

    def _started(self) -> CountingSpark:
        threading.Event().wait(0.05)
        self.java = True
        self._launched.set()
        assert self.over.wait(30)
        return self.spark


def test_java_is_launched_before_anything_else_is_imported() -> None:
    engine = LaunchingEngine(SparkSettings())
    engine.prepare()
    assert engine.java
    engine.over.set()


def test_a_spark_in_the_background_is_attached_to_meanwhile() -> None:
    engine = LaunchingEngine(SparkSettings(keep_warm="1h"))
    engine.prepare()
    assert not engine.java
    engine.over.set()


def test_a_spark_that_does_not_start_is_not_waited_for(
    logs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_engine, "_LAUNCH_SECONDS", None)
    engine = SparkEngine(SparkSettings(master="spark://nobody:7077"), lambda _notice: None)
    engine.prepare()
    assert len(logs) == 1
    engine.stop()


def test_few_rows_are_read_without_spark(logs: list[str]) -> None:
    engine = SparkEngine(SparkSettings(master="local[3,2]", from_rows=10), lambda _notice: None)
    few = engine.for_rows(9)
    assert few is not engine
    assert few is engine.for_rows(0)
    assert few.for_rows(10) is engine.for_rows(10) is engine
    assert (few.slots(), few.known_slots, few.slots_beside, engine.slots_beside) == (3, 3, 3, 3)
    assert logs == []
    engine.stop()
    with pytest.raises(FloodmarkError, match="the run was stopped"):
        few.prepare()


def test_spark_knows_of_processes_before_they_read() -> None:
    engine = SparkEngine(SparkSettings(master="local[3]", from_rows=10), lambda _notice: None)
    assert engine.slots_beside == 3


def test_by_default_spark_reads_everything() -> None:
    engine = SparkEngine(SparkSettings(), lambda _notice: None)
    assert engine.for_rows(0) is engine
    assert engine.slots_beside == 0


def test_another_spark_reads_everything_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.master spark://host:7077\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for attached, place in ((None, "spark://host:7077"), (object(), "session that was passed in")):
        notices: list[Notice] = []
        settings = SparkSettings(from_rows=10)
        engine = SparkEngine(settings, notices.append, attached=attached)
        assert engine.for_rows(1) is engine.for_rows(2) is engine
        (notice,) = notices
        assert "'spark: {from_rows: …}' has no effect" in notice.message
        assert f"{place} reads all rows" in notice.message


def test_a_master_that_spark_refuses_is_left_to_spark() -> None:
    engine = SparkEngine(SparkSettings(master="local[many]", from_rows=10), lambda _notice: None)
    assert engine.for_rows(1) is engine
