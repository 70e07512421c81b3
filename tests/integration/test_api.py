"""`import floodmark` as a user has it: in a script, in a notebook, with a Spark of their own."""

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import floodmark
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal
from floodmark.model.extraction import Receipt, Window
from floodmark.state.lease import read_lease
from floodmark.sync import spark_engine as engines
from floodmark.worker.job import ExtractionJob
from pipelines import DirectEngine, Pipeline, ask_once, cold_environment, numbers

pytestmark = pytest.mark.enough_on("mysql")  # it is about the caller

New = Callable[..., Pipeline]
CURSOR = "{cursor: [update_at, id]}"
SMALL = "extraction: {window_rows: 100, windows_per_chunk: 1}"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "SparkEngine", DirectEngine)


def filled(pipeline: New, rows: int = 300, tables: tuple[str, ...] = ("t",)) -> Pipeline:
    it = pipeline(dict.fromkeys(tables, CURSOR), settings=SMALL)
    for table in tables:
        ask_once(
            it,
            f"CREATE TABLE {table} (id INT PRIMARY KEY, update_at DATETIME NOT NULL,"
            " KEY by_change (update_at, id))",
        )
        ask_once(
            it,
            f"INSERT INTO {table} SELECT seq, '2025-06-01' + INTERVAL seq SECOND"
            f" FROM {numbers(1, rows)}",
        )
    return it


def is_free(it: Pipeline) -> bool:
    lease = read_lease(it.lake.open(), it.table())
    return lease is not None and lease.released


def test_a_notebook_gets_values_and_keeps_its_process_as_it_was(
    pipeline: New, capfd: pytest.CaptureFixture[str]
) -> None:
    it = filled(pipeline)
    seen: list[tuple[floodmark.TableName, floodmark.Progress]] = []
    signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    handlers, level = list(logging.getLogger().handlers), logging.getLogger().level

    async def cell() -> None:  # a notebook's event loop runs already
        with floodmark.open_project(it.config, on_progress=lambda *p: seen.append(p)) as project:
            assert project.tables == (it.table(),)
            (plan,) = project.plan()
            assert plan.read
            assert (plan.read.rows, plan.read.cursor) == (300, ("update_at", "id"))
            assert project.watermarks.get(f"{it.schema}.t") is None
            first = project.sync(verify="new").raise_for_failures()
            assert (first.rows, first.loaded_rows, first.exit_code) == (300, 300, 0)
            (table,) = first.tables
            assert table.table_name == str(it.table())
            assert table.end
            assert table.end.id == 300
            assert table.verification
            assert table.verification.rows == 300
            assert [n.event for n in first.notices].count("target_changed") == 2
            second = project.sync(f"{it.schema}.t", strategy="inter-table")
            assert (second.rows, second.failures) == (0, ())
            assert second.session_id != first.session_id
            assert project.verify(everything=True).tables[0].verification
            (found,) = project.validate().raise_for_failures().tables
            assert found.findings.target_rows == 300
            assert {check.state for check in project.doctor()} <= {"ok", "note"}
            (status,) = project.status()
            assert status.watermark
            assert status.watermark.redshift_state.total_rows == 300

    asyncio.run(cell())
    assert seen[-1][0] == it.table()
    assert seen[-1][1].finished
    assert signals == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert (handlers, level) == (logging.getLogger().handlers, logging.getLogger().level)
    assert capfd.readouterr() == ("", "")


def test_watermarks_can_be_changed(pipeline: New) -> None:
    it = filled(pipeline)
    name = f"{it.schema}.t"
    with floodmark.open_project(it.config) as project:
        project.sync(limit=100)
        marks = project.watermarks
        with pytest.raises(floodmark.UsageError, match=r"would jump from .* 100 rows in between"):
            marks.set(name, timestamp=datetime(2025, 6, 1, 0, 3, 20), id=200)  # noqa: DTZ001
        assert project.status()[0].watermark == marks.get(name)
        marks.set(name, timestamp=datetime(2025, 6, 1, 0, 3, 20), id=200, skip_rows=True)  # noqa: DTZ001
        assert project.sync().rows == 100
        reset = marks.reset(name, stages=["extract"])
        assert reset.position.is_start
        before = marks.history(name)[1]
        assert marks.restore(name, str(before.head)).position.id == 300
        assert marks.get_system() is None
        assert marks.set_system("1day").preset == "1day"


