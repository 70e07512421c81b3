"""The mirror copies the lake's state in a safe order, and reports what is missing."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest

from floodmark.errors import (
    AccessDenied,
    CorruptDocument,
    MirrorConflict,
    StateError,
    StateLost,
    StorageUnavailable,
)
from floodmark.model import lake_layout
from floodmark.model.notice import Notice
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.timestamps import utc_now
from floodmark.model.transitions import Authorship
from floodmark.state import mirror, operator_changes
from floodmark.state.conditional_writes import probe_conditional_writes
from floodmark.state.mirror import Mirror, MirrorState, read_mirror_state
from floodmark.state.mirror_copy import copy_table, join
from floodmark.state.mirrored_store import MirroredObjectStore
from floodmark.state.system_watermark import write_system_watermark
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.local import LocalObjectStore
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore, StoredObject
from floodmark.sync.recover import recover_table
from scenarios import TABLE, chunk_after, land, open_store, snapshot

PRIMARY = lake_layout.primary(TABLE)


class Faulty(MemoryObjectStore):
    """A store that fails, or waits, while told to."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.gate = Event()
        self.gate.set()
        self.writes: list[str] = []

    def get(self, key: str) -> StoredObject:
        self.gate.wait(20)
        if self.failure:
            raise self.failure
        return super().get(key)

    def _write(self, key: str, data: bytes) -> str:
        if self.failure:
            raise self.failure
        self.writes.append(key)
        return super()._write(key, data)


class Place:
    """A lake with a mirror."""

    def __init__(self, wait_seconds: float = 10.0) -> None:
        self.lake = MemoryObjectStore()
        self.there = Faulty()
        self.wait_seconds = wait_seconds
        self.notices: list[Notice] = []
        self.begin()

    def begin(self, open_mirror: Callable[[], ObjectStore] | None = None) -> None:
        """Begin another run."""
        self.mirror = Mirror(
            self.lake,
            open_mirror or (lambda: self.there),
            address="there",
            clock=utc_now,
            wait_seconds=self.wait_seconds,
        )
        self.objects = MirroredObjectStore(self.lake, self.mirror)

    def drain(self) -> None:
        self.mirror.drain(self.notices.append)


def state(objects: ObjectStore) -> dict[str, bytes]:
    """What a mirror should have."""
    kept = (
        "manifests/",
        "watermarks/v2/",
        "watermarks/recoveries/",
        "watermarks/system",
        "watermarks/runs/",
    )
    return {key: data for key, data in snapshot(objects).items() if key.startswith(kept)}


@pytest.fixture
def place() -> Place:
    return Place()


def test_state_is_copied_and_data_is_not(place: Place) -> None:
    store = open_store(place.objects)
    with store.lease(TABLE):
        land(store, rows=5, name="a")
        land(store, rows=5, name="b")
    place.objects.put("watermarks/runs/20250801_000000_a.json", b"{}")
    write_system_watermark(place.objects, utc_now(), "1day", Authorship("s", "me", utc_now()))
    place.drain()
    assert state(place.there) == state(place.lake)
    assert snapshot(place.there).keys() == state(place.lake).keys() | {lake_layout.MIRROR}
    assert place.notices == []
    found = read_mirror_state(place.lake)
    assert found is not None
    assert (found.since, found.error) == (None, None)


def test_manifests_come_before_the_watermark(place: Place) -> None:
    store = open_store(place.objects)
    store.get(TABLE)
    place.there.gate.clear()
    for name in "abc":
        land(store, rows=5, name=name)
    place.there.gate.set()
    place.drain()
    keys = [key for key in place.there.writes if key != lake_layout.MIRROR]
    assert keys[-1] == PRIMARY
    assert keys[:-1] == sorted(keys[:-1])
    assert len(keys) == 4


@pytest.mark.parametrize("change", ["set", "reset", "restore"])
def test_changes_of_operators_are_copied(place: Place, change: str) -> None:
    land(open_store(place.objects), rows=5, name="a")
    store = open_store(place.objects)
    if change == "set":
        operator_changes.set_position(store, TABLE, Position(id=2))
    elif change == "reset":
        operator_changes.reset(store, TABLE, ["extract", "load"])
    else:
        head = store.log.read(TABLE, head_of(store)).head
        operator_changes.prepare_restore(store, TABLE, head).commit()
    place.drain()
    assert state(place.there) == state(place.lake)


def head_of(store: Any) -> Any:
    return max(store.log.heads(TABLE))


