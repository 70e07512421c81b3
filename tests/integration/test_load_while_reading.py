"""Chunks that are loaded while later ones are read."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import current_thread
from typing import Any

import duckdb
import pytest

import floodmark
import processes
from floodmark.errors import FloodmarkError, LeaseLost
from floodmark.model.manifest import Reset
from floodmark.planning import load_batches
from floodmark.state.lease import Lease, break_lease
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync import load as load_module
from floodmark.sync import load_while_reading
from floodmark.warehouse.sql_target import SqlTarget
from pipelines import DirectEngine, Ended, MakeEngine, Pipeline, ask_once, numbers, wait_until
from processes import Doom
from scenarios import open_store
from warehouses import Warehouse, name_target, new_warehouse

New = Callable[..., Pipeline]
CURSOR = {"t": "{cursor: [update_at, id]}"}
FIVES = "extraction: {window_rows: 5, windows_per_chunk: 1}"


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_while_reading, "_PART", 2**40)


def create(pipeline: Pipeline, rows: int) -> None:
    ask_once(
        pipeline,
        "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL, update_at DATETIME NOT NULL,"
        " KEY by_change (update_at, id))",
    )
    add(pipeline, 1, rows)


def add(pipeline: Pipeline, first: int, last: int) -> None:
    ask_once(
        pipeline,
        f"INSERT INTO t SELECT seq, 0, '2025-06-01' + INTERVAL seq SECOND FROM"
        f" {numbers(first, last)}",
    )


def sync(pipeline: Pipeline, engine: MakeEngine = DirectEngine) -> Ended:
    return pipeline.call("sync", "-p", "main", "--json", engine=engine)


def synced(pipeline: Pipeline, engine: MakeEngine = DirectEngine) -> Any:
    ended = sync(pipeline, engine)
    assert ended.code == 0, ended
    return ended.table


def check_loaded(pipeline: Pipeline, rows: int) -> None:
    with duckdb.connect(str(pipeline.folder / "warehouse.duckdb")) as target:
        found = target.execute("SELECT id FROM t ORDER BY id").fetchall()
        ledger = target.execute("SELECT COUNT(*) FROM floodmark_ledger").fetchall()
    assert found == [(number,) for number in range(1, rows + 1)]
    assert ledger == [(len([c for c in pipeline.chunks() if not c.only_columns]),)]
    state = pipeline.watermark()
    assert state.loaded_head == state.head
    assert (state.redshift_state.status, state.redshift_state.total_rows) == ("success", rows)
    pipeline.check_tracking()


@pytest.mark.enough_on("mysql")
def test_later_chunks_are_read_while_earlier_ones_are_loaded(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=FIVES)
    create(it, rows=5)
    synced(it)
    add(it, 6, 50)

    class Waiting(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if job.sequence > 6:
                wait_until(lambda: it.watermark().redshift_state.loaded_sequence >= 2)
                assert it.watermark().redshift_state.status == "pending"
            return super().extract(job, windows, progress)

    result = synced(it, Waiting)
    assert (result["rows"], result["loaded_rows"], result["loaded_manifests"]) == (45, 45, 9)
    assert it.watermark().redshift_state.last_session_rows == 45
    check_loaded(it, 50)
    assert synced(it)["loaded_rows"] == 0


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("error", [FloodmarkError("no more"), RuntimeError("no more")])
def test_what_was_done_before_an_error_is_reported(pipeline: New, error: Exception) -> None:
    out = "message.json"
    keep = f"import sys; open({out!r}, 'w').write(sys.stdin.read())"
    it = pipeline(CURSOR, settings=FIVES)
    hook = json.dumps([sys.executable, "-c", keep.replace(out, str(it.folder / out))])
    it.write_config(f"{FIVES}\nhooks: {{on_success: [{{command: {hook}}}]}}\n")
    create(it, rows=5)
    synced(it)
    add(it, 6, 50)

    class Failing(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if job.sequence > 6:
                wait_until(lambda: it.watermark().redshift_state.loaded_sequence >= 2)
                raise error
            return super().extract(job, windows, progress)

    ended = sync(it, Failing)
    assert ended.code == 1
    rows, loaded = ended.table["rows"], ended.table["loaded_rows"]
    assert (rows, "no more" in ended.table["error"]) == (25, True)
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as target:
        assert target.execute("SELECT COUNT(*) FROM t").fetchall() == [(5 + loaded,)]
    assert loaded >= 5
    with floodmark.open_project(it.config) as project:
        (done,) = next(project.runs()).tables
    assert (done.status, done.rows, done.loaded_rows) == ("failed", rows, loaded)
    message = json.loads((it.folder / out).read_text())
    assert message["tables"] == [str(it.table())]
    assert message["text"].endswith(f": {loaded} rows loaded; 1 table failed")


@pytest.mark.enough_on("mariadb")
def test_batches_that_were_loaded_before_an_error_are_reported(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    it = pipeline(CURSOR, settings=FIVES)
    create(it, rows=5)
    synced(it)
    add(it, 6, 20)
    load, batches = SqlTarget.load, load_batches.batches_of

    def failing(target: Any, batch: Any) -> int:
        if batch.chunks[0].head.sequence > 3:
            raise FloodmarkError("the disk is full")
        return load(target, batch)

    monkeypatch.setattr(SqlTarget, "load", failing)
    monkeypatch.setattr(
        load_module, "batches_of", lambda *a, **k: batches(*a, **k | {"most_bytes": 1})
    )
    ended = sync(it)
    assert ended.code == 1
    assert (ended.table["rows"], ended.table["loaded_rows"]) == (15, 10)
    assert ended.table["stage"] == "load"


class UntilLoaded(DirectEngine):
    """Reads the second half once some of the first is loaded."""

    def extract(self, job: Any, windows: Any, progress: Any) -> Any:
        if job.sequence > 6:
            wait_until(self.is_loaded)
        return super().extract(job, windows, progress)

    def is_loaded(self) -> bool:
        raise NotImplementedError


@pytest.mark.enough_on("mysql")
def test_the_state_is_read_even_if_the_extraction_just_lost_a_race(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing is cached until it has read the state again."""
    it = pipeline(CURSOR, settings=FIVES)
    create(it, rows=5)
    synced(it)
    add(it, 6, 50)
    known = WatermarkStore.known

    def forgotten(store: WatermarkStore, table: Any) -> Any:
        return None if current_thread().name.startswith("load ") else known(store, table)

    class Waiting(UntilLoaded):
        def is_loaded(self) -> bool:
            return it.watermark().redshift_state.loaded_sequence >= 2

    monkeypatch.setattr(WatermarkStore, "known", forgotten)
    assert synced(it, Waiting)["loaded_rows"] == 45
    check_loaded(it, 50)


