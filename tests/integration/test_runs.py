"""What runs leave behind: their records, and the failures of tables, on a real server."""

import itertools
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import floodmark
from floodmark.model.extraction import Receipt, Window
from floodmark.model.run_record import RunRecord, TableRun
from floodmark.sync import spark_engine as engines
from floodmark.worker.job import ExtractionJob
from pipelines import DirectEngine, Pipeline, ask_once, numbers
from processes import start as start_process

pytestmark = pytest.mark.enough_on("mysql")

New = Callable[..., Pipeline]
CURSOR = "{cursor: [update_at, id]}"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "SparkEngine", DirectEngine)


def filled(pipeline: New, *tables: str, settings: str = "") -> Pipeline:
    it = pipeline(dict.fromkeys(tables, CURSOR), settings=settings)
    for table in tables:
        create(it, table)
    return it


def create(it: Pipeline, table: str) -> None:
    ask_once(
        it,
        f"CREATE TABLE {table} (id INT PRIMARY KEY, update_at DATETIME NOT NULL,"
        " KEY by_change (update_at, id))",
    )
    add(it, table, 1, 20)


def add(it: Pipeline, table: str, first: int, last: int) -> None:
    ask_once(
        it,
        f"INSERT INTO {table} SELECT seq, '2025-06-01' + INTERVAL seq SECOND"
        f" FROM {numbers(first, last)}",
    )


def states(it: Pipeline) -> dict[str, tuple[str, str | None]]:
    with floodmark.open_project(it.config) as project:
        return {status.table.table: (status.state, status.error) for status in project.status()}


def last_run(it: Pipeline) -> RunRecord:
    with floodmark.open_project(it.config) as project:
        return next(project.runs())


@pytest.mark.parametrize(
    ("changes", "error", "code"),
    [
        ({"password": "wrong"}, "refuses user", 2),
        ({"port": 1}, "does not answer", 1),
        ({"tls": {"ca": "nosuch.pem"}}, "nosuch.pem", 2),
    ],
)
def test_a_server_that_cannot_be_used_fails_every_table_until_it_can(
    pipeline: New, changes: dict[str, Any], error: str, code: int
) -> None:
    it = filled(pipeline, "t", "u")
    assert it.call("sync", "-t", f"{it.schema}.t").code == 0
    before = it.watermark().position
    broken = replace(it, source={**it.source, **changes}).write_config()
    ended = broken.call("sync", "-p", "main")
    assert ended.code == code, ended
    found = states(it)
    assert {state for state, _ in found.values()} == {"failing"}
    assert all(error in str(why) for _, why in found.values()), found
    listed = it.call("watermark", "list").out
    assert "in step" not in listed
    assert listed.count("extract failed") == 2
    assert it.watermark().mysql_state.status == "failed"
    record = last_run(it)
    assert (record.status, len(record.failures)) == ("failed", 2)
    assert all(error in str(table.error) for table in record.failures)
    assert str(it.source["password"]) not in str(record)
    assert it.watermark().position == before
    it.write_config()
    assert it.call("sync", "-p", "main").code == 0
    assert states(it) == dict.fromkeys("tu", ("in step", None))
    assert it.watermark().mysql_state.status == "success"


def test_a_missing_table_and_a_broken_warehouse_fail_alone(pipeline: New) -> None:
    it = filled(pipeline, "t", "u", "v")
    ask_once(it, "DROP TABLE u")
    warehouse = it.folder / "warehouse.duckdb"
    warehouse.mkdir()
    assert it.call("sync", "-p", "main").code == 1
    found = states(it)
    assert {state for state, _ in found.values()} == {"failing"}
    assert [failure.stage for failure in last_run(it).failures] == ["load", "extract", "load"]
    warehouse.rmdir()
    assert it.call("sync", "-p", "main").code == 3
    assert {name: state for name, (state, _) in states(it).items()} == {
        "t": "in step",
        "u": "failing",
        "v": "in step",
    }
    record = last_run(it)
    assert (record.status, record.rows, record.loaded_rows) == ("partial", 0, 40)
    assert record.options == {"pipelines": ["main"]}
    assert (record.pipelines, record.table_count) == (("main",), 3)
    assert f"{record.user}@{record.host}" == it.manifests()[0].author
    assert record.program == floodmark.__version__