@pytest.mark.parametrize(
    "failure",
    [
        StorageUnavailable("there: no response"),
        AccessDenied("there: access denied"),
        RuntimeError("surprise"),
    ],
)
def test_a_mirror_that_fails_is_reported_once_a_round_and_caught_up(
    place: Place, failure: Exception
) -> None:
    store = open_store(place.objects)
    land(store, rows=5, name="a")
    place.drain()
    place.there.failure = failure
    land(store, rows=5, name="b")
    place.drain()
    place.objects.put("watermarks/runs/20250801_000000_a.json", b"{}")
    place.drain()
    (notice,) = place.notices
    assert notice.level == "warning"
    assert "mirror there is behind for US_PROD:shop.orders" in notice.message
    assert str(failure) in notice.message
    found = read_mirror_state(place.lake)
    assert found is not None
    assert str(TABLE) in found.behind
    assert found.error_since is not None
    place.there.failure = None
    place.mirror.begin_round()
    place.drain()
    assert state(place.there) == state(place.lake)
    found = read_mirror_state(place.lake)
    assert found is not None
    assert (found.behind, found.error, found.error_since) == ({}, None, None)


def test_the_next_round_tries_again_after_the_thread_has_ended(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "PAUSE_SECONDS", 0.01)
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    place.there.failure = StateError("two logs")
    land(open_store(place.objects), rows=5, name="b")
    place.drain()
    deadline = time.monotonic() + 20
    while place.mirror._threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert place.mirror._threads == 0
    place.there.failure = None
    place.mirror.begin_round()
    place.drain()
    assert state(place.there) == state(place.lake)


def test_since_when_it_is_behind_survives_the_run(place: Place) -> None:
    land(open_store(place.lake), rows=5, name="first")
    place.there.failure = StorageUnavailable("no response")
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    first = read_mirror_state(place.lake)
    place.begin()
    land(open_store(place.objects), rows=5, name="b")
    place.drain()
    second = read_mirror_state(place.lake)
    assert first is not None
    assert second is not None
    assert second.since == first.since
    assert second.error_since == first.error_since


def test_a_mirror_that_cannot_be_opened_does_not_stop_a_run(place: Place) -> None:
    land(open_store(place.objects), rows=1, name="first")

    def refuse() -> ObjectStore:
        raise AccessDenied("no AWS credentials found")

    place.begin(refuse)
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    assert "no AWS credentials found" in place.notices[-1].message


def test_a_slow_mirror_is_left_behind() -> None:
    place = Place(wait_seconds=0.05)
    land(open_store(place.lake), rows=5, name="first")
    place.there.gate.clear()
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    place.there.gate.set()
    assert "it is slow" in place.notices[0].message


def open_fresh(place: Place) -> Any:
    place.begin()
    return open_store(place.objects)


def test_the_next_run_copies_what_a_dead_one_left(place: Place) -> None:
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    # A run that dies copies nothing: it writes to the lake alone.
    land(open_store(place.lake), rows=5, name="b")
    store = open_fresh(place)
    with store.lease(TABLE):
        store.get(TABLE)  # and finds nothing new
    place.drain()
    assert state(place.there) == state(place.lake)


def test_reading_copies_nothing(place: Place) -> None:
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    land(open_store(place.lake), rows=5, name="b")
    before = snapshot(place.there)
    assert open_fresh(place).get(TABLE) is not None
    place.drain()
    assert snapshot(place.there) == before


def test_interrupted_first_copy_resumes(place: Place) -> None:
    for name in "abcd":
        land(open_store(place.lake), rows=5, name=name)
    join(place.lake, place.there, utc_now)
    for key in sorted(k for k in snapshot(place.lake) if k.startswith("manifests/"))[:2]:
        place.there.put(key, place.lake.get(key).data)
    place.there.writes.clear()
    copy_table(place.lake, place.there, TABLE)
    assert len(place.there.writes) == 3
    assert state(place.there) == state(place.lake)


def test_an_older_watermark_does_not_replace_a_newer_one(place: Place) -> None:
    """Another run copies a newer watermark between our reading and our writing."""
    store = open_store(place.lake)
    land(store, rows=5, name="a")
    join(place.lake, place.there, utc_now)
    overtaken: list[bool] = []

    class Overtaking(MemoryObjectStore):
        def get(self, key: str) -> StoredObject:
            found = place.lake.get(key)
            if key == PRIMARY and not overtaken:
                overtaken.append(True)
                land(open_store(place.lake), rows=5, name="b")
                copy_table(place.lake, place.there, TABLE)
            return found

        def list_objects(self, prefix: str, *, after: str = "") -> Any:
            return place.lake.list_objects(prefix, after=after)

    copy_table(Overtaking(), place.there, TABLE)
    assert state(place.there) == state(place.lake)