def test_a_prepared_change_asks_and_changes_nothing_before_its_commit(pipeline: New) -> None:
    it = filled(pipeline)
    name = f"{it.schema}.t"
    with floodmark.open_project(it.config) as project:
        marks = project.watermarks
        assert marks.next_start(name).by == "default"
        project.sync(limit=100)
        saved = marks.get(name)
        assert saved
        assert marks.next_start(name) == floodmark.NextStart(
            position=saved.position, by="watermark"
        )
        prepared = [
            marks.prepare_set(name, timestamp=datetime(2025, 6, 1, 0, 3, 20), id=200),  # noqa: DTZ001
            marks.prepare_reset(name),
            marks.prepare_restore(name, "1-1"),
            marks.prepare_restore(name, seal(saved), name="saved.json"),
        ]
        system = marks.prepare_system("1day")
        assert [str(c.before) for c in prepared] == [str(saved.position)] * 4
        questions = [str(change.question) for change in prepared]
        for question, part in zip(
            questions, ["100 rows in between", "read again", "(1-1)", "(saved.json)"], strict=True
        ):
            assert part in question
        assert marks.prepare_reset(name, force=True).question is None
        assert (marks.get(name), marks.get_system()) == (saved, None)
        assert system.before is None
        assert system.commit().timestamp == system.timestamp
        assert prepared[1].commit().position.is_start
        assert prepared[3].commit().position == saved.position  # restored from the document


def test_files_copies_and_their_removal(pipeline: New) -> None:
    it = filled(pipeline)
    table = it.table()
    with floodmark.open_project(it.config) as project:
        marks, lake = project.watermarks, project.lake
        assert (marks.files(table), lake.files(table), lake.tables()) == ((), (), ())
        project.sync(limit=200)
        project.sync(stages="extract")
        files = marks.files(table)
        assert [(file.rows, file.loaded) for file in files] == [
            (100, True),
            (100, True),
            (100, False),
        ]
        stored = {file.path: file for file in lake.files(table)}
        states = ["loaded", "loaded", "pending"]
        assert [stored[file.path].state for file in files] == states
        assert marks.quarantine(table) == ()
        assert lake.tables() == (table,)
        cleaned = lake.clean(table, older_than=timedelta(days=1))
        assert (cleaned.removed, cleaned.protected) == ((), ())  # nothing is that old
        planned = lake.clean(table, dry_run=True)
        assert {file.path: file for file in lake.files(table)} == stored
        cleaned = lake.clean(table)
        assert cleaned.removed == planned.removed
        assert [file.path for file in cleaned.protected] == [files[2].path]
        assert [file.path for file in lake.files(table)] == [files[2].path]

        places = [copy.place for copy in marks.copies(table)]
        assert places == ["primary", "daily", "session", "session"]
        assert all(copy.watermark for copy in marks.copies(table))
        assert marks.recoveries(table) == ()
        assert marks.prune(keep_days=0).removed == ()  # all are of today
        it.lake.open().put(lake_layout.primary(table), b"damaged")
        assert marks.copies(table)[0].problem
        current = marks.get(table)
        assert current
        assert current.position.id == 300
        (recovery,) = marks.recoveries(table)
        assert recovery.table_name == str(table)
        lease = marks.lease(table)
        assert lease
        assert lease.released


def test_a_failed_table_is_in_the_result(pipeline: New) -> None:
    it = filled(pipeline, tables=("t", "gone"))
    ask_once(it, "DROP TABLE gone")
    with floodmark.open_project(it.config) as project:
        result = project.sync()
        assert [table.failed for table in result.tables] == [False, True]
        assert result.tables[0].loaded_rows == 300
        with pytest.raises(floodmark.PartialFailure, match=r"PROD:.*gone: "):
            result.raise_for_failures()
        with pytest.raises(floodmark.UsageError, match=r"unknown table 'nosuch.t'"):
            project.sync("nosuch.t")
        with pytest.raises(floodmark.UsageError, match="stages"):
            project.sync(stages=["unload"])  # type: ignore[list-item]
    with pytest.raises(floodmark.UsageError, match="the project is closed"):
        project.sync()
    with pytest.raises(floodmark.ConfigError):
        floodmark.open_project(it.folder / "nosuch.yml")


def test_broken_callbacks_fail_no_table_and_are_reported(pipeline: New) -> None:
    it = filled(pipeline)

    def broken(what: str, *_: Any) -> None:
        raise ValueError(what)

    with floodmark.open_project(
        it.config, on_progress=partial(broken, "progress"), on_notice=partial(broken, "notice")
    ) as project:
        result = project.sync().raise_for_failures()
    assert result.loaded_rows == 300
    said = [notice.message for notice in result.notices if notice.event == "callback"]
    assert said == [
        "on_progress raised ValueError: progress; it will not be called again",
        "on_notice raised ValueError: notice",
    ]
    assert is_free(it)


