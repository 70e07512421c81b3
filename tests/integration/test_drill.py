"""Drills recover copies of the state from every damage, and never touch the state itself."""

import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

import processes
from floodmark.api import drill as api_drill
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.timestamps import utc_now
from floodmark.state import drill_scratch, operator_changes
from floodmark.state.drill_damage import DAMAGES
from floodmark.state.drill_scratch import OLD, remove_old_scratch, scratch_space
from floodmark.state.last_drill import LastDrill, read_last_drill
from floodmark.state.mirror_copy import copy_table
from floodmark.state.watermark_reader import WatermarkReader
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore
from floodmark.sync import drill as drills
from floodmark.sync.drill import TableDrill, drill_table
from hints import commands_in
from pipelines import Pipeline, ask_once
from processes import Doom, DoomedWrites
from scenarios import TABLE, Lake, land, new_lake, open_store, use_test_keys
from warehouses import name_target, new_postgres, new_redshift

pytestmark = pytest.mark.enough_on("mariadb")  # it is about the state


def fill(objects: ObjectStore) -> None:
    """Commit some chunks in two sessions, so that there are copies of both kinds."""
    for session in ("20250801_000000_old", "20250802_000000_new"):
        store = open_store(objects, session=session)
        for number in range(2):
            land(store, rows=5, name=f"{session}{number}")


def everything(objects: ObjectStore) -> dict[str, tuple[bytes, str]]:
    """Every object that is not a drill's, with its ETag."""
    keys = [info.key for info in objects.list_objects("")]
    ours = (lake_layout.DRILLS, lake_layout.LAST_DRILL)
    found = {key: objects.get(key) for key in keys if not key.startswith(ours)}
    return {key: (stored.data, stored.etag) for key, stored in found.items()}


def rehearse(lake: ObjectStore, mirror: ObjectStore | None = None) -> TableDrill:
    run = open_store(lake).run
    with scratch_space(lake, run.session_id, run.clock) as scratch:
        return drill_table(lake, scratch, mirror, TABLE, run)


def scratch_of(lake: ObjectStore) -> list[str]:
    return [info.key for info in lake.list_objects(lake_layout.DRILLS)]