class Counting(MemoryObjectStore):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    def get(self, key: str) -> StoredObject:
        self.reads[key] += 1
        return super().get(key)


def test_recovery_reads_a_manifest_once_and_copies_it_once() -> None:
    lake, there = MemoryObjectStore(), Counting()
    for name in "abcd":
        land(open_store(lake), rows=5, name=name)
    copy_table(lake, there, TABLE)
    there.reads.clear()
    lost = MemoryObjectStore()
    found = recover_table(open_store(lost), there, TABLE, None)
    assert found.manifests == 4
    manifests = {key: n for key, n in there.reads.items() if key.startswith("manifests/")}
    assert set(manifests.values()) == {2}
    assert state(lost) == state(there)


class Slow(Faulty):
    """A store with the latency of another region."""

    def get(self, key: str) -> StoredObject:
        time.sleep(0.05)
        return super().get(key)

    def list_objects(self, prefix: str, *, after: str = "") -> Any:
        time.sleep(0.05)
        return super().list_objects(prefix, after=after)

    def _write(self, key: str, data: bytes) -> str:
        time.sleep(0.05)
        return super()._write(key, data)


def many(count: int) -> list[TableName]:
    return [TableName("US_PROD", "shop", f"t{number:03}") for number in range(count)]


def land_in(store: WatermarkStore, table: TableName, name: str) -> None:
    store.commit(table, lambda current: chunk_after(current, rows=1, name=name))


def test_what_was_written_comes_before_what_was_only_read() -> None:
    """A slow mirror has time for a few tables only; each run is a new process."""
    place = Place(wait_seconds=0.8)
    place.there = Slow()
    tables = many(200)
    for table in tables:
        land_in(open_store(place.lake), table, "a")
    join(place.lake, place.there, utc_now)
    for key, data in state(place.lake).items():
        place.there._objects[key] = (StoredObject(data, "1"), utc_now())
    place.lake.put(
        lake_layout.MIRRORED, msgspec.json.encode(MirrorState(mirror="there", at=utc_now()))
    )
    for run in range(3):
        place.begin()
        store = open_store(place.objects)
        for table in tables:
            store.get(table)
        land_in(store, tables[-1], f"b{run}")
        place.drain()
    assert place.notices == []
    there = [k for k in place.there._objects if k.startswith(lake_layout.manifests(tables[-1]))]
    assert len(there) == 4
    found = read_mirror_state(place.lake)
    assert found is not None
    assert (found.behind, 0 < found.unchecked < 199) == ({}, True)
    assert "tables not checked" in str(found)


def test_what_a_new_mirror_lacks_is_behind_until_it_is_copied() -> None:
    place = Place(wait_seconds=0.2)
    place.there = Slow()
    tables = many(20)
    for table in tables:
        land_in(open_store(place.lake), table, "a")
    runs = 0
    while len(place.there.writes) < 41:
        place.begin()
        store = open_store(place.objects)
        for table in tables:
            store.get(table)
        store.objects.put(lake_layout.SYSTEM, b"{}")
        place.drain()
        runs += 1
        lacking = [t for t in tables if lake_layout.primary(t) not in place.there._objects]
        found = read_mirror_state(place.lake)
        assert found is not None
        assert {*map(str, lacking)} <= found.behind.keys()
    assert runs > 1


def test_a_mirror_that_hangs_is_waited_for_once() -> None:
    place = Place(wait_seconds=0.3)
    land(open_store(place.lake), rows=5, name="first")
    place.there.gate.clear()
    land(open_store(place.objects), rows=5, name="a")
    began = time.monotonic()
    for _ in range(5):
        place.drain()
    assert time.monotonic() - began < 0.6
    place.there.gate.set()
    place.mirror.begin_round()
    place.drain()
    assert state(place.there) == state(place.lake)


def test_the_last_version_of_a_run_record_is_copied(place: Place) -> None:
    key = "watermarks/runs/20250801_000000_a.json"
    for text in (b'{"running": 1}', b'{"success": 1}'):
        place.objects.put(key, text)
        place.drain()
    assert place.there.get(key).data == b'{"success": 1}'


def test_a_run_record_that_waits_is_copied_by_the_next_run(place: Place) -> None:
    place.objects.put("watermarks/runs/20250801_000000_a.json", b"{}")
    place.drain()
    place.there.failure = StorageUnavailable("no response")
    place.objects.put("watermarks/runs/20250802_000000_b.json", b"{}")
    place.drain()
    place.there.failure = None
    place.begin()
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    assert state(place.there) == state(place.lake)