def test_an_error_before_any_table_fails_them_all(pipeline: New) -> None:
    it = filled(pipeline, "t")
    assert it.call("sync", "-p", "main").code == 0
    text = Path(it.config).read_text()
    Path(it.config).write_text(text.replace('"password": "', '"password": "${NO_SUCH_VARIABLE}'))
    ended = it.call("sync", "-p", "main")
    assert ended.code == 2, ended
    assert "NO_SUCH_VARIABLE" in str(states(it)["t"])
    record = last_run(it)
    assert (record.status, record.tables) == ("failed", ())
    assert "NO_SUCH_VARIABLE" in str(record.error)
    # A wrong command is no run.
    assert it.call("sync", "-t", "nosuch.t").code == 2
    assert last_run(it) == record


def test_the_record_and_the_history_have_every_stage(pipeline: New) -> None:
    it = filled(pipeline, "t", "u")
    with floodmark.open_project(it.config) as project:
        first = project.sync(verify="new").raise_for_failures()
        record = project.run(first.session_id)
        assert (record.status, record.command, record.options) == (
            "success",
            "sync",
            {"verify": "new"},
        )
        (done, _) = record.tables
        assert (done.rows, done.loaded_rows, done.verified_rows) == (20, 20, 20)
        assert done.bytes > 0
        assert min(done.seconds, done.load_seconds, done.verify_seconds) > 0
        assert record.ended_at
        assert record.started_at < record.ended_at
        assert {"target_changed"} <= {notice.event for notice in record.notices}
        second = project.sync()
        assert list(project.run(second.session_id).unchanged) == [
            str(it.table()),
            str(it.table("u")),
        ]
        assert [run.run_id for run in project.runs()] == [second.session_id, first.session_id]
        assert list(project.runs(failed=True)) == []
        assert len(list(project.runs(pipelines="main", most=1))) == 1
        assert list(project.runs(pipelines="other")) == []
        project.watermarks.reset(f"{it.schema}.t")
        history = project.history(f"{it.schema}.t")
        (day,) = history.days
        assert (day.rows, day.chunks, day.bytes) == (20, 1, done.bytes)
        assert [run.run_id for run in history.runs] == [first.session_id, second.session_id]
        assert all(run.table.fresh for run in history.runs)
        assert [change.change.__class__.__name__ for change in history.changes] == ["Reset"]


def test_when_stages_began_and_what_they_left_is_recorded(pipeline: New) -> None:
    it = filled(pipeline, "t", "u")
    with floodmark.open_project(it.config) as project:

        def recorded(run_id: str) -> TableRun:
            done = project.run(run_id).of(str(it.table()))
            assert done is not None
            return done

        first = recorded(project.sync(verify="new", reconcile=True).session_id)
        stages = ["extract", "load", "reconcile", "verify"]
        assert list(first.began_at) == stages
        moments = [*first.began_at.values(), first.ended_at]
        assert all(one <= later for one, later in itertools.pairwise(moments) if one and later)
        assert first.fresh == first.loaded_fresh is not None
        idle = project.sync()
        assert project.run(idle.session_id).unchanged_loaded
        assert recorded(idle.session_id).loaded_fresh == recorded(idle.session_id).fresh
        add(it, "t", 21, 30)
        read = recorded(project.sync(stages="extract").session_id)
        assert (list(read.began_at), read.loaded_fresh) == (["extract"], None)
        only = recorded(project.sync(stages="load").session_id)
        assert (list(only.began_at), only.fresh, only.loaded_fresh) == (["load"], None, read.fresh)
        unread = project.sync(stages="extract")
        assert recorded(unread.session_id).loaded_fresh is None
        add(it, "t", 31, 40)
        limited = recorded(project.sync(limit=3).session_id)
        assert (limited.rows, limited.fresh) == (3, None)
        assert limited.loaded_fresh == recorded(unread.session_id).fresh
        status = {seen.table: seen for seen in project.status()}[it.table()]
        assert status.fresh == limited.loaded_fresh


def test_a_reconciliation_is_recorded(pipeline: New) -> None:
    it = filled(pipeline, "t")
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "DELETE FROM t WHERE id < 3")
    ask_once(it, "INSERT INTO t VALUES (50, '2025-06-01')")
    assert it.call("reconcile", "-p", "main", "--dry-run", "--deletes", "hard").code == 5
    (done,) = last_run(it).tables
    assert (done.status, done.found) == ("differs", {"deleted": 2, "missing": 1})
    assert it.call("reconcile", "-p", "main", "--deletes", "hard").code == 0
    record = last_run(it)
    (done,) = record.tables
    assert (done.status, done.deleted_rows, done.loaded_rows) == ("success", 2, 1)
    assert done.found == {"deleted": 2, "missing": 1}
    assert done.reconcile_seconds > 0
    assert (record.unchanged, record.loaded_rows, record.deleted_rows) == ({}, 1, 2)
    shown = it.call("runs", "show", record.run_id).out
    assert "0 read, 1 loaded, 2 deleted" in shown
    assert "2 deleted, 1 missing" in shown
    (value,) = it.call("runs", "show", record.run_id, "--json").value["tables"]
    assert {"reconcile_seconds", "deleted_rows", "found"} <= value.keys()
    assert it.call("reconcile", "-p", "main").code == 0
    (done,) = last_run(it).tables
    assert (done.found, done.deleted_rows, done.reconcile_seconds > 0) == ({}, 0, True)