@pytest.mark.parametrize("kind", ["local", "seaweedfs"])
def test_every_damage_is_recovered_and_nothing_is_touched(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_test_keys(monkeypatch)
    lake, mirror = new_lake(kind, request, tmp_path).open(), MemoryObjectStore()
    fill(lake)
    copy_table(lake, mirror, TABLE)
    before, there = everything(lake), everything(mirror)
    found = rehearse(lake, mirror)
    assert found.failures == ()
    assert [r.name for r in found.rehearsals] == [damage.name for damage in DAMAGES]
    assert all(r.recovered for r in found.rehearsals)
    assert everything(lake) == before
    assert everything(mirror) == there
    assert scratch_of(lake) == []


def test_without_a_mirror_some_damage_is_not_tried() -> None:
    lake = MemoryObjectStore()
    fill(lake)
    found = rehearse(lake)
    skipped = {r.name for r in found.rehearsals if r.recovered is None}
    assert skipped == {damage.name for damage in DAMAGES if damage.mirror}
    assert found.failures == ()


def test_a_mirror_that_is_behind_is_found() -> None:
    lake, mirror = MemoryObjectStore(), MemoryObjectStore()
    fill(lake)
    copy_table(lake, mirror, TABLE)
    mirror.delete(lake_layout.manifest(TABLE, ManifestId(1, 4)))
    failed = {r.name: r.detail for r in rehearse(lake, mirror).rehearsals if not r.recovered}
    assert failed.keys() == {"newest manifest lost", "all manifests lost", "whole state lost"}
    assert failed["newest manifest lost"] == "the mirror does not have manifest 1-4"


@pytest.mark.parametrize("damage", [d for d in DAMAGES if not d.mirror], ids=lambda d: d.name)
def test_a_drill_notices_what_is_not_recovered(
    damage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each comparison can fail: recovery is replaced by something that finds another state."""
    lake, other = MemoryObjectStore(), MemoryObjectStore()
    fill(lake)
    land(open_store(other), rows=1, name="another")
    wrong = open_store(other).get(TABLE)
    monkeypatch.setattr(drills, "DAMAGES", (damage,))
    monkeypatch.setattr(drills._Rehearsing, "_recover", lambda *_: wrong)
    (failure,) = rehearse(lake).failures
    assert damage.name in failure


def test_a_reader_without_its_checks_fails_the_drill(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drill tests the code that recovers real state."""
    lake = MemoryObjectStore()
    fill(lake)
    monkeypatch.setattr(WatermarkReader, "_newer_copy", lambda *_: None)
    monkeypatch.setattr(WatermarkReader, "_manifests_after", lambda *_: [])
    failed = [r.name for r in rehearse(lake).rehearsals if r.recovered is False]
    assert failed == [
        "watermark older than its copies",
        "watermark lost, copies older than a reset",
    ]


def test_copies_from_before_a_reset_bring_nothing_back() -> None:
    lake = MemoryObjectStore()
    fill(lake)
    operator_changes.reset(open_store(lake), TABLE, ["extract", "load"])
    assert rehearse(lake).failures == ()


def killed_drill(lake: Lake, step: int) -> None:
    """Drill until the n-th write, and die there."""
    objects = lake.open()
    doomed = DoomedWrites(objects, Doom(step, "after"))
    run = open_store(objects).run
    with scratch_space(doomed, run.session_id, run.clock) as scratch:
        drill_table(objects, scratch, None, TABLE, run)


@pytest.mark.parametrize("step", [1, 2, 5, 11, 30])
def test_a_killed_drill_touches_nothing_and_is_cleaned_up(tmp_path: Path, step: int) -> None:
    lake = Lake(folder=str(tmp_path / "lake"))
    objects = lake.open()
    fill(objects)
    before = everything(objects)
    process = processes.start(killed_drill, lake, step)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert everything(objects) == before
    assert scratch_of(objects)
    assert rehearse(objects).failures == ()
    assert everything(objects) == before
    assert scratch_of(objects) == []


def test_scratch_of_a_drill_that_is_running_is_kept() -> None:
    lake = MemoryObjectStore()
    with scratch_space(lake, "20250801_000000_a", utc_now) as scratch:
        scratch.put("state", b"1")
        remove_old_scratch(lake, utc_now())
        assert scratch.get("state").data == b"1"


def test_the_marker_of_a_long_drill_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drill elsewhere goes by the marker's age: it cannot see this process."""
    monkeypatch.setattr(drill_scratch, "RENEWAL", timedelta(seconds=0.01))
    monkeypatch.setattr(drill_scratch, "is_dead", lambda _: False)
    lake, began = MemoryObjectStore(), utc_now()
    hours = iter(range(10_000))
    with scratch_space(lake, "20250801_000000_a", lambda: began + next(hours) * OLD) as scratch:
        scratch.put("state", b"1")
        while next(hours) < 5:
            time.sleep(0.02)
        remove_old_scratch(lake, began + 4 * OLD)
        assert scratch.get("state").data == b"1"
    assert scratch_of(lake) == []


def test_the_results_of_other_tables_are_kept(
    pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    names = ("a", "b")
    made = pipeline(dict.fromkeys(names, "{cursor: id}"), settings=f"mirror: {tmp_path / 'mirror'}")
    for name in names:
        ask_once(made, f"CREATE TABLE {name} (id BIGINT PRIMARY KEY)")
    assert made.call("drill").code == 0
    assert read_last_drill(made.lake.open()) is None  # nothing is synced: nothing was rehearsed
    for name in names:
        ask_once(made, f"INSERT INTO {name} VALUES (1)")
    assert made.call("sync", "-p", "main").code == 0
    manifest = lake_layout.manifest(made.table("a"), ManifestId(1, 1))
    mirror = Lake(folder=str(tmp_path / "mirror")).open()
    kept = mirror.get(manifest).data
    mirror.delete(manifest)
    assert made.call("drill", "-t", f"{made.schema}.a").code == 5
    assert made.call("drill", "-t", f"{made.schema}.b").code == 0
    last = read_last_drill(made.lake.open())
    assert last is not None
    assert (last.failed, len(last.results)) == (5, 2)
    assert (
        f"drill: 5 of {2 * len(DAMAGES)} rehearsals failed in 2 of 2 tables"
        in made.call("status").out
    )
    mirror.put(manifest, kept)
    assert made.call("drill", "-t", f"{made.schema}.a").code == 0
    assert (
        f"drill: {2 * len(DAMAGES)} rehearsals recovered in 2 of 2 tables"
        in made.call("status").out
    )


def test_progress_is_reported(
    pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_drill, "_REPORT_SECONDS", 0.0)
    made = pipeline({"t": "{cursor: id}", "u": "{cursor: id}"})
    assert "drill: 2 of 2 tables done" in made.call("drill").err


def test_a_sample_with_deleted_rows_is_loaded(pipeline: Callable[..., Pipeline]) -> None:
    made = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(made, "CREATE TABLE t (id BIGINT PRIMARY KEY, update_at DATETIME(6), KEY (update_at))")
    ask_once(made, "INSERT INTO t VALUES (1, '2025-02-01'), (2, '2025-02-02'), (3, '2025-02-03')")
    assert made.call("sync", "-p", "main").code == 0
    ask_once(made, "DELETE FROM t WHERE id = 1")
    with duckdb.connect(str(made.folder / "warehouse.duckdb")) as warehouse:
        warehouse.execute("DELETE FROM t WHERE id = 2")
    assert made.call("reconcile", "-p", "main", "--deletes", "soft").code == 0
    ended = made.call("drill", "--target")
    assert ended.code == 0, ended
    assert "recovered: 1 row" in ended.out


@pytest.mark.follows_hint("'floodmark watermark validate --lake-only' checks it")
def test_the_command_and_its_last_result(pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
    made = pipeline({"t": "{cursor: id}"}, settings=f"mirror: {tmp_path / 'mirror'}")
    ask_once(made, "CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
    ended = made.call("drill", "-p", "main")
    assert (ended.code, "never synced" in ended.out) == (0, True)
    ask_once(made, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    assert made.call("sync", "-p", "main").code == 0
    before = everything(made.lake.open())
    ended = made.call("drill", "--target")
    assert ended.code == 0, ended
    assert "recovered: 3 rows" in ended.out
    assert everything(made.lake.open()) == before
    last = read_last_drill(made.lake.open())
    assert last is not None
    assert (last.rehearsals, last.skipped, last.failed) == (len(DAMAGES) + 1, 0, 0)
    with duckdb.connect(str(made.folder / "warehouse.duckdb")) as warehouse:
        ledger = warehouse.execute("SELECT COUNT(*) FROM floodmark_ledger").fetchall()
    assert ledger == [(1,)]
    mirror = Lake(folder=str(tmp_path / "mirror")).open()
    mirror.delete(lake_layout.manifest(made.table(), ManifestId(1, 1)))
    ended = made.call("drill", "--json")
    assert ended.code == 5, ended
    (command,) = commands_in(ended.err)
    assert made.call(*command).code == 0
    (table,) = ended.value["tables"]
    assert {r["recovered"] for r in table["rehearsals"]} == {True, False}
    failed = read_last_drill(made.lake.open())
    assert isinstance(failed, LastDrill)
    assert failed.failed == 5


def test_many_tables_have_a_line_for_each_damage(
    pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    names = ("t", "u", "v")
    made = pipeline(dict.fromkeys(names, "{cursor: id}"), settings=f"mirror: {tmp_path / 'mirror'}")
    for name in names:
        ask_once(made, f"CREATE TABLE {name} (id BIGINT PRIMARY KEY)")
        ask_once(made, f"INSERT INTO {name} VALUES (1)")
    assert made.call("sync", "-p", "main").code == 0
    heads, *rows, summary = made.call("drill").out.splitlines()
    assert heads.split() == ["DAMAGE", "TABLES", "SLOWEST", "RESULT"]
    assert len(rows) == len(DAMAGES)
    assert all("  3 tables " in row and row.endswith("  recovered") for row in rows)
    assert summary.startswith("3 tables in ")
    mirror = Lake(folder=str(tmp_path / "mirror")).open()
    mirror.delete(lake_layout.manifest(made.table("u"), ManifestId(1, 1)))
    failed = [row for row in made.call("drill").out.splitlines() if "not recovered" in row]
    assert len(failed) == 5
    assert all(f"  {made.table('u')} " in row for row in failed)


@pytest.mark.parametrize("kind", ["postgres", "redshift"])
def test_a_sample_is_loaded_into_a_schema_that_is_dropped(
    pipeline: Callable[..., Pipeline], kind: str, request: pytest.FixtureRequest
) -> None:
    made = pipeline({"t": "{cursor: id}"}, lake="local" if kind == "postgres" else "ministack")
    server = request.getfixturevalue(kind)
    new = new_postgres if kind == "postgres" else new_redshift
    warehouse = new(server, made.lake)
    name_target(made.config, warehouse.connection)
    ask_once(made, "CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
    ask_once(made, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    ended = made.call("sync", "-p", "main")
    assert ended.code == 0, ended
    warehouse.query("CREATE SCHEMA floodmark_drill_20250101000000000000")
    ledger = "SELECT COUNT(*) FROM {schema}.floodmark_ledger"
    held = warehouse.query(ledger)
    ended = made.call("drill", "--target")
    assert ended.code == 0, ended
    assert "recovered: 3 rows" in ended.out
    found = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'floodmark_drill%'"
    assert warehouse.query(found) == []
    assert warehouse.query(ledger) == held
