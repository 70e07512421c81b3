"""Reading a long log by its compactions gives what reading its manifests gives."""

from itertools import product
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floodmark.errors import StorageUnavailable
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest, Reset
from floodmark.state import compaction
from floodmark.state.lake_validation import read_log, validate
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import StoredObject
from scenarios import TABLE, land, open_store

SIZE = 3


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SIZE", SIZE)


class Counting(MemoryObjectStore):
    """Counts what is read, and fails or dies at a compaction if it shall."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = 0
        self.fails: BaseException | None = None

    def get(self, key: str) -> StoredObject:
        self.gets += 1
        return super().get(key)

    def put_if_absent(self, key: str, data: bytes) -> str:
        if self.fails is not None and key.startswith(lake_layout.COMPACTIONS):
            raise self.fails
        return super().put_if_absent(key, data)


def filled(epochs: list[int], objects: MemoryObjectStore | None = None) -> WatermarkStore:
    """Make a log with so many chunks in each epoch."""
    store = open_store(objects if objects is not None else MemoryObjectStore())
    for number, chunks in enumerate(epochs):
        if number:
            store.commit(TABLE, lambda _: Reset(stages=("extract", "load")))
        for chunk in range(chunks):
            land(store, 10, f"file{number}-{chunk}")
    return store


def compactions(store: WatermarkStore) -> list[str]:
    return [info.key for info in store.objects.list_objects(lake_layout.COMPACTIONS)]


def plain(store: WatermarkStore) -> list[Manifest]:
    return [store.log.read(TABLE, head) for head in store.log.heads(TABLE)]


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    epochs=st.lists(st.integers(0, 11), min_size=1, max_size=3),
    harm=st.lists(st.sampled_from(["remove", "cut", "swap", "empty"]), max_size=4),
    seed=st.integers(0, 9),
)
def test_whatever_happens_to_compactions_the_same_manifests_are_read(
    epochs: list[int], harm: list[str], seed: int
) -> None:
    store, random = filled(epochs), Random(seed)
    for what in harm:
        if not (keys := compactions(store)):
            break
        key, other = random.choice(keys), random.choice(keys)
        data = store.objects.get(other if what == "swap" else key).data
        if what == "remove":
            store.objects.delete(key)
        else:
            store.objects.put(key, {"cut": data[:-9], "swap": data, "empty": b""}[what])
    every = plain(store)
    heads = [manifest.head for manifest in every]
    ends = [None, *heads[:: max(1, len(heads) // 4)]]
    for since, after, through, newest_first in product(ends, ends, ends, (False, True)):
        if since and after:
            continue
        wanted = [
            manifest
            for manifest in every
            if (since is None or manifest.head >= since)
            and (after is None or manifest.head > after)
            and (through is None or manifest.head <= through)
        ]
        found = list(
            store.log.manifests(
                TABLE, since=since, after=after, through=through, newest_first=newest_first
            )
        )
        assert found == (wanted[::-1] if newest_first else wanted)
    assert store.log.newest(TABLE) == max(heads, default=None)


def test_a_commit_completes_a_compaction_and_adds_what_is_missing() -> None:
    store = filled([10])
    keys = compactions(store)
    assert [key[-15:] for key in keys] == [f"{n:08d}.json.z" for n in (3, 6, 9)]
    contents = [store.objects.get(key).data for key in keys]
    store.objects.delete(keys[0])
    store.objects.put(keys[1], b"damaged")
    store.objects.delete(keys[1])
    for name in ("a", "b", "c"):  # one compaction at a time, the newest first
        land(store, 1, name)
    assert [store.objects.get(key).data for key in compactions(store)[:3]] == contents


def test_a_commit_writes_one_compaction_at_most_and_reads_each_manifest_once() -> None:
    """The log of an earlier release has none."""
    objects = Counting()
    store = filled([30], objects)
    for key in compactions(store):
        objects.delete(key)
    land(store, 1, "warm")
    missing = 10
    for name in range(15):
        before = len(compactions(store))
        objects.gets = 0
        land(store, 1, f"more{name}")
        written = len(compactions(store)) - before
        assert written <= 1
        assert objects.gets <= 6 + SIZE
        missing -= written
    assert missing <= 0
    assert len(compactions(store)) == (30 + 1 + 15) // SIZE


def test_a_long_log_takes_few_requests() -> None:
    objects = Counting()
    store = filled([32], objects)
    objects.gets = 0
    assert len(list(store.log.manifests(TABLE))) == 32
    assert objects.gets <= 2 * (32 // SIZE) + SIZE  # each compaction is compared with the log
    objects.gets = 0
    assert next(store.log.manifests(TABLE, newest_first=True)).sequence == 32
    assert objects.gets <= SIZE


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("error", [Killed(), StorageUnavailable("the lake is away")])
def test_commit_survives_a_failed_compaction(error: BaseException) -> None:
    objects = Counting()
    store = filled([2], objects)
    objects.fails = error
    if isinstance(error, Killed):
        with pytest.raises(Killed):
            land(store, 1, "third")
    else:
        assert land(store, 1, "third").mysql_state.last_sequence == 3
    objects.fails = None
    store = open_store(objects)
    found = store.get(TABLE)
    assert found is not None
    assert found.mysql_state.last_sequence == 3
    assert compactions(store) == []
    for name in ("a", "b", "c"):
        land(store, 1, name)
    assert len(compactions(store)) == 2
    assert validate(store, TABLE).differences == ()


def test_compactions_of_a_removed_log_are_ignored_and_replaced() -> None:
    store = filled([7])
    left = {key: store.objects.get(key).data for key in compactions(store)}
    store = open_store(MemoryObjectStore())
    for key, data in left.items():
        store.objects.put(key, data)
    for number in range(5):
        land(store, 3, f"new{number}")
    assert list(store.log.manifests(TABLE)) == plain(store)
    assert store.log.newest(TABLE) == ManifestId(1, 5)
    assert store.objects.get(next(iter(left))).data != next(iter(left.values()))


@pytest.mark.parametrize("damage", ["missing", "cut", "same size"])
def test_validate_finds_a_damaged_manifest_that_is_compacted(damage: str) -> None:
    store = filled([7])
    key = lake_layout.manifest(TABLE, ManifestId(1, 2))
    data = store.objects.get(key).data
    store.objects.delete(key)
    if damage == "cut":
        store.objects.put(key, data[:-20])
    if damage == "same size":
        store.objects.put(key, data[:-20] + b"x" * 20)
    assert validate(store, TABLE).differences != ()
    store.objects.put(key, data)
    assert validate(store, TABLE).differences == ()


def test_the_log_is_read_once_for_both_parts_of_a_validation() -> None:
    objects = Counting()
    store = filled([10], objects)
    known: dict[ManifestId, Manifest] = {}
    first = read_log(store, TABLE, [], known)
    land(store, 1, "later")
    objects.gets = 0
    again = read_log(store, TABLE, [], known)
    assert (again[:-1], objects.gets) == (first, 1)
    assert again == plain(store)


def test_the_rest_of_the_lake_does_not_take_compactions_for_data() -> None:
    store = filled([7])
    assert not lake_layout.may_be_data(f"{lake_layout.compactions(TABLE)}x.parquet")
    assert ManifestLog(store.objects).tables() == [TABLE]
