"""Whatever happens to a watermark and its copies, the right state is found again, or none."""

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec import structs

from floodmark.cli.main import run
from floodmark.errors import CorruptLog, FloodmarkError, IllegalTransition, StateLost
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import _digest, seal
from floodmark.model.load_transitions import loaded
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Reset
from floodmark.model.notice import Notice
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.timestamps import utc_now
from floodmark.model.transitions import Authorship, extract_failed, record
from floodmark.model.watermark import Watermark, empty_watermark, same_content
from floodmark.state import operator_changes
from floodmark.state.lake_validation import validate
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore
from pipelines import Pipeline, ask_once
from scenarios import (
    TABLE,
    Lake,
    chunk_after,
    land,
    new_lake,
    open_store,
    snapshot,
    use_test_keys,
    write_config,
)

pytestmark = pytest.mark.enough_on("mariadb")  # it is about the watermark

PRIMARY = lake_layout.primary(TABLE)
OLD, NEW = "20250801_000000_old", "20250802_000000_new"


def load_through(store: WatermarkStore, sequence: int, rows: int) -> Watermark:
    return store.update(
        TABLE,
        lambda now: loaded(
            now,
            through=ManifestId(now.epoch, sequence),
            total_rows=rows,
            session_rows=rows,
            now=utc_now(),
        ),
    )


def build(objects: ObjectStore) -> tuple[list[bytes], Watermark]:
    """Two sessions' work; returns what the primary held after each save, and the last state."""
    documents = []
    old = open_store(objects, session=OLD)
    land(old, rows=10, name="first")
    documents.append(objects.get(PRIMARY).data)
    new = open_store(objects, session=NEW)
    land(new, rows=20, name="second")
    documents.append(objects.get(PRIMARY).data)
    last = load_through(new, 1, rows=10)
    documents.append(objects.get(PRIMARY).data)
    return documents, last


def edited(data: bytes, *path: str, value: object) -> bytes:
    """Change one value of a document, and make its checksum right again."""
    document = json.loads(data)
    place: dict[str, Any] = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    document["checksum"] = _digest(document)
    return json.dumps(document).encode()


def of_another_table(_: list[bytes]) -> bytes:
    other = TableName("US_PROD", "shop", "payments")
    return seal(empty_watermark(other, NEW, utc_now()))


FUTURE = (utc_now() + timedelta(days=2)).isoformat()

