"""Few rows are read by processes of the command, without Spark: `spark: {from_rows: N}`."""

import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import floodmark
from floodmark.sync import plan
from floodmark.sync.process_engine import ProcessEngine
from floodmark.sync.spark_engine import SparkEngine
from pipelines import Ended, Pipeline, ask_once, finish, numbers, wait_until, warm_engine
from synced_table import Synced

pytestmark = pytest.mark.usefixtures("settings_of_the_file")

New = Callable[..., Pipeline]
CURSOR = "{cursor: [update_at, id]}"
FEW = "spark: {from_rows: 1000, master: 'local[2]'}"


@pytest.fixture
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever starts Spark fails."""
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")


def create(it: Pipeline, rows: int, table: str = "t") -> None:
    ask_once(
        it,
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT NOT NULL, update_at DATETIME NOT NULL,"
        " KEY by_change (update_at, id))",
    )
    add(it, 1, rows, table)


def add(it: Pipeline, first: int, last: int, table: str = "t") -> None:
    ask_once(
        it,
        f"INSERT INTO {table} SELECT seq, 0, '2025-06-01' + INTERVAL seq DIV 3 SECOND"
        f" FROM {numbers(first, last)}",
    )
    ask_once(it, f"ANALYZE TABLE {table}")


def sync(it: Pipeline, *options: str, engine: Any = SparkEngine) -> Ended:
    return it.call("sync", "-p", "main", "--json", *options, engine=engine)


def readers_of(pid: int) -> list[int]:
    """The processes that read rows for a process."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            with suppress(OSError):
                command = Path(f"/proc/{child}/cmdline").read_text()
                found += [int(child)] if "process_worker" in command else []
    return found


@pytest.mark.usefixtures("_no_java")
@pytest.mark.parametrize("kind", ["duckdb", "postgres", "redshift"])
def test_random_changes_arrive_without_java(new_table: Callable[..., Synced], kind: str) -> None:
    table = new_table(kind, run_settings=FEW)
    chance, rows = random.Random(kind), 0
    ticks = (f"update_at = '2025-06-01' + INTERVAL {second} SECOND" for second in count())
    for _ in range(4):
        for _ in range(chance.randint(1, 20)):
            note, number = f"note = '{chance.randint(0, 10**9)}'", chance.randint(1, rows + 1)
            rows = max(rows, number)
            table.change(
                f"INSERT INTO t SET id = {number}, big = {number}, {note}, {next(ticks)}"
                f" ON DUPLICATE KEY UPDATE big = -big, {note}, {next(ticks)}"
            )
        ended = sync(table.it)
        assert ended.code == 0, ended
        table.check_equal()
    table.it.check_tracking()