READ = "import duckdb, sys; duckdb.connect(sys.argv[1], read_only=True).execute('FROM t')"


@pytest.mark.enough_on("mariadb")
def test_others_can_read_the_file_while_nothing_is_loaded(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=FIVES)
    create(it, rows=5)
    synced(it)
    add(it, 6, 50)
    file = str(it.folder / "warehouse.duckdb")

    class Waiting(UntilLoaded):
        def is_loaded(self) -> bool:
            if it.watermark().redshift_state.loaded_sequence < 2:
                return False
            reader = subprocess.run([sys.executable, "-c", READ, file], check=False)
            return reader.returncode == 0

    assert synced(it, Waiting)["loaded_rows"] == 45
    check_loaded(it, 50)


@pytest.mark.enough_on("mariadb")
def test_the_first_load_comes_after_all_reading(pipeline: New) -> None:
    """So it can fill a new table at once."""
    it = pipeline(CURSOR, settings=FIVES)
    create(it, rows=40)

    class Watching(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if job.sequence > 1:
                assert it.watermark().redshift_state.loaded_sequence == 0
            return super().extract(job, windows, progress)

    assert synced(it, Watching)["loaded_rows"] == 40
    check_loaded(it, 40)


@pytest.mark.enough_on("mysql")
def test_small_changes_are_loaded_together(pipeline: New, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    batches: list[int] = []
    load = SqlTarget.load

    def counted(target: Any, batch: Any) -> int:
        batches.append(len(batch.chunks))
        return load(target, batch)

    monkeypatch.setattr(SqlTarget, "load", counted)
    it = pipeline(CURSOR, settings=FIVES)
    create(it, rows=5)
    synced(it)
    add(it, 6, 50)
    synced(it)
    assert batches == [1, 9]
    check_loaded(it, 50)


@pytest.mark.enough_on("mariadb")
def test_a_load_that_fails_meanwhile_is_made_up_for(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = pipeline(CURSOR, settings=FIVES)
    create(it, rows=5)
    synced(it)
    add(it, 6, 50)
    load = SqlTarget.load
    failures: list[Any] = []

    def failing(target: Any, batch: Any) -> int:
        if not failures:
            failures.append(batch)
            raise FloodmarkError("the warehouse is busy")
        return load(target, batch)

    class Waiting(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if job.sequence > 6:
                wait_until(lambda: failures)
            return super().extract(job, windows, progress)

    monkeypatch.setattr(SqlTarget, "load", failing)
    assert synced(it, Waiting)["loaded_rows"] == 45
    assert len(failures) == 1
    check_loaded(it, 50)


@pytest.mark.enough_on("mysql")
def test_what_was_loaded_stays_if_reading_fails(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=FIVES)
    create(it, rows=5)
    synced(it)
    add(it, 6, 50)

    class Failing(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if job.sequence == 7:
                wait_until(lambda: it.watermark().redshift_state.loaded_sequence >= 2)
                raise FloodmarkError("the source is gone")
            return super().extract(job, windows, progress)

    ended = sync(it, Failing)
    assert (ended.code, ended.table["error"]) == (1, "the source is gone")
    assert it.watermark().redshift_state.loaded_sequence >= 2
    synced(it)
    check_loaded(it, 50)


@pytest.mark.enough_on("mariadb")
def test_an_operator_resets_the_load_meanwhile(pipeline: New) -> None:
    """What the operator said counts: this run neither commits nor loads any more."""
    it = pipeline(CURSOR, settings=FIVES)
    create(it, rows=5)
    synced(it)
    add(it, 6, 50)

    class Resetting(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if job.sequence == 7:
                wait_until(lambda: it.watermark().redshift_state.loaded_sequence >= 2)
                open_store(it.lake.open()).commit(
                    it.table(), lambda _: Reset(stages=("load",)), races=20
                )
            return super().extract(job, windows, progress)

    assert sync(it, Resetting).code == 4
    assert it.watermark().redshift_state.load_epoch == 2
    synced(it)
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as target:
        found = target.execute("SELECT id FROM t ORDER BY id").fetchall()
    assert found == [(number,) for number in range(1, 51)]
    it.check_tracking()


def into(
    kind: str, pipeline: New, request: pytest.FixtureRequest, folder: Path
) -> tuple[Pipeline, Warehouse]:
    """A table with five rows that are loaded, and 45 more that are not."""
    it = pipeline(CURSOR, settings=FIVES)
    folder.joinpath("target").mkdir()
    warehouse = new_warehouse(kind, request, folder / "target")
    name_target(it.config, warehouse.connection)
    create(it, rows=5)
    synced(it)
    add(it, 6, 50)
    return it, warehouse


def check_all_there(it: Pipeline, warehouse: Warehouse) -> None:
    found = warehouse.query("SELECT id FROM {schema}.t ORDER BY id")
    assert [number for (number,) in found] == list(range(1, 51))
    ((entries,),) = warehouse.query("SELECT COUNT(*) FROM {schema}.floodmark_ledger")
    assert entries == len([chunk for chunk in it.chunks() if not chunk.only_columns])
    state = it.watermark()
    assert (state.loaded_head, state.redshift_state.total_rows) == (state.head, 50)
    it.check_tracking()


@pytest.mark.enough_on("mysql")
def test_into_postgresql(pipeline: New, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    it, warehouse = into("postgres", pipeline, request, tmp_path)

    class Waiting(UntilLoaded):
        def is_loaded(self) -> bool:
            ((rows,),) = warehouse.query("SELECT COUNT(*) FROM {schema}.t")
            return rows > 5 and it.watermark().redshift_state.loaded_sequence >= 2

    result = synced(it, Waiting)
    assert (result["rows"], result["loaded_rows"], result["loaded_manifests"]) == (45, 45, 9)
    check_all_there(it, warehouse)


def sync_elsewhere(pipeline: Pipeline) -> None:
    """Runs in a process of its own; a DuckDB file may still be open for a moment."""
    wait_until(lambda: sync(pipeline).code == 0)


@pytest.mark.enough_on("mariadb")
@pytest.mark.parametrize("kind", ["duckdb", "postgres"])
def test_another_run_takes_the_lease_meanwhile_and_loads_the_rest(
    kind: str, pipeline: New, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    it, warehouse = into(kind, pipeline, request, tmp_path)
    codes: list[int | None] = []

    class Robbed(UntilLoaded):
        def is_loaded(self) -> bool:
            state = it.watermark()
            return state.loaded_head == state.head and state.head.sequence == 6

        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            found = super().extract(job, windows, progress)
            if job.sequence == 7:
                break_lease(open_store(it.lake.open()).objects, it.table())
                other = processes.start(sync_elsewhere, it)
                other.join(60)
                codes.append(other.exitcode)
            return found

    ended = sync(it, Robbed)
    assert ended.code == 4, ended
    assert codes == [0]
    check_all_there(it, warehouse)
    assert synced(it)["loaded_rows"] == 0


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("kind", ["duckdb", "postgres"])
def test_nothing_is_loaded_once_the_lease_is_lost(
    kind: str,
    pipeline: New,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it, warehouse = into(kind, pipeline, request, tmp_path)
    lost: list[int] = []
    check = Lease.check

    def checked(lease: Lease) -> None:
        if lost:
            raise LeaseLost("the lease expired")
        check(lease)

    class Expiring(UntilLoaded):
        def is_loaded(self) -> bool:
            state = it.watermark()
            return state.loaded_head == state.head and state.head.sequence == 6

        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            found = super().extract(job, windows, progress)
            if job.sequence == 7:
                lost.append(it.watermark().loaded_head.sequence)
            return found

    with monkeypatch.context() as patched:
        patched.setattr(Lease, "check", checked)
        assert sync(it, Expiring).code == 4
    assert lost == [6]
    assert warehouse.query("SELECT COUNT(*) FROM {schema}.t") == [(30,)]
    assert it.watermark().loaded_head == it.watermark().head
    assert synced(it)["loaded_rows"] == 20
    check_all_there(it, warehouse)


STEPS = ("_begin", "_stage", "_commit")


def doomed_sync(pipeline: Pipeline, step: int, moment: str) -> None:
    """Runs in a process of its own, which dies at a step; it ends with 7 if there are fewer."""
    load_while_reading._PART = 2**40
    doom = Doom(step, moment)
    for name in STEPS:
        setattr(SqlTarget, name, doom.around(getattr(SqlTarget, name)))
    for name in ("commit", "update"):
        setattr(WatermarkStore, name, doom.around(getattr(WatermarkStore, name)))

    class Slow(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if job.sequence % 9 > 5:  # so that some of it is loaded before
                wait_until(lambda: pipeline.watermark().redshift_state.loaded_sequence >= 2)
            return super().extract(job, windows, progress)

    assert sync(pipeline, Slow).code == 0
    os._exit(7)


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_step_of_either_side(pipeline: New, moment: str) -> None:
    it = pipeline(CURSOR, settings=FIVES)
    create(it, rows=5)
    synced(it)
    rows = 5
    for step in range(1, 200, 3):
        add(it, rows + 1, rows + 35)
        rows += 35
        process = processes.start(doomed_sync, it, step, moment)
        process.join(60)
        assert process.exitcode in (7, -signal.SIGKILL)
        synced(it)
        check_loaded(it, rows)
        if process.exitcode == 7:
            assert step > 12  # how many there are depends on what is loaded together
            return
    raise AssertionError("the sync never ended")
