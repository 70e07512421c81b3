"""A sync is killed at every step of a chunk; the next run gives the same result as one run."""

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import processes
from floodmark.api import runner
from floodmark.config.models import LakeSettings, RetrySettings
from floodmark.model.timestamps import utc_now
from floodmark.state.run_records import RunRecords
from floodmark.storage.objects import ObjectStore
from floodmark.storage.opening import open_lake
from floodmark.worker import lake_writer, s3_writer
from pipelines import DirectEngine, Pipeline, ask_once, finish, numbers, wait_until
from processes import Doom, DoomedWrites
from scenarios import Lake

New = Callable[..., Pipeline]

SMALL = "extraction: {window_rows: 3, windows_per_chunk: 2}"
AT_ONCE = 6
FILE_STEPS = ("makedirs", "fsync", "replace", "close")


def create(pipeline: Pipeline, rows: int) -> None:
    ask_once(
        pipeline,
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL,"
        " update_at DATETIME NOT NULL, KEY by_change (update_at, id))",
    )
    add(pipeline, 1, rows)


def add(pipeline: Pipeline, first: int, last: int) -> None:
    """Rows of which three and three have one stamp."""
    ask_once(
        pipeline,
        "INSERT INTO t SELECT seq, 0, '2025-06-01' + INTERVAL seq DIV 3 SECOND"
        f" FROM {numbers(first, last)}",
    )


class CountedDoom(Doom):
    """Writes down how many steps there were."""

    def __init__(self, step: int, moment: str, tally: Path) -> None:
        super().__init__(step, moment)
        self._tally = tally

    def write(self) -> None:
        self._tally.write_text(str(self._count))


def doom_files(doom: Doom) -> None:
    """Make what a task does to its data files steps, in a folder and in S3."""

    class Steps:
        def __getattr__(self, name: str) -> Any:
            found = getattr(os, name)
            return doom.around(found) if name in FILE_STEPS else found

    lake_writer.os = Steps()  # type: ignore[assignment,attr-defined]
    for name in ("start", "append", "finish"):
        original = getattr(s3_writer.S3Uploads, name)
        setattr(s3_writer.S3Uploads, name, doom.around(original))


def doomed_sync(pipeline: Pipeline, step: int, moment: str, tally: Path) -> None:
    """Runs in a process of its own."""
    doom = CountedDoom(step, moment, tally)

    def doomed_lake(lake: LakeSettings, retries: RetrySettings) -> ObjectStore:
        return DoomedWrites(open_lake(lake, retries), doom)

    class DoomedEngine(DirectEngine):
        extract = doom.around(DirectEngine.extract)

    doom_files(doom)
    with patch.object(runner, "open_lake", doomed_lake):
        ended = pipeline.sync(engine=DoomedEngine)
    assert ended.code == 0, ended
    doom.write()


def run_doomed(pipelines: list[Pipeline], steps: list[int], moment: str) -> list[int | None]:
    """The exit codes of syncs, beside each other, that are killed at a step each; 0 is none."""
    running = [
        processes.start(doomed_sync, pipeline, step, moment, pipeline.folder / "tally")
        for pipeline, step in zip(pipelines, steps, strict=True)
    ]
    for process in running:
        process.join(60)
    return [process.exitcode for process in running]


def copies_of(pipeline: Pipeline, number: int) -> Pipeline:
    """The same tables and the same state, in a lake of its own."""
    folder = pipeline.folder.with_name(f"{pipeline.folder.name}-{number}")
    lake = pipeline.lake
    if lake.folder is not None:
        if Path(lake.folder).exists():
            shutil.copytree(lake.folder, folder / "lake")
        lake = Lake(folder=str(folder / "lake"))
    else:
        objects, lake = lake.open(), replace(lake, prefix=f"{lake.prefix}-{number}")
        for info in objects.list_objects(""):
            lake.open().put(info.key, objects.get(info.key).data)
    return replace(pipeline, folder=folder, lake=lake).write_config()


def kill_everywhere(pipeline: Pipeline, moment: str, rows: int) -> list[Pipeline]:
    """Kill a sync at each step and run it again to its end; returns the lakes that are left."""
    whole = copies_of(pipeline, 0)
    assert run_doomed([whole], [0], moment) == [0]
    steps = range(1, int((whole.folder / "tally").read_text()) + 1)
    assert len(steps) > 20
    left = [copies_of(pipeline, step) for step in steps]
    for first in range(0, len(left), AT_ONCE):
        some, at = left[first : first + AT_ONCE], list(steps[first : first + AT_ONCE])
        assert run_doomed(some, at, moment) == [-signal.SIGKILL] * len(some), f"{moment} {at}"
        committed = [one.manifests() for one in some]
        assert {status for one in some for status in runs_of(one)} <= {"did not finish", "success"}
        assert run_doomed(some, [0] * len(some), moment) == [0] * len(some), f"resumed from {at}"
        for one, before in zip(some, committed, strict=True):
            assert one.ids() == dict.fromkeys(range(1, rows + 1), 1)
            one.check_tracking()
            assert one.manifests()[: len(before)] == before
            assert runs_of(one)[0] == "success"
    return left


def runs_of(pipeline: Pipeline) -> list[str]:
    """How runs ended, the newest first."""
    return [run.status for run in RunRecords(pipeline.lake.open(), utc_now).newest()]


@pytest.mark.enough_on("mariadb")  # the steps are writes to the lake
def test_the_first_sync_killed_at_every_step(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=SMALL)
    create(it, rows=7)
    kill_everywhere(it, "before", rows=7)


@pytest.mark.enough_on("mysql")
def test_a_later_sync_killed_at_every_step(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=SMALL)
    create(it, rows=5)
    it.synced()
    add(it, 6, 13)
    kill_everywhere(it, "after", rows=13)


@pytest.mark.enough_on("mariadb")
def test_killed_at_every_step_on_s3(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=SMALL, lake="seaweedfs")
    create(it, rows=7)
    kill_everywhere(it, "before", rows=7)


@pytest.mark.enough_on("mysql")
def test_a_walk_along_the_primary_key_killed_at_every_step(pipeline: New) -> None:
    settings = "extraction: {window_rows: 3, windows_per_chunk: 1, walk_from_rows: 1}"
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=settings)
    create(it, rows=7)
    ask_once(it, "ANALYZE TABLE t")
    for left in kill_everywhere(it, "before", rows=7):
        assert any(chunk.end.walk for chunk in left.chunks())


@pytest.mark.usefixtures("settings_of_the_file")
@pytest.mark.parametrize("spark", ["{}", "{from_rows: 1000000}"])
def test_the_whole_program_killed_while_it_works(pipeline: New, spark: str) -> None:
    """With Spark and its workers, or without: nothing is left to clean up behind them."""
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"},
        settings=f"spark: {spark}\nextraction: {{window_rows: 3000, windows_per_chunk: 2}}",
    )
    create(it, rows=30_000)
    for chunks in (1, 3):
        process = it.start("sync", "-p", "main", "--backup-only")
        wait_until(lambda: len(it.files()) > 2 * chunks, seconds=60)  # noqa: B023
        process.kill()
        finish(process)
        it.check_tracking()
    ended = it.command("sync", "-p", "main", "--backup-only", "--json")
    assert ended.code == 0, ended
    assert it.ids() == dict.fromkeys(range(1, 30_001), 1)
    it.check_tracking()
