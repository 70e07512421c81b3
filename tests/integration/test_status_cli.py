"""What a person and a probe see: `status`, `runs`, and the lines of `sync`."""

import json
import re
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from floodmark.api.project import Project
from floodmark.cli.main import run
from floodmark.errors import StorageUnavailable
from floodmark.model.failure import Failure
from floodmark.model.timestamps import utc_now
from floodmark.state.lease import record_failure
from floodmark.sync import spark_engine as engines
from pipelines import PROGRAM, DirectEngine, Pipeline, ask, ask_once, numbers, session
from sample_lake import Sample, SampleLake
from terminals import on_terminal

pytestmark = pytest.mark.enough_on("mariadb")

New = Callable[..., Pipeline]


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "SparkEngine", DirectEngine)


def filled(pipeline: New, *tables: str, wanted: str = "{cursor: [update_at, id]}") -> Pipeline:
    it = pipeline(dict.fromkeys(tables, wanted))
    for table in tables:
        ask_once(
            it,
            f"CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY,"
            " update_at DATETIME NOT NULL)",
        )
        ask_once(
            it,
            f"INSERT INTO {table} SELECT seq, '2025-06-01' + INTERVAL seq SECOND"
            f" FROM {numbers(1, 20)}",
        )
    return it


def test_status_shows_the_worst_first_and_probes_get_an_exit_code(pipeline: New) -> None:
    it = filled(pipeline, "t", "u", "v")
    assert it.call("sync", "-t", f"{it.schema}.t").code == 0
    ask_once(it, "DROP TABLE u")
    assert it.call("sync", "-t", f"{it.schema}.u").code == 2
    ended = it.call("status")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert [line.split()[0].rpartition(".")[2] for line in lines[1:4]] == ["u", "v", "t"]
    assert [re.search(r"failing|never synced|in step", line)[0] for line in lines[1:4]] == [  # type: ignore[index]
        "failing",
        "never synced",
        "in step",
    ]
    assert lines[-1] == "3 tables: 1 failing, 1 never synced, 1 in step"
    failing, never, fine = it.call("status", "--json").value
    assert (failing["state"], failing["failures"][0]["stage"]) == ("failing", "extract")
    assert f"{it.schema}.u" in failing["error"]
    assert (never["age_seconds"], never["pipeline"]) == (None, "main")
    assert (fine["rows_today"], fine["rows_loaded"], fine["behind_after"]) == (20, 20, 86400)
    assert fine["age_seconds"] < 3600
    fresh = it.call("status", "--older-than", "1h", "-t", f"{it.schema}.t")
    assert (fresh.code, fresh.out, fresh.err) == (0, "", "")
    assert it.call("status", "--older-than", "1h", "-p", "main").code == 6
    only = it.call("status", "--state", "failing", "--json")
    assert [table["table_name"] for table in only.value] == [str(it.table("u"))]
    for wrong in (("--older-than", "1"), ("--state", "fine"), ("-p", "no"), ("--watch", "--json")):
        assert it.call("status", *wrong).code == 2


@pytest.mark.follows_hint("'floodmark runs' lists the IDs")
def test_runs_are_listed_and_shown(pipeline: New) -> None:
    it = filled(pipeline, "t", "u")
    ask_once(it, "DROP TABLE u")
    assert it.call("sync", "-p", "main").code == 3
    assert it.call("sync", "-t", f"{it.schema}.t", "--backup-only").code == 0
    listed = it.call("runs")
    assert listed.code == 0
    assert "sync -p main" in listed.out
    assert f"sync -t {it.schema}.t --stages extract" in listed.out
    unknown = it.call("runs", "show", "20200101_000000")
    assert unknown.code == 2
    assert "hint: 'floodmark runs' lists the IDs" in unknown.err
    (failed,) = it.call("runs", "--failed", "--json", "-p", "main").value
    assert failed["status"] == "partial"
    shown = it.call("runs", "show", failed["run_id"])
    assert shown.code == 0
    assert f"{it.table('u')}" in shown.out
    assert "Tables:  2 (0 unchanged, 1 failed)" in shown.out
    assert it.call("runs", "show", failed["run_id"], "--json").value == failed


