"""Several processes change one table: no change is lost or applied twice."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import processes
from floodmark.errors import FloodmarkError, LeaseHeld, LostRace
from floodmark.model import lake_layout
from floodmark.model.manifest import Chunk, Reset
from floodmark.model.notice import Notice
from floodmark.model.timestamps import utc_now
from floodmark.model.transitions import extract_started
from floodmark.state import operator_changes
from floodmark.state.lake_validation import validate
from floodmark.state.lease import read_lease
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectInfo
from scenarios import TABLE, Lake, chunk_after, land, new_lake, open_store, use_test_keys

WRITERS = 8
UPDATES = 30
LEASE_SECONDS = 0.5


@pytest.fixture(params=["local", "seaweedfs"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    use_test_keys(monkeypatch)
    return new_lake(request.param, request, tmp_path)


def commit_often(lake: Lake, writer: int) -> None:
    """Commit chunks of known sizes, each as often as it takes."""
    store = open_store(lake.open(), session=f"20250801_00000{writer}_writer")
    while True:
        with suppress(LostRace):  # eight writers on a busy machine
            store.update(TABLE, extract_started)
            break
    for update in range(UPDATES):
        land(store, rows=writer + 1, name=f"{writer}-{update}", races=10_000)


def test_eight_processes_lose_no_update(lake: Lake) -> None:
    writers = [processes.start(commit_often, lake, writer) for writer in range(WRITERS)]
    for process in writers:
        process.join(timeout=120)
    assert [process.exitcode for process in writers] == [0] * WRITERS

    store = open_store(lake.open())
    heads = list(store.log.heads(TABLE))
    updates = WRITERS * UPDATES
    assert [(head.epoch, head.sequence) for head in heads] == [
        (1, number) for number in range(1, updates + 1)
    ]
    chunks = [store.log.read(TABLE, head).change for head in heads]
    names = [
        file.path.rpartition("/")[2] for chunk in chunks for file in getattr(chunk, "files", ())
    ]
    assert sorted(names) == sorted(
        f"{writer}-{update}.parquet" for writer in range(WRITERS) for update in range(UPDATES)
    )
    watermark = store.get(TABLE)
    assert watermark is not None
    rows = UPDATES * sum(range(1, WRITERS + 1))
    assert watermark.mysql_state.total_rows == rows
    assert watermark.mysql_state.last_id == rows
    assert watermark.mysql_state.chunk_count == watermark.mysql_state.s3_file_count == updates
    assert watermark.mysql_state.last_sequence == updates
    assert 1 <= watermark.revision <= updates + WRITERS
    assert store.recoveries.of(TABLE) == [], "a race is no damage"
    assert validate(store, TABLE).differences == ()
    saved = store.copies.read(TABLE, lake_layout.primary(TABLE), "primary")
    assert saved is not None
    assert saved.watermark == watermark, "the last checkpoint is of the last update"


def test_a_run_that_paused_over_a_reset_cannot_commit() -> None:
    objects = MemoryObjectStore()
    paused = open_store(objects)
    before = land(paused, rows=10, name="before")
    operator_changes.reset(open_store(objects), TABLE, ["extract", "load"])

    with pytest.raises(LostRace):
        paused.commit(TABLE, lambda _: chunk_after(before, 5, "stale"))

    watermark = open_store(objects).get(TABLE)
    assert watermark is not None
    assert watermark.position.is_start
    assert (watermark.epoch, watermark.mysql_state.total_rows) == (2, 0)


def test_of_two_resets_planned_on_one_state_only_one_happens() -> None:
    objects = MemoryObjectStore()
    land(open_store(objects), rows=1, name="first")
    one, other = open_store(objects), open_store(objects)
    for store in (one, other):
        store.get(TABLE)
    one.commit(TABLE, lambda _: Reset(stages=("extract", "load")))
    with pytest.raises(LostRace):
        other.commit(TABLE, lambda _: Reset(stages=("extract", "load")))
    assert [str(head) for head in one.log.heads(TABLE)] == ["1-1", "1-2"]


def adopt(lake: Lake, gate: Any) -> None:
    """Read a table that only an older system knows, once the gate opens."""
    store = open_store(lake.open())
    gate.send("ready")
    gate.recv()
    watermark = store.get(TABLE)
    assert watermark is not None
    gate.send(watermark.mysql_state.last_id)


def test_several_processes_adopt_an_older_watermark_once(tmp_path: Path) -> None:
    lake = Lake(folder=str(tmp_path))
    lake.open().put("watermarks/shop.orders.json", b'{"mysql_state": {"last_id": 77}}')
    gates = []
    for _ in range(WRITERS):
        gate, theirs = processes.pipe()
        processes.start(adopt, lake, theirs)
        gates.append(gate)
    assert [gate.recv() for gate in gates] == ["ready"] * WRITERS
    for gate in gates:
        gate.send("go")
    assert [gate.recv() for gate in gates] == [77] * WRITERS
    store = open_store(lake.open())
    assert [str(head) for head in store.log.heads(TABLE)] == ["1-1"]
    assert validate(store, TABLE).differences == ()


def work_through_a_pause(lake: Lake, gate: Any, checks_lease: bool) -> None:
    """Take the lease and read; once told to go on, try to commit, and say what came of it."""
    store = open_store(lake.open(), session="20250801_000000_paused", lease_seconds=LEASE_SECONDS)
    lease = store.lease(TABLE)
    seen = store.get(TABLE)
    assert seen is not None
    gate.send("running")
    gate.recv()
    try:
        if checks_lease:
            lease.check()
        store.commit(TABLE, lambda _: chunk_after(seen, 5, "stale"))
    except FloodmarkError as error:
        gate.send(type(error).__name__)
    else:
        gate.send("committed")
    lease.release()
    gate.send("released")


@pytest.mark.parametrize(("checks_lease", "outcome"), [(True, "LeaseLost"), (False, "LostRace")])
def test_a_process_that_slept_past_its_lease_cannot_commit(
    tmp_path: Path, checks_lease: bool, outcome: str
) -> None:
    lake = Lake(folder=str(tmp_path))
    ours = open_store(lake.open(), session="20250801_000001_ours")
    land(ours, rows=10, name="first")
    gate, theirs = processes.pipe()
    paused = processes.start(work_through_a_pause, lake, theirs, checks_lease)
    assert paused.pid is not None
    assert gate.recv() == "running"
    with pytest.raises(LeaseHeld):
        ours.lease(TABLE)

    os.kill(paused.pid, signal.SIGSTOP)
    held = read_lease(ours.objects, TABLE)
    assert held is not None
    left = held.expires_at - utc_now() + timedelta(milliseconds=10)
    Event().wait(left.total_seconds())  # nothing happens when a lease runs out
    with ours.lease(TABLE):
        after = land(ours, rows=20, name="second")
        os.kill(paused.pid, signal.SIGCONT)
        gate.send("go on")
        assert gate.recv() == outcome
        assert gate.recv() == "released"
        still = read_lease(ours.objects, TABLE)
        assert still is not None
        assert still.session_id == "20250801_000001_ours"
        assert still.held(utc_now()), "the one overtaken gave away a lease that was not its own"

    assert open_store(lake.open()).get(TABLE) == after
    paused.join(timeout=10)


def test_a_false_alarm_in_a_race_is_not_recorded_as_a_recovery() -> None:
    """A reader that sees the primary of before and the copies of after has found no damage."""

    class BetweenPrimaryAndCopies(MemoryObjectStore):
        armed = False

        def get(self, key: str) -> Any:
            found = super().get(key)
            if self.armed and key == lake_layout.primary(TABLE):
                self.armed = False
                land(open_store(self), rows=1, name="meanwhile", races=1)
            return found

    objects = BetweenPrimaryAndCopies()
    land(open_store(objects), rows=1, name="first")
    notices: list[Notice] = []
    reader = open_store(objects, notices=notices)
    objects.armed = True
    watermark = reader.get(TABLE)
    assert watermark is not None
    assert watermark.mysql_state.total_rows == 2
    assert reader.recoveries.of(TABLE) == []
    assert [notice for notice in notices if notice.level != "debug"] == []
    assert isinstance(reader.log.read(TABLE, watermark.head).change, Chunk)


def test_a_first_run_that_begins_while_one_looks_is_not_taken_for_a_loss() -> None:
    """Its data files are there, and the watermark was not when the reader looked for it."""

    class BeginsAfterALook(MemoryObjectStore):
        armed = True

        def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
            if self.armed and prefix == lake_layout.data_files(TABLE):
                self.armed = False
                open_store(self).update(TABLE, extract_started)
                self.put(f"{lake_layout.data_files(TABLE)}first.parquet", b"...")
            return super().list_objects(prefix, after=after)

    watermark = open_store(BeginsAfterALook()).get(TABLE)
    assert watermark is not None
    assert watermark.mysql_state.status == "in_progress"