def test_a_repair_after_a_comparison_is_recorded(pipeline: New) -> None:
    it = filled(pipeline, "t")
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "INSERT INTO t VALUES (50, '2025-06-01')")
    assert it.call("sync", "-p", "main", "--verify-data=all", "--repair").code == 0
    (done,) = last_run(it).tables
    assert (done.status, done.loaded_rows, done.found) == ("success", 1, {"missing": 1})


def test_rows_that_were_pending_before_a_reconciliation_are_recorded(pipeline: New) -> None:
    it = filled(pipeline, "t", "u")
    assert it.call("sync", "-p", "main").code == 0
    for name in "tu":
        add(it, name, 21, 30)
    assert it.call("sync", "-p", "main", "--backup-only").code == 0
    assert it.call("reconcile", "-t", f"{it.schema}.t").code == 0
    assert last_run(it).loaded_rows == 10
    again = ("--from", "2025-06-01", "--to", "2025-06-01 00:00:05")
    assert it.call("backfill", "-t", f"{it.schema}.u", *again).code == 0
    assert last_run(it).loaded_rows == 10 + 5


def test_rounds_with_nothing_to_report_leave_no_record(pipeline: New) -> None:
    it = filled(pipeline, "t", "u")
    every = timedelta(seconds=60)

    def count() -> int:
        return len(list(project.runs()))

    with floodmark.open_project(it.config) as project:
        project.sync(every=every)
        assert count() == 1
        for _ in range(3):
            project.sync(every=every)
        assert count() == 1
        add(it, "t", 21, 30)
        project.sync(every=every)
        assert count() == 2
        ask_once(it, "DROP TABLE u")
        for _ in range(3):  # the same failure again is not news
            project.sync(every=every)
        assert count() == 3
        create(it, "u")
        project.sync(every=every)
        assert count() == 4
        assert project.status()[0].behind_after == 3 * every
        newest = next(project.runs())
        assert (newest.every_seconds, newest.status) == (60, "success")


class Killed(DirectEngine):
    """Is killed while it reads."""

    def extract(
        self, job: ExtractionJob, windows: Sequence[Window], progress: Callable[[int], None]
    ) -> list[Receipt]:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().extract(job, windows, progress)


class Interrupted(DirectEngine):
    """Is interrupted while it reads the second table."""

    calls = 0

    def extract(
        self, job: ExtractionJob, windows: Sequence[Window], progress: Callable[[int], None]
    ) -> list[Receipt]:
        type(self).calls += 1
        if self.calls == 2:
            signal.raise_signal(signal.SIGINT)
        return super().extract(job, windows, progress)


def kill_sync(it: Pipeline, *arguments: str) -> None:
    """Runs in a process of its own."""
    it.sync(*arguments, engine=Killed)


@pytest.mark.parametrize("arguments", [(), ("--every", "1h")])
def test_a_killed_run_did_not_finish(pipeline: New, arguments: tuple[str, ...]) -> None:
    it = filled(pipeline, "t")
    killed = start_process(kill_sync, it, *arguments)
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    record = last_run(it)
    assert (record.status, record.ended_at, record.failed) == ("did not finish", None, True)
    assert states(it)["t"][0] == "behind"
    assert it.sync().code == 0
    with floodmark.open_project(it.config) as project:
        assert [run.status for run in project.runs()] == ["success", "did not finish"]


def test_an_interrupted_run_says_so_and_what_it_did(pipeline: New) -> None:
    it = filled(pipeline, "t", "u")
    assert it.call("sync", "-p", "main", engine=Interrupted).code == 130
    record = last_run(it)
    assert (record.status, record.tables[0].table_name) == ("interrupted", str(it.table()))
    assert record.ended_at
    assert not record.failed


def test_records_are_pruned_when_they_are_too_old(pipeline: New) -> None:
    it = filled(pipeline, "t", settings="keep_runs_days: 2")
    objects = it.lake.open()
    for day in ("20200101", "20250101"):
        objects.put(f"watermarks/runs/{day}/{day}_000000_aaaaaa.json", b"{}")
    it.sync()
    assert [info.key.count("runs/2025") for info in objects.list_objects("watermarks/runs/")] == [0]
    assert it.findings().differences == ()