def test_sync_prints_each_table_and_a_summary_and_quiet_only_problems(pipeline: New) -> None:
    it = filled(pipeline, "t", "u", "v")
    lines = it.call("sync", "-p", "main").out.splitlines()
    assert [line.split(":")[1].rpartition(".")[2] for line in lines[:3]] == ["t", "u", "v"]
    assert lines[3].startswith("3 tables, 60 rows extracted, 60 loaded, 0 failed in ")
    quiet = it.call("sync", "-p", "main", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    broken = replace(it, source={**it.source, "password": "wrong"}).write_config()
    failed = broken.call("sync", "-p", "main", "--quiet")
    assert failed.code == 2
    first, others, summary = failed.out.splitlines()
    assert f"{it.table()}: MySQL" in first
    assert f"{it.table('u')}, {it.table('v')}: MySQL" in others
    assert "3 failed" in summary
    assert failed.err.count("hint:") == 1
    it.write_config()
    with_log = it.call("sync", "-p", "main", "--log-format", "json", "--quiet")
    assert (with_log.out, with_log.err) == ("", "")


def test_what_holds_many_tables_back_is_one_line(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forgotten transaction holds back all tables; cron must not mail a line for each."""
    monkeypatch.setattr("floodmark.sync.plan.HELD_AFTER", timedelta(seconds=1))
    it = filled(pipeline, "t", "u", "v")
    verify = ("sync", "-p", "main", "--verify-data", "--quiet")
    with session(it) as forgotten:
        ask(forgotten, "BEGIN")
        ask(forgotten, "INSERT INTO t (update_at) VALUES (NOW())")
        time.sleep(2)
        for arguments in (verify[:3], verify):
            ended = it.call(*arguments)
            assert ended.code == 0
            held = [line for line in ended.err.splitlines() if "held back" in line]
            first, others = held
            assert first.startswith(f"warning: {it.table()}: held back, read only up to ")
            assert others.startswith(f"warning: {it.table('u')}, {it.table('v')}: held back: a ")
        assert ended.out == ""
        logged = it.call(*verify, "--log-format", "json").err.splitlines()
        assert [json.loads(line)["event"] for line in logged].count("held_back") == 3
        said = it.call("status").out
        assert said.splitlines()[-1] == "3 tables: 3 held back"


def test_a_source_that_shows_nothing_is_one_line_too(pipeline: New) -> None:
    it = filled(pipeline, "t", "u", "v")
    create = f"CREATE USER '{it.schema}'@'127.0.0.1' IDENTIFIED BY 'x'"
    ask_once(it, create)
    ask_once(it, f"GRANT SELECT ON {it.schema}.* TO '{it.schema}'@'127.0.0.1'")
    blind = replace(it, source={**it.source, "user": it.schema, "password": "x"}).write_config()
    ended = blind.call("sync", "-p", "main", "--quiet")
    ask_once(it, f"DROP USER '{it.schema}'@'127.0.0.1'")
    assert (ended.code, ended.out.count("\n"), ended.out.count("held back")) == (0, 1, 1)
    others = f"{it.table('u')}, {it.table('v')}: held back: no PROCESS privilege"
    assert [others in line for line in ended.err.splitlines()].count(True) == 1
    assert ended.err.count("hint: GRANT PROCESS") == 1


def test_the_same_error_of_many_tables_is_one_line_in_status(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = filled(pipeline, "t", "u", "v")
    for table in "tu":
        ask_once(it, f"DROP TABLE {table}")
    assert it.call("sync", "-p", "main").code == 3
    piped = it.call("status").out.splitlines()
    assert all(
        line.endswith("extract failed: does not exist, or the user may not read it")
        for line in piped[1:3]
    )
    monkeypatch.setattr("floodmark.cli.status.width", lambda: 80)
    ask_once(it, "DELETE FROM v WHERE id = 1")
    ended = it.call("sync", "-t", f"{it.schema}.v", "--verify-data")
    assert ended.code == 5
    shown = it.call("status").out.splitlines()
    repair = f"'floodmark sync -t {it.table('v')} --verify-data --repair' loads them again"
    assert f"hint: {repair}" in shown
    assert it.call("status", "--state", "differs", "--json").value[0]["hint"] == repair
    assert (
        f"{it.schema}.t, {it.schema}.u: extract failed: does not exist, or the user may not read it"
        in shown
    )


def test_watch_keeps_the_worst_in_sight(tmp_path: Path) -> None:
    """60 tables on a terminal of 40 lines, until Ctrl-C."""
    lake = SampleLake(tmp_path, [Sample(name=f"shop.t{n:02d}") for n in range(60)])
    worst, now = lake.table(lake.samples[37]), utc_now()
    failure = Failure(stage="extract", error="no route", since=now, at=now, session_id="x")
    record_failure(lake.objects, worst, failure, owner="me", began=now)
    command = [*PROGRAM, "status", "--watch", "--config", str(lake.config)]
    code, shown = on_terminal(command, folder=tmp_path, answers=[("59 never synced", "\x03")])
    assert code == 0
    screen = click.unstyle(shown.split("\x1b[2J")[1]).splitlines()
    assert screen[0].endswith(f"Z  {lake.lake.folder}")
    assert screen[2].split()[:2] == ["shop.t37", "failing"]
    assert len(screen) <= 40
    (cut,) = [n for n, line in enumerate(screen) if re.fullmatch(r"… \d+ more lines", line)]
    assert screen[cut + 1] == "60 tables: 1 failing, 59 never synced"


def test_watch_goes_on_when_the_lake_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = SampleLake(tmp_path, [Sample(name="shop.t")])
    pauses: list[float] = []
    clock = [0.0]
    read = Project.status

    def slow(project: Project, *chosen: Any) -> Any:
        clock[0] += 5.0  # so many requests
        if len(pauses) == 1:
            raise StorageUnavailable("S3 answers 503", hint="wait")
        return read(project, *chosen)

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Project, "status", slow)
    # Other threads sleep, too, so the module's functions stay as they are.
    ours = SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0])
    monkeypatch.setattr("floodmark.cli.status.time", ours)
    assert run(["status", "--watch", "--config", str(lake.config)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert pauses == [45.0, 2.0, 45.0]
    heads = [line for line in shown if line.endswith(str(lake.lake.folder))]
    assert len(heads) == 3  # the second is that of the reading before
    assert next(line for line in shown if "cannot be read" in line).endswith(
        "Z  the lake cannot be read: S3 answers 503; hint: wait"
    )
    assert shown.count("1 table: 1 never synced") == 3


@pytest.mark.follows_hint("' reads it")
@pytest.mark.follows_hint("' reads and loads what is new")
def test_the_hints_of_tables_that_are_not_synced_yet(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = filled(pipeline, "t", "u")

    def follow(state: str) -> None:
        (seen,) = it.call("status", "-t", f"{it.schema}.t", "--json").value
        assert seen["state"] == state
        program, *command = shlex.split(seen["hint"].split("'")[1])
        assert program == "floodmark"
        assert it.call(*command).code == 0
        (seen,) = it.call("status", "-t", f"{it.schema}.t", "--json").value
        assert (seen["state"], seen["hint"]) == ("in step", None)

    follow("never synced")
    ask_once(it, "INSERT INTO t (update_at) VALUES ('2025-06-02')")
    assert it.call("sync", "-p", "main", "--backup-only").code == 0
    monkeypatch.setattr("floodmark.cli.status.width", lambda: 80)
    shown = " ".join(it.call("status").out.split())
    assert f"{it.schema}.u, {it.schema}.t: behind hint: 'floodmark sync -t " in shown
    follow("behind")


def test_each_failure_is_in_the_log_for_programs(pipeline: New) -> None:
    it = filled(pipeline, "t", "u", "v")
    broken = replace(it, source={**it.source, "password": "wrong"}).write_config()
    ended = broken.call("sync", "-p", "main", "--log-format", "json")
    events = [json.loads(line)["event"] for line in ended.err.splitlines()]
    assert events.count("failed") == 3


def test_a_warning_about_the_schema_is_printed_once_and_kept(pipeline: New) -> None:
    it = filled(pipeline, "t", wanted="{cursor: id}")
    text = "id only grows with inserts"
    first = it.call("sync", "-p", "main")
    assert text in first.err
    assert "no index" not in first.err
    assert text not in it.call("sync", "-p", "main").err
    assert text in it.call("status").out
    assert text in it.call("doctor").out
    assert any(
        text in warning for warning in it.call("sync", "-p", "main", "--json").table["warnings"]
    )
