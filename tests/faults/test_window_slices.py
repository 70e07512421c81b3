"""Windows of several slices: files have a good size, and a kill between slices loses nothing."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import floodmark
from floodmark.model.manifest import DataFile
from floodmark.sync import spark_engine as engines
from floodmark.worker import extract_window
from floodmark.worker.slice_marks import mark_done
from pipelines import (
    PROGRAM,
    DirectEngine,
    Pipeline,
    ask_once,
    cold_environment,
    finish,
    numbers,
    wait_until,
    warm_engine,
)

New = Callable[..., Pipeline]

MEGABYTE = 1024 * 1024
SLICE = 100
SMALL = f"extraction: {{window_rows: {SLICE}, file_mb: 1}}"
WALK = f"extraction: {{window_rows: {SLICE}, file_mb: 1, walk_from_rows: 1}}"
CURSOR = {"t": "{cursor: [update_at, id]}"}
SECOND_CHUNK = "1-2"
IN_SECOND = 3  # slices of each window of the second chunk


def create(pipeline: Pipeline, rows: int, width: int = 1000) -> None:
    """Rows that no codec makes smaller, in an order that is not that of their keys."""
    ask_once(
        pipeline,
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL, noise VARBINARY(1000)"
        " NOT NULL, KEY by_change (update_at, id))",
    )
    for first in range(1, rows + 1, 5000):
        ask_once(
            pipeline,
            "INSERT INTO t SELECT seq, '2025-06-01' + INTERVAL (seq * 7919 % 997) SECOND,"
            f" RANDOM_BYTES({width}) FROM {numbers(first, min(rows, first + 4999))}",
        )
    ask_once(pipeline, "ANALYZE TABLE t")


def check_complete(pipeline: Pipeline, rows: int) -> None:
    assert pipeline.ids() == dict.fromkeys(range(1, rows + 1), 1)
    pipeline.check_tracking()


def files_of(pipeline: Pipeline) -> list[DataFile]:
    return [file for chunk in pipeline.chunks() for file in chunk.files]


@pytest.mark.parametrize("settings", [SMALL, WALK], ids=["cursor", "key"])
def test_files_have_the_size_that_is_set(pipeline: New, spark: Any, settings: str) -> None:
    it = pipeline(CURSOR, settings=settings)
    create(it, 30_000)
    it.synced("--limit", "10000", engine=warm_engine(spark))  # from then on it is known how large
    known = len(it.chunks())
    it.synced(engine=warm_engine(spark))
    check_complete(it, 30_000)
    sizes = [file.bytes for chunk in it.chunks()[known:] for file in chunk.files]
    assert max(sizes) < 1.1 * MEGABYTE
    assert sum(size for size in sizes if size > 0.7 * MEGABYTE) > 0.4 * sum(sizes)
    assert len(sizes) < 60  # of 200 slices
    if settings == SMALL:
        for before, after in pairwise(files_of(it)):
            assert before.first.compare(before.last) in (-1, 0)
            assert before.last.compare(after.first) == -1


@pytest.mark.enough_on("mariadb")
@pytest.mark.parametrize("strategy", ["sequential", "inter-table"])
def test_other_strategies_write_larger_files_too(pipeline: New, strategy: str) -> None:
    it = pipeline(CURSOR, settings=SMALL)
    create(it, 20_000)
    it.synced("--strategy", strategy, engine=DirectEngine)
    check_complete(it, 20_000)
    assert len(it.chunks()) < 60


@pytest.mark.enough_on("mysql")
def test_a_limit_is_kept(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=SMALL)
    create(it, 6000)
    for rows in (3001, 1999, 1000):
        assert it.synced("--limit", str(rows), engine=DirectEngine)["rows"] == rows
    check_complete(it, 6000)


@pytest.mark.enough_on("mysql")
def test_quarantined_rows_of_all_slices_are_kept(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=SMALL.replace("}", ", zero_dates: quarantine}"))
    create(it, 6000, width=10)
    ask_once(it, "ALTER TABLE t ADD COLUMN day DATE", sql_mode="")
    ask_once(it, "UPDATE t SET day = '0000-00-00' WHERE id % 50 = 0", sql_mode="")
    result = it.synced(engine=DirectEngine)
    assert (result["rows"], result["quarantined_rows"]) == (5880, 120)
    assert len(files_of(it)) < 45
    assert it.ids() == {number: 1 for number in range(1, 6001) if number % 50}


@pytest.mark.enough_on("mariadb")
def test_a_slice_that_is_not_read_is_noticed(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=SMALL)
    create(it, 6000, width=10)

    class Forgets(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            return super().extract(job, [without_last(window) for window in windows], progress)

    ended = it.sync("--json", engine=Forgets)
    assert ended.code == 1
    assert "slices, of which" in ended.table["error"]
    it.synced(engine=DirectEngine)
    check_complete(it, 6000)


def without_last(window: Any) -> Any:
    return structs.replace(window, slices=window.slices[:-1])


@pytest.mark.enough_on("mysql")
def test_rows_are_shown_as_slices_are_read(pipeline: New, monkeypatch: pytest.MonkeyPatch) -> None:
    it = pipeline(CURSOR, settings=SMALL)
    create(it, 3000, width=10)
    shown: list[tuple[int, int]] = []
    tell: list[Callable[[int], None]] = []

    def marked(path: str | None) -> None:
        mark_done(path)
        tell[-1](0)  # no window is done yet

    class Telling(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            with self.reading:
                tell.append(progress)
                return [self._read(job, window) for window in windows]

    monkeypatch.setattr(extract_window, "mark_done", marked)
    monkeypatch.setattr(engines, "SparkEngine", Telling)

    def note(_: object, progress: floodmark.Progress) -> None:
        shown.append((progress.rows, progress.read_rows))

    with floodmark.open_project(it.config, on_progress=note) as project:
        project.sync(stages=["extract"]).raise_for_failures()
    second = [read for committed, read in shown if committed == 8 * SLICE]
    assert {9 * SLICE, 10 * SLICE, 11 * SLICE} <= set(second)


@pytest.fixture
def throttled(pipeline: New) -> Pipeline:
    """A task that waits after each slice."""
    it = pipeline(CURSOR, settings=SMALL)
    create(it, 3000, width=10)
    return replace(it, source={**it.source, "max_rows_per_second": 400}).write_config(
        f"{SMALL}\nspark: {{master: 'local[2,4]'}}"
    )


def start(pipeline: Pipeline, temporary: Path) -> "subprocess.Popen[str]":
    temporary.mkdir()
    return subprocess.Popen(
        [*PROGRAM, "sync", "-p", "main", "--backup-only", "--json", "--config", pipeline.config],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=pipeline.folder,
        start_new_session=True,
        env={**cold_environment(), "TMPDIR": str(temporary)},
    )


def wait_between_slices(pipeline: Pipeline, temporary: Path) -> None:
    """Wait until a task of the second chunk has read some slices of its window, but not all.

    By then the first chunk is committed.
    """

    def between() -> bool:
        marks = [path.stat().st_size for path in temporary.glob(f"floodmark-*/{SECOND_CHUNK}")]
        reading = any(size % IN_SECOND and size < 2 * IN_SECOND for size in marks)
        return reading and len(pipeline.chunks()) == 1

    wait_until(between, seconds=90)


def test_a_run_that_is_killed_between_two_slices(throttled: Pipeline, tmp_path: Path) -> None:
    process = start(throttled, tmp_path / "temporary")
    wait_between_slices(throttled, tmp_path / "temporary")
    process.kill()
    finish(process)
    assert len(throttled.chunks()) == 1
    throttled.check_tracking()
    ended = throttled.write_config(SMALL).command("sync", "-p", "main", "--backup-only", "--json")
    assert ended.code == 0, ended
    check_complete(throttled, 3000)


def test_a_worker_that_is_killed_between_two_slices(throttled: Pipeline, tmp_path: Path) -> None:
    process = start(throttled, tmp_path / "temporary")
    wait_between_slices(throttled, tmp_path / "temporary")
    killed = list(workers_of(process.pid))
    assert killed
    for worker in killed:
        os.kill(worker, signal.SIGKILL)
    ended = finish(process)
    assert ended.code == 0, ended
    check_complete(throttled, 3000)
    chunk = throttled.chunks()[1]
    assert all(file.rows in (IN_SECOND * SLICE, 2 * SLICE) for file in chunk.files)


def workers_of(driver: int) -> Iterator[int]:
    """Yield the Python workers of a run."""
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        if "worker_daemon" in command(pid) and "worker_daemon" in command(parent(pid)):
            ancestor = pid
            while ancestor not in (0, 1, driver):
                ancestor = parent(ancestor)
            if ancestor == driver:
                yield pid


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
