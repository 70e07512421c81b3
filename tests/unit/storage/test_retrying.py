"""Retries: how often, how long to wait, and conflicts of retried writes."""

from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import (
    AccessDenied,
    ObjectNotFound,
    StorageError,
    StorageUnavailable,
    WriteConflict,
)
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectInfo, ObjectStore, StoredObject
from floodmark.storage.retrying import Backoff, RetryingObjectStore

Fault = Callable[[Callable[[], str]], str]


def unreachable(_: Callable[[], str]) -> str:
    """The request never arrives."""
    raise StorageUnavailable("no answer")


def answer_lost(write: Callable[[], str]) -> str:
    """The write succeeds, but its response is lost."""
    write()
    raise StorageUnavailable("no answer")


class ScriptedStore(MemoryObjectStore):
    """A store that injects the given faults, one per request."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__()
        self.faults = list(faults)
        self.requests = 0
        self.page_size: int | None = None

    def _through(self, request: Callable[[], str]) -> str:
        self.requests += 1
        return self.faults.pop(0)(request) if self.faults else request()

    def get(self, key: str) -> StoredObject:
        self._through(lambda: "")
        return super().get(key)

    def put(self, key: str, data: bytes) -> str:
        return self._through(lambda: super(ScriptedStore, self).put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> str:
        return self._through(lambda: super(ScriptedStore, self).put_if_absent(key, data))

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        return self._through(lambda: super(ScriptedStore, self).put_if_match(key, data, etag))

    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        for number, info in enumerate(super().list_objects(prefix, after=after)):
            if self.page_size and number % self.page_size == 0:
                self._through(lambda: "")
            yield info

    def list_folders(self, prefix: str) -> list[str]:
        self._through(lambda: "")
        return super().list_folders(prefix)

    def delete(self, key: str) -> None:
        self._through(lambda: "")
        super().delete(key)


class Sleeps(list[float]):
    """Records waits instead of sleeping."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def retrying(store: ObjectStore, *, tries: int = 3, sleeps: Sleeps | None = None) -> ObjectStore:
    noted = Sleeps() if sleeps is None else sleeps
    return RetryingObjectStore(store, Backoff(tries=tries), sleep=noted, random=Random(1))


def sure(store: MemoryObjectStore) -> MemoryObjectStore:
    """Return the same objects without faults."""
    direct = MemoryObjectStore()
    direct._objects = store._objects
    return direct


METHODS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("a/b"),
    "put": lambda store: store.put("a/b", b"new"),
    "put_if_absent": lambda store: store.put_if_absent("a/c", b"new"),
    "put_if_match": lambda store: store.put_if_match("a/b", b"new", store.get("a/b").etag),
    "list_folders": lambda store: store.list_folders("a/"),
    "delete": lambda store: store.delete("a/b"),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("failures", [0, 1, 2])
def test_enough_tries_succeed(method: str, failures: int) -> None:
    store, sleeps = ScriptedStore(*[unreachable] * failures), Sleeps()
    sure(store).put("a/b", b"old")
    METHODS[method](retrying(store, sleeps=sleeps))
    assert len(sleeps) == failures


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tries", [1, 2, 5])
def test_tries_are_counted(method: str, tries: int) -> None:
    store, sleeps = ScriptedStore(*[unreachable] * 20), Sleeps()
    with pytest.raises(StorageUnavailable, match="no answer"):
        METHODS[method](retrying(store, tries=tries, sleeps=sleeps))
    assert store.requests == tries
    assert len(sleeps) == tries - 1


@pytest.mark.parametrize("error", [ObjectNotFound, WriteConflict, AccessDenied, StorageError])
def test_other_errors_are_not_retried(error: type[StorageError]) -> None:
    def refuse(_: Callable[[], str]) -> str:
        raise error("no")

    for attempt in METHODS.values():
        store, sleeps = ScriptedStore(refuse), Sleeps()
        with pytest.raises(error):
            attempt(retrying(store, sleeps=sleeps))
        assert (store.requests, sleeps) == (1, [])


# Waiting


@given(st.floats(0.001, 100), st.floats(0.001, 100), st.integers(1, 10_000), st.integers(0, 2**32))
def test_a_wait_has_bounds(first: float, most: float, failures: int, seed: int) -> None:
    pause = Backoff(3, first, most).pause(failures, Random(seed))
    assert 0 <= pause <= most
    if failures <= 60:
        assert pause <= first * 2 ** (failures - 1)