@pytest.mark.enough_on("mariadb")
@pytest.mark.parametrize("strategy", ["intra-table", "inter-table"])
def test_small_tables_beside_a_large_one(
    pipeline: New, spark: Any, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    it = pipeline({"t": CURSOR, "large": CURSOR, "u": CURSOR}, settings=FEW)
    sizes = {"t": 10, "large": 2000, "u": 999}
    for name, rows in sizes.items():
        create(it, rows, name)
    by_spark: list[str] = []
    by_processes: list[str] = []

    class Mixed(warm_engine(spark)):  # type: ignore[misc]
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            by_spark.append(job.table.table)
            return super().extract(job, windows, progress)

    def extract(self: Any, job: Any, windows: Any, progress: Any) -> Any:
        by_processes.append(job.table.table)
        return original(self, job, windows, progress)

    original = ProcessEngine.extract
    monkeypatch.setattr(ProcessEngine, "extract", extract)
    ended = sync(it, "--strategy", strategy, engine=Mixed)
    assert ended.code == 0, ended
    assert (set(by_spark), set(by_processes)) == ({"large"}, {"t", "u"})
    for name, rows in sizes.items():
        assert it.ids(name) == dict.fromkeys(range(1, rows + 1), 1)
        it.check_tracking(name)


@pytest.mark.enough_on("mysql")
@pytest.mark.usefixtures("_no_java")
def test_without_java_only_small_tables_are_read(pipeline: New) -> None:
    it = pipeline({"t": CURSOR, "large": CURSOR}, settings=FEW)
    create(it, 10)
    create(it, 2000, "large")
    ended = sync(it)
    assert ended.code == 3, ended
    small, large = ended.value["tables"]
    assert (small["status"], small["loaded_rows"]) == ("success", 10)
    assert "Spark needs Java" in large["error"]
    assert it.chunks("large") == []
    limited = sync(it, "--limit", "999")
    assert [one["rows"] for one in limited.value["tables"]] == [0, 999]


@pytest.mark.enough_on("mysql")
@pytest.mark.usefixtures("_no_java")
def test_more_rows_than_estimated_are_read_all_the_same(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "estimate_rows", lambda *_, **__: 7)
    small = "extraction: {window_rows: 600, windows_per_chunk: 2}"
    it = pipeline({"t": CURSOR}, settings=f"{FEW}\n{small}")
    create(it, 5000)
    ended = sync(it)
    assert ended.code == 0, ended
    assert (ended.table["rows"], ended.table["chunks"]) == (5000, 5)
    assert it.ids() == dict.fromkeys(range(1, 5001), 1)
    it.check_tracking()


@pytest.mark.enough_on("mariadb")
@pytest.mark.usefixtures("_no_java")
def test_backfill_and_repair_need_no_java(new_table: Callable[..., Synced]) -> None:
    table = new_table(run_settings="spark: {from_rows: 10000}")
    table.change(
        "INSERT INTO t (id, big, update_at) SELECT seq, seq, '2025-06-01'"
        f" + INTERVAL seq SECOND FROM {numbers(1, 3000)}"
    )
    assert sync(table.it).code == 0
    table.change("UPDATE t SET note = 'changed' WHERE id <= 2000")
    name = f"{table.it.schema}.t"
    again = table.it.call(
        "backfill", "-t", name, "--from", "2025-06-01", "--to", "2025-06-01 00:10:00",
        engine=SparkEngine,
    )  # fmt: skip
    assert again.code == 0, again
    assert table.warehouse.query("SELECT count(*) FROM {schema}.t WHERE note = 'changed'") == [
        (600,)
    ]
    table.change("UPDATE t SET update_at = update_at + INTERVAL 1 MICROSECOND WHERE id <= 2000")
    table.warehouse.query("DELETE FROM {schema}.t WHERE id <= 1500")
    ended = table.it.call("reconcile", "-t", name, "--json", engine=SparkEngine)
    assert ended.code == 0, ended
    assert table.warehouse.query("SELECT count(*) FROM {schema}.t") == [(3000,)]


def slow(it: Pipeline) -> None:
    """Let rows be read slowly."""
    path = Path(it.config)
    path.write_text(
        path.read_text().replace('"type": "mysql"', '"type": "mysql", "max_rows_per_second": 5')
    )


def quick(it: Pipeline) -> None:
    path = Path(it.config)
    path.write_text(path.read_text().replace(', "max_rows_per_second": 5', ""))


@pytest.mark.enough_on("mysql")
@pytest.mark.usefixtures("_no_java")
@pytest.mark.parametrize("strike", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_leaves_no_process(pipeline: New, strike: signal.Signals) -> None:
    it = pipeline({"t": CURSOR}, settings=FEW)
    create(it, 100)
    slow(it)
    process = it.start("sync", "-p", "main")
    readers = wait_until(lambda: readers_of(process.pid))
    process.send_signal(strike)
    ended = finish(process)
    assert ended.code == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[strike]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in readers))
    quick(it)  # on a busy machine the first chunk may be committed before
    done = it.command("sync", "-p", "main")
    assert done.code == 0, done
    assert it.ids() == dict.fromkeys(range(1, 101), 1)
    it.check_tracking()


@pytest.mark.enough_on("mariadb")
@pytest.mark.usefixtures("_no_java")
def test_rounds_use_the_same_process_until_the_project_is_closed(pipeline: New) -> None:
    it = pipeline({"t": CURSOR}, settings=FEW)
    create(it, 10)
    with floodmark.open_project(it.config) as project:
        project.sync()
        first = readers_of(os.getpid())
        assert len(first) == 1
        add(it, 11, 20)
        project.sync()
        assert readers_of(os.getpid()) == first
    assert readers_of(os.getpid()) == []
    assert it.ids() == dict.fromkeys(range(1, 21), 1)


@pytest.mark.enough_on("mariadb")
@pytest.mark.usefixtures("_no_java")
def test_nothing_secret_is_shown_and_no_spark_is_kept(
    pipeline: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    it = pipeline({"t": CURSOR}, settings="spark: {from_rows: 1000, keep_warm: 10m}")
    create(it, 100)
    slow(it)
    process = it.start("sync", "-p", "main")
    (reader,) = wait_until(lambda: readers_of(process.pid))
    for facts in ("cmdline", "environ"):
        assert it.source["password"].encode() not in Path(f"/proc/{reader}/{facts}").read_bytes()
    process.kill()
    finish(process)
    assert json.loads(it.command("spark", "status", "--json").out) == []


@pytest.mark.enough_on("mysql")
def test_nothing_new_starts_no_process(pipeline: New) -> None:
    it = pipeline({"t": CURSOR}, settings=FEW)
    create(it, 10)
    assert sync(it).code == 0
    started: list[Any] = []

    class Counted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            started.append(arguments)
            super().__init__(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Counted)
        assert sync(it).table["rows"] == 0
        assert started == []
        add(it, 11, 12)
        assert sync(it).table["rows"] == 2
        assert len(started) == 1