def test_damage_is_not_copied(place: Place) -> None:
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    good = snapshot(place.there)
    place.lake.put(PRIMARY, place.lake.get(PRIMARY).data[:100])
    with pytest.raises(CorruptDocument):
        copy_table(place.lake, place.there, TABLE)
    assert snapshot(place.there) == good


def test_the_mirror_of_another_lake_is_refused(place: Place) -> None:
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    before = snapshot(place.there)
    other = Place()
    other.there = place.there
    land(open_store(other.lake), rows=3, name="z")
    other.begin()
    store = open_store(other.objects)
    with store.lease(TABLE):
        land(store, rows=3, name="y")
    other.drain()
    (notice,) = other.notices
    assert "is the mirror of a lake" in notice.message
    assert snapshot(place.there) == before
    join(other.lake, MemoryObjectStore(), utc_now)
    with pytest.raises(MirrorConflict, match="mirror of another lake"):
        join(other.lake, place.there, utc_now)


def test_a_place_that_is_not_empty_is_refused(place: Place) -> None:
    land(open_store(place.there), rows=3, name="z")
    with pytest.raises(MirrorConflict, match="not empty, and not a mirror"):
        join(place.lake, place.there, utc_now)


def test_empty_folders_of_a_probe_do_not_matter(tmp_path: Path) -> None:
    """`doctor` writes a probe before the first sync."""
    lake, there = MemoryObjectStore(), LocalObjectStore(str(tmp_path / "mirror"))
    probe_conditional_writes(there)
    join(lake, there, utc_now)
    assert there.get(lake_layout.MIRROR)


def test_a_lake_without_its_marker_is_recognized_by_its_log(place: Place) -> None:
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    place.lake.delete(lake_layout.LAKE)
    land(open_fresh(place), rows=5, name="b")
    place.drain()
    assert place.notices == []
    assert state(place.there) == state(place.lake)


def test_two_logs_under_the_same_numbers_are_refused(place: Place) -> None:
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    land(open_store(place.lake), rows=5, name="b")
    key = lake_layout.manifest(TABLE, head_of(open_store(place.lake)))
    place.there.put(
        key,
        place.lake.get(lake_layout.manifest(TABLE, head_of(open_store(place.lake)))).data + b" ",
    )
    with pytest.raises(MirrorConflict, match="another manifest 1-2"):
        copy_table(place.lake, place.there, TABLE)


def test_a_table_that_only_the_mirror_knows_is_refused(place: Place) -> None:
    land(open_store(place.objects), rows=5, name="a")
    place.drain()
    for key in snapshot(place.lake):
        place.lake.delete(key)
    store = open_fresh(place)
    with pytest.raises(StateLost, match="the lake has lost the state") as caught:
        store.get(TABLE)
    assert caught.value.hint == f"floodmark recover --from-mirror -t {TABLE}"
    assert not [key for key in snapshot(place.lake) if key.startswith("manifests/")]


def test_a_lost_watermark_alone_is_recovered_without_the_mirror(place: Place) -> None:
    store = open_store(place.objects)
    expected = land(store, rows=5, name="a")
    place.drain()
    for key in snapshot(place.lake):
        if key.startswith("watermarks/"):
            place.lake.delete(key)
    found = open_fresh(place).get(TABLE)
    assert found is not None
    assert found.position == expected.position


def test_an_unknown_table_waits_for_a_mirror_that_cannot_be_reached(place: Place) -> None:
    place.there.failure = StorageUnavailable("no response")
    with pytest.raises(StateLost, match="cannot tell whether it was lost"):
        open_store(place.objects).get(TABLE)
    place.there.failure = None
    assert open_store(place.objects).get(TABLE) is None


def test_pruned_run_records_are_removed_from_the_mirror(place: Place) -> None:
    place.objects.put("watermarks/runs/20250801_000000_a.json", b"{}")
    place.objects.put("watermarks/runs/20250901_000000_b.json", b"{}")
    place.drain()
    place.objects.delete("watermarks/runs/20250801_000000_a.json")
    place.drain()
    assert [k for k in snapshot(place.there) if k.startswith("watermarks/runs/")] == [
        "watermarks/runs/20250901_000000_b.json"
    ]


def test_a_lake_that_lost_a_manifest_in_the_run_does_not_set_the_mirror_back(place: Place) -> None:
    store = open_store(place.objects)
    for name in "ab":
        land(store, rows=5, name=name)
    place.drain()
    there = snapshot(place.there)
    place.lake.delete(lake_layout.manifest(TABLE, head_of(store)))
    store = open_store(place.objects)  # in the same process, which knows what it has copied
    with store.lease(TABLE):
        store.get(TABLE)
    place.drain()
    assert "has manifest 1-2" in place.notices[-1].message
    assert {key: place.there.get(key).data for key in there} == there