def test_one_sync_at_a_time(pipeline: New) -> None:
    it = filled(pipeline)
    raised: list[floodmark.FloodmarkError] = []

    def again(*_: Any) -> None:
        try:
            project.sync()
        except floodmark.BusyError as error:
            raised.append(error)
        assert project.status()[0].table == it.table()  # reading is always possible

    with floodmark.open_project(it.config, on_progress=again) as project:
        assert project.sync().raise_for_failures().rows == 300
    assert raised


class Interrupting(DirectEngine):
    """Has the user press Ctrl-C in the middle of the first sync."""

    done = 0

    def extract(
        self, job: ExtractionJob, windows: Sequence[Window], progress: Callable[[int], None]
    ) -> list[Receipt]:
        """Read a chunk; at the second one, Ctrl-C comes."""
        type(self).done += 1
        if self.done == 2:
            os.kill(os.getpid(), signal.SIGINT)
            while not self.is_stopped:
                pass
            self.check()
        return super().extract(job, windows, progress)


def test_an_interrupted_sync_leaves_nothing_behind_and_can_be_repeated(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = filled(pipeline)
    monkeypatch.setattr(engines, "SparkEngine", Interrupting)
    with floodmark.open_project(it.config) as project:
        with pytest.raises(KeyboardInterrupt):
            project.sync()
        assert is_free(it)
        assert it.watermark().position.id == 100
        assert project.sync().raise_for_failures().rows == 200
    it.check_tracking()


OWN_SPARK = """
import json, sys
import floodmark
from pyspark.sql import SparkSession

def build(**options):
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

def sync(spark):
    with floodmark.open_project(sys.argv[1], spark=spark) as project:
        return project.sync(stages=["extract"])

unsafe = build()
refused = sync(unsafe).tables[0]
unasked = sync(None).tables[0]
assert unsafe.range(3).count() == 3
unsafe.stop()
stopped = sync(unsafe).tables[0]
# What the guide says; a session that is there already is taken by its getOrCreate.
build(**{"spark.authenticate": "true"})
spark = SparkSession.builder.config("spark.authenticate", "true").getOrCreate()
spark.range(3).count()
before = dict(spark.sparkContext.getConf().getAll())
exec(sys.argv[2])
answer = {
    "refused": [refused.error, refused.hint],
    "unasked": [unasked.error, unasked.hint],
    "stopped": stopped.error,
    "rows": [result.rows, result.loaded_rows],
    "same": before == dict(spark.sparkContext.getConf().getAll()),
    "alive": spark.range(3).count(),
}
spark.stop()
print(json.dumps(answer))
"""


OTHER_PYTHON = """
import sys
import floodmark
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.authenticate", "true").getOrCreate()
with floodmark.open_project(sys.argv[1], spark=spark) as project:
    (table,) = project.sync(stages=["extract"]).tables
spark.stop()
print(table.rows, table.error, table.hint)
"""


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("os.environ['PYSPARK_PYTHON'] = sys.executable")
def test_workers_without_floodmark_are_reported(pipeline: New, tmp_path: Path) -> None:
    it = filled(pipeline)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)

    def run(python: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-c", OTHER_PYTHON, it.config],
            env={**cold_environment(), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()[-1]

    failed = run(str(bare / "bin" / "python"))
    assert "ModuleNotFoundError: No module named 'floodmark'" in failed
    assert "set os.environ['PYSPARK_PYTHON'] = sys.executable" in failed
    assert run(sys.executable) == "300 None None"


@pytest.mark.follows_hint("build the session with .config('spark.authenticate', 'true')")
def test_a_session_of_the_callers_own(pipeline: New) -> None:
    """In a process of its own, as one has but one Spark."""
    it = filled(pipeline)
    page = (Path(__file__).parents[2] / "docs" / "guides" / "python.md").read_text()
    (fence,) = re.findall(r"```python\n(from pyspark.*?)```", page, flags=re.S)
    ended = subprocess.run(
        [sys.executable, "-c", OWN_SPARK, it.config, fence],
        env={**cold_environment(), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        cwd=it.folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout.splitlines()[-1])
    assert "runs without spark.authenticate" in answer["refused"][0]
    assert ".config('spark.authenticate', 'true')" in answer["refused"][1]
    assert "Spark already runs in this process" in answer["unasked"][0]
    assert "open_project(path, spark=spark)" in answer["unasked"][1]
    assert "is stopped" in answer["stopped"]
    assert (answer["rows"], answer["same"], answer["alive"]) == ([300, 300], True, 3)
    assert it.ids() == dict.fromkeys(range(1, 301), 1)