def test_waits_double_up_to_the_maximum() -> None:
    backoff = Backoff(10, first_seconds=0.1, most_seconds=2.0)

    class Longest(Random):
        def uniform(self, a: float, b: float) -> float:
            assert a == 0
            return b

    waits = [backoff.pause(failures, Longest()) for failures in range(1, 8)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


def test_waits_are_spread_over_the_whole_range() -> None:
    random, backoff = Random(7), Backoff(first_seconds=1.0)
    waits = [backoff.pause(1, random) for _ in range(2000)]
    assert min(waits) < 0.01
    assert max(waits) > 0.99
    assert sum(waits) / len(waits) == pytest.approx(0.5, abs=0.03)


def test_writers_wait_for_different_times() -> None:
    backoff = Backoff()
    one, other = Random(1), Random(2)
    assert [backoff.pause(n, one) for n in (1, 2)] != [backoff.pause(n, other) for n in (1, 2)]


# Writes that may have happened


def test_lost_response_of_a_create_is_success() -> None:
    store = ScriptedStore(answer_lost)
    etag = retrying(store).put_if_absent("a", b"ours")
    assert sure(store).get("a") == StoredObject(b"ours", etag)


def test_lost_response_of_a_replacement_is_success() -> None:
    store = ScriptedStore(answer_lost)
    before = sure(store).put("a", b"before")
    etag = retrying(store).put_if_match("a", b"ours", before)
    assert sure(store).get("a") == StoredObject(b"ours", etag)


def test_two_lost_responses_are_success() -> None:
    store = ScriptedStore(answer_lost, unreachable)
    retrying(store).put_if_absent("a", b"ours")
    assert sure(store).get("a").data == b"ours"


def test_conflict_after_an_uncertain_write_of_another_is_a_conflict() -> None:
    store = ScriptedStore(unreachable)
    sure(store).put("a", b"theirs")
    with pytest.raises(WriteConflict):
        retrying(store).put_if_absent("a", b"ours")
    assert sure(store).get("a").data == b"theirs"


def test_same_content_without_doubt_is_a_conflict() -> None:
    store = ScriptedStore()
    sure(store).put("a", b"same")
    with pytest.raises(WriteConflict):
        retrying(store).put_if_absent("a", b"same")
    with pytest.raises(WriteConflict):
        retrying(store).put_if_match("a", b"same", "stale")
    assert store.requests == 2  # the stored object was not read


@pytest.mark.parametrize("fault", [answer_lost, unreachable])
def test_object_deleted_in_the_meantime_is_a_conflict(fault: Fault) -> None:
    store = ScriptedStore(fault)
    before = sure(store).put("a", b"before")

    def delete_meanwhile(_: float) -> None:
        sure(store).delete("a")

    slow = RetryingObjectStore(store, Backoff(), sleep=delete_meanwhile, random=Random(1))
    with pytest.raises(WriteConflict):
        slow.put_if_match("a", b"ours", before)
    with pytest.raises(ObjectNotFound):
        sure(store).get("a")


def test_a_failed_read_counts_as_a_try() -> None:
    # response lost · conflict, read fails · conflict, read
    store = ScriptedStore(answer_lost, lambda request: request(), unreachable)
    retrying(store, tries=3).put_if_absent("a", b"ours")
    assert store.requests == 5
    store = ScriptedStore(answer_lost, lambda request: request(), unreachable)
    with pytest.raises(StorageUnavailable):
        retrying(store, tries=2).put_if_absent("a", b"ours")


def test_an_uncertain_write_is_unavailable() -> None:
    store = ScriptedStore(*[unreachable] * 2, answer_lost)
    with pytest.raises(StorageUnavailable):
        retrying(store).put_if_absent("a", b"ours")
    assert sure(store).get("a").data == b"ours"  # the last write did happen


@given(st.lists(st.sampled_from([unreachable, answer_lost]), max_size=6), st.booleans())
def test_the_result_is_right_whatever_is_lost(faults: list[Fault], create: bool) -> None:
    store = ScriptedStore(*faults)
    patient = retrying(store, tries=7)
    if create:
        etag = patient.put_if_absent("a", b"ours")
    else:
        before = sure(store).put("a", b"before")
        etag = patient.put_if_match("a", b"ours", before)
    assert sure(store).get("a") == StoredObject(b"ours", etag)


# Listings


@given(
    count=st.integers(0, 30),
    page_size=st.integers(1, 7),
    faults=st.lists(st.sampled_from([unreachable, lambda request: request()]), max_size=12),
)
def test_a_failed_listing_has_no_gaps_or_repeats(
    count: int, page_size: int, faults: list[Fault]
) -> None:
    store = ScriptedStore(*faults)
    expected = [f"a/{number:03d}" for number in range(count)]
    for key in expected:
        sure(store).put(key, b"")
    store.page_size = page_size
    found = [info.key for info in retrying(store, tries=13).list_objects("a/")]
    assert found == expected


def test_progress_resets_the_tries_of_a_listing() -> None:
    def passing(request: Callable[[], str]) -> str:
        return request()

    store = ScriptedStore(unreachable, unreachable, passing, unreachable, unreachable)
    for number in range(4):
        sure(store).put(f"a/{number}", b"")
    store.page_size = 2
    assert len(list(retrying(store, tries=3).list_objects("a/"))) == 4
    store.faults = [unreachable] * 3
    with pytest.raises(StorageUnavailable):
        list(retrying(store, tries=3).list_objects("a/"))