Damage = Callable[[list[bytes]], bytes | None]
DAMAGES: dict[str, Damage] = {
    "deleted": lambda _: None,
    "half": lambda documents: documents[-1][: len(documents[-1]) // 2],
    "garbage": lambda _: b"\x00\xffgarbage\x80",
    "empty": lambda _: b"",
    "other table": of_another_table,
    "future position": lambda documents: edited(
        documents[-1], "mysql_state", "last_timestamp", value=FUTURE
    ),
    "future save": lambda documents: edited(documents[-1], "updated_at", value=FUTURE),
    "negative count": lambda documents: edited(
        documents[-1], "mysql_state", "total_rows", value=-1
    ),
    "negative load": lambda documents: edited(
        documents[-1], "redshift_state", "total_rows", value=-1
    ),
    "loaded beyond extracted": lambda documents: edited(
        documents[-1], "redshift_state", "loaded_sequence", value=99
    ),
    "wrong checksum": lambda documents: documents[-1].replace(
        b'"total_rows": 30', b'"total_rows": 31'
    ),
    "not an object": lambda _: b"[1, 2]",
    "unknown version": lambda documents: edited(documents[-1], "version", value=3),
    "unknown key": lambda documents: edited(documents[-1], "mysql_state", "colour", value="red"),
    "another manifest": lambda documents: edited(
        documents[-1], "mysql_state", "last_manifest", value="1-1"
    ),
    "no manifest": lambda documents: edited(
        documents[-1], "mysql_state", "last_manifest", value=None
    ),
    "what is no manifest": lambda documents: edited(
        documents[-1], "mysql_state", "last_manifest", value="latest"
    ),
    "another sequence": lambda documents: edited(
        documents[-1], "mysql_state", "last_sequence", value=9
    ),
    "another epoch": lambda documents: edited(documents[-1], "epoch", value=2),
    "manifest not there": lambda documents: edited(
        edited(documents[-1], "mysql_state", "last_manifest", value="1-99"),
        "mysql_state",
        "last_sequence",
        value=99,
    ),
}
STALE: dict[str, Damage] = {
    "older": lambda documents: documents[0],
    "older load": lambda documents: documents[1],
}


def put_or_delete(objects: ObjectStore, key: str, data: bytes | None) -> None:
    if data is None:
        objects.delete(key)
    else:
        objects.put(key, data)


def copy_keys(objects: ObjectStore) -> tuple[list[str], list[str]]:
    daily = [info.key for info in objects.list_objects(lake_layout.DAILY)]
    sessions = [info.key for info in objects.list_objects(lake_layout.SESSIONS)]
    assert len(daily) == 1
    assert len(sessions) == 2
    return daily, sessions


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    use_test_keys(monkeypatch)
    return new_lake(request.param, request, tmp_path)


EVERYWHERE = list(product(["local", "ministack"], [*DAMAGES, *STALE])) + [
    ("seaweedfs", name) for name in ("deleted", "half", "other table", "older")
]


@pytest.mark.parametrize(("lake", "damage"), EVERYWHERE, indirect=["lake"])
def test_a_damaged_primary_is_recovered_from_the_best_copy(
    lake: Lake, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = lake.open()
    documents, before = build(objects)
    put_or_delete(objects, PRIMARY, (DAMAGES | STALE)[damage](documents))
    (daily,), _ = copy_keys(objects)

    notices: list[Notice] = []
    found = open_store(objects, notices=notices).get(TABLE)

    assert found is not None
    assert same_content(found, before)
    restored = open_store(objects).copies.read(TABLE, PRIMARY, "primary")
    assert restored is not None
    assert restored.watermark == found
    assert [notice.level for notice in notices] == ["warning"]
    assert daily in notices[0].message
    (event,) = open_store(objects).recoveries.of(TABLE)
    assert event.source == daily
    assert PRIMARY in event.reason
    assert event.seconds < 10

    assert (
        run(["watermark", "backups", "-t", "shop.orders", "--config", write_config(tmp_path, lake)])
        == 0
    )
    shown = capsys.readouterr().out
    assert "recoveries: 1" in shown
    assert f"from {daily}" in shown
    assert validate(open_store(objects), TABLE).differences == ()
    assert open_store(objects).get(TABLE) == found, "recovered once, not repeatedly"
    assert len(open_store(objects).recoveries.of(TABLE)) == 1
    print(f"recovered in {event.seconds:.3f} s")


@pytest.mark.parametrize("copies", ["daily", "daily and newest session", "all"])
@pytest.mark.parametrize("copy_damage", ["deleted", "garbage", "other table", "future save"])
@pytest.mark.parametrize("damage", ["deleted", "half", "negative count", "unknown version"])
def test_damaged_copies_are_passed_over(damage: str, copy_damage: str, copies: str) -> None:
    objects = MemoryObjectStore()
    documents, before = build(objects)
    (daily,), (old_session, new_session) = copy_keys(objects)
    put_or_delete(objects, PRIMARY, DAMAGES[damage](documents))
    spoilt, source = {
        "daily": ([daily], new_session),
        "daily and newest session": ([daily, new_session], old_session),
        "all": ([daily, new_session, old_session], "manifests"),
    }[copies]
    for key in spoilt:
        put_or_delete(objects, key, DAMAGES[copy_damage](documents))

    found = open_store(objects).get(TABLE)

    assert found is not None
    assert found.log_state == before.log_state
    if copies == "daily":
        assert same_content(found, before)
    else:
        # Nothing in the lake knows better; the target's ledger does.
        assert found.loaded_head <= before.loaded_head
    (event,) = open_store(objects).recoveries.of(TABLE)
    assert event.source == source
    assert validate(open_store(objects), TABLE).differences == ()
    assert land(open_store(objects), rows=5, name="next").mysql_state.total_rows == 35


@pytest.mark.parametrize("stale", STALE)
def test_a_stale_primary_without_better_copies_is_rolled_forward(stale: str) -> None:
    objects = MemoryObjectStore()
    documents, before = build(objects)
    (daily,), sessions = copy_keys(objects)
    put_or_delete(objects, PRIMARY, STALE[stale](documents))
    for key in (daily, *sessions):
        objects.delete(key)
    found = open_store(objects).get(TABLE)
    assert found is not None
    assert found.log_state == before.log_state
    assert found.loaded_head == ManifestId(1, 0)


@pytest.mark.parametrize("lake", ["local", "ministack", "seaweedfs"], indirect=True)
def test_without_any_copy_the_state_is_rebuilt_from_the_manifests(lake: Lake) -> None:
    objects = lake.open()
    _, before = build(objects)
    for folder in (lake_layout.PRIMARIES, lake_layout.DAILY, lake_layout.SESSIONS):
        for info in list(objects.list_objects(folder)):
            objects.delete(info.key)
    found = open_store(objects).get(TABLE)
    assert found is not None
    assert found.log_state == before.log_state
    assert objects.get(PRIMARY)
    (event,) = open_store(objects).recoveries.of(TABLE)
    assert event.source == "manifests"
    print(f"rebuilt in {event.seconds:.3f} s")


def lose_everything(objects: ObjectStore, *, keep: str = lake_layout.DATA) -> None:
    for info in list(objects.list_objects("")):
        if not info.key.startswith(keep):
            objects.delete(info.key)


def leave_data_files(objects: ObjectStore, _: list[bytes]) -> None:
    lose_everything(objects)


def leave_a_damaged_primary(objects: ObjectStore, documents: list[bytes]) -> None:
    lose_everything(objects, keep=PRIMARY)
    objects.put(PRIMARY, documents[-1][:100])


def leave_watermarks(objects: ObjectStore, _: list[bytes]) -> None:
    lose_everything(objects, keep="watermarks/")


def leave_a_damaged_copy(objects: ObjectStore, _: list[bytes]) -> None:
    lose_everything(objects, keep="nothing")
    objects.put(lake_layout.daily(TABLE, "20250802"), b"{}")


LOSSES = [leave_data_files, leave_a_damaged_primary, leave_watermarks, leave_a_damaged_copy]


@pytest.mark.follows_hint("set where to resume: floodmark watermark set -t …")
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("command", ["get", "set", "reset", "restore", "list", "backups"])
def test_when_nothing_is_left_nothing_is_invented(
    loss: Callable[[ObjectStore, list[bytes]], None],
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = Lake(folder=str(tmp_path / "lake"))
    objects = lake.open()
    documents, _ = build(objects)
    loss(objects, documents)
    before = snapshot(objects)
    config = ["--config", write_config(tmp_path, lake)]
    table = ["-t", "US_PROD:shop.orders"]
    if command in ("get", "restore"):
        more = ["--from", "1-1"] if command == "restore" else []
        code = run(["watermark", command, *table, *more, *config])
        assert code == (1 if command == "get" else 2)
        if command == "get":
            captured = capsys.readouterr()
            assert captured.out == ""
            assert "no usable copy or manifest is left" in captured.err
            assert "hint: set where to resume: floodmark watermark set" in captured.err
        assert snapshot(objects) == before
    elif command == "list":
        assert run(["watermark", "list", *config]) == 0
        assert snapshot(objects) == before
    elif command == "backups":
        assert run(["watermark", "backups", *table, *config]) == 0
        assert snapshot(objects) == before
    else:
        more = ["--force", *(["--id", "25"] if command == "set" else [])]
        assert run(["watermark", command, *table, *more, *config]) == 0
        store = open_store(objects)
        found = store.get(TABLE)
        assert found is not None
        assert found.position == (Position(id=25) if command == "set" else Position())
        assert found.epoch > 1_000_000, "no number of the lost log may be used again"
        assert found.loaded_head <= found.head
        after = land(store, rows=5, name="afterwards")
        assert after.mysql_state.total_rows == 5
        assert validate(open_store(objects), TABLE).differences == ()
        objects.delete(PRIMARY)
        again = open_store(objects).get(TABLE)
        assert again is not None
        assert again.log_state == after.log_state


def test_a_position_set_after_a_loss_keeps_what_the_target_has(
    pipeline: Callable[..., Pipeline],
) -> None:
    """Also without a key, where the first load since a reset begins with an empty table."""
    it = pipeline({"t": "{cursor: update_at}"})
    ask_once(it, "CREATE TABLE t (id INT, update_at DATETIME NOT NULL, KEY (update_at))")
    ask_once(it, "INSERT INTO t VALUES (1, '2025-06-01'), (2, '2025-06-02')")
    assert it.call("sync", "-p", "main").code == 0
    objects = it.lake.open()
    for folder in ("watermarks/", lake_layout.MANIFESTS):
        for info in list(objects.list_objects(folder)):
            objects.delete(info.key)
    assert it.call("sync", "-p", "main").code == 1
    name = ("-t", f"{it.schema}.t")
    assert it.call("watermark", "set", *name, "--timestamp", "2025-06-02", "--force").code == 0
    for number in (3, 4):
        ask_once(it, f"INSERT INTO t VALUES ({number}, '2025-06-0{number}')")
        assert it.call("sync", "-p", "main").code == 0
        assert held(it) == list(range(1, number + 1))
    assert it.call("watermark", "validate", *name).code == 0
    assert it.call("watermark", "reset", *name, "--force").code == 0
    assert it.call("sync", "-p", "main").code == 0
    assert held(it) == [1, 2, 3, 4]


def held(pipeline: Pipeline) -> list[int]:
    with duckdb.connect(str(pipeline.folder / "warehouse.duckdb")) as database:
        return [row[0] for row in database.execute("SELECT id FROM t ORDER BY id").fetchall()]


def test_an_early_failure_on_record_does_not_hide_that_the_manifests_are_gone() -> None:
    objects = MemoryObjectStore()
    open_store(objects, session="20250731_000000_failed").update(
        TABLE, lambda now: extract_failed(now, "access denied")
    )
    build(objects)
    for info in list(objects.list_objects(lake_layout.MANIFESTS)):
        objects.delete(info.key)
    with pytest.raises(StateLost):
        open_store(objects).get(TABLE)


def test_a_table_never_synced_starts_from_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(folder=str(tmp_path / "lake"))
    config = ["--config", write_config(tmp_path, lake)]
    assert run(["watermark", "get", "-t", "shop.orders", *config]) == 0
    assert capsys.readouterr().out == (
        "No watermark found, will start from default: 2025-01-01 00:00:00\n"
    )
    assert not (tmp_path / "lake").exists()


PRIMARIES = ("deleted", "of before the reset", "garbage")
DAILIES = ("kept", "of before the reset", "deleted", "garbage")
SESSIONS = ("kept", "deleted", "of before the reset")


@pytest.mark.parametrize("stages", [["extract", "load"], ["extract"], ["load"]], ids="+".join)
@pytest.mark.parametrize(
    ("primary", "daily", "session", "old_sessions"),
    list(product(PRIMARIES, DAILIES, SESSIONS, ("kept", "deleted"))),
)
def test_a_reset_is_never_undone_by_a_copy(
    stages: list[Any], primary: str, daily: str, session: str, old_sessions: str
) -> None:
    objects = MemoryObjectStore()
    documents, before = build(objects)
    (daily_key,), old_keys = copy_keys(objects)
    resetting = open_store(objects, session="20250803_000000_reset")
    after = operator_changes.reset(resetting, TABLE, stages)
    content = {"of before the reset": documents[-1], "garbage": b"?", "deleted": None}
    if primary in content:
        put_or_delete(objects, PRIMARY, content[primary])
    if daily in content:
        put_or_delete(objects, daily_key, content[daily])
    if session in content:
        key = lake_layout.session(TABLE, "20250803_000000_reset")
        put_or_delete(objects, key, content[session])
    if old_sessions == "deleted":
        for key in old_keys:
            objects.delete(key)

    found = open_store(objects).get(TABLE)

    assert found is not None
    assert found.log_state == after.log_state
    assert found.epoch == 2
    if "extract" in stages:
        assert found.position.is_start
    if "load" in stages:
        assert found.loaded_head == ManifestId(2 if "extract" in stages else 1, 0)
        assert found.redshift_state.total_rows == 0
    else:
        assert found.loaded_head <= before.loaded_head


def test_an_old_copy_is_carried_over_a_reset_and_a_restore() -> None:
    objects = MemoryObjectStore()
    build(objects)
    store = open_store(objects, session="20250803_000000_back")
    load_through(store, 2, rows=30)
    loaded_document = objects.get(PRIMARY).data
    operator_changes.reset(store, TABLE, ["extract", "load"])
    after = operator_changes.prepare_restore(store, TABLE, ManifestId(1, 1)).commit()
    for info in list(objects.list_objects("watermarks/")):
        objects.delete(info.key)
    objects.put(PRIMARY, loaded_document)

    reader = open_store(objects)
    found = reader.get(TABLE)
    assert found is not None
    assert found.log_state == after.log_state
    next_one = land(reader, rows=5, name="next")
    assert next_one.mysql_state.last_id == 15


def test_crashes_of_a_reset_and_of_the_restore_after_it_leave_a_table_that_works() -> None:
    objects = MemoryObjectStore()
    build(objects)
    load_through(open_store(objects), 2, rows=30)

    store = open_store(objects)
    # As if killed after the manifest: append, and do not save.
    current = store.get(TABLE)
    assert current is not None
    by = Authorship("20250804_000000_killed", "tester", utc_now())
    store.log.append(TABLE, record(current, Reset(stages=("extract", "load")), by))

    after = operator_changes.prepare_restore(open_store(objects), TABLE, ManifestId(1, 1)).commit()
    assert after.mysql_state.last_id == 10
    assert land(open_store(objects), rows=5, name="next").mysql_state.last_id == 15


def test_a_chunk_that_moves_back_is_refused_before_it_is_in_the_log() -> None:
    objects = MemoryObjectStore()
    store = open_store(objects)
    first = empty_watermark(TABLE, NEW, utc_now())
    land(store, rows=10, name="first")
    with pytest.raises(IllegalTransition):
        store.commit(TABLE, lambda _: chunk_after(first, 5, "back"))
    assert land(open_store(objects), rows=1, name="next").mysql_state.last_id == 11


def test_a_chunk_of_the_future_is_refused_before_it_is_in_the_log() -> None:
    """A server whose clock, or time zone, is ahead of ours must not make a table unreadable."""
    objects = MemoryObjectStore()
    store = open_store(objects)
    land(store, rows=10, name="first")
    ahead = Position(utc_now() + timedelta(days=2), 20)
    before = snapshot(objects)
    with pytest.raises(FloodmarkError, match="future"):
        store.commit(TABLE, lambda now: structs.replace(chunk_after(now, 5, "ahead"), end=ahead))
    assert snapshot(objects) == before
    assert land(open_store(objects), rows=1, name="next").mysql_state.last_id == 11


def test_a_reader_whose_clock_is_slow_changes_nothing() -> None:
    objects = MemoryObjectStore()
    yesterday = open_store(objects, clock=lambda: utc_now() - timedelta(days=1))
    land(yesterday, rows=1, name="yesterday")
    land(open_store(objects), rows=10, name="today")
    before = snapshot(objects)
    slow = open_store(objects, clock=lambda: utc_now() - timedelta(hours=1))
    with pytest.raises(FloodmarkError, match="future"):
        slow.get(TABLE)
    assert snapshot(objects) == before


def test_a_gap_in_the_log_is_not_papered_over() -> None:
    objects = MemoryObjectStore()
    documents, _ = build(objects)
    land(open_store(objects), rows=1, name="third")
    objects.delete(lake_layout.manifest(TABLE, ManifestId(1, 2)))
    for info in list(objects.list_objects("watermarks/")):
        objects.delete(info.key)
    objects.put(PRIMARY, documents[0])
    with pytest.raises(CorruptLog):
        open_store(objects).get(TABLE)
