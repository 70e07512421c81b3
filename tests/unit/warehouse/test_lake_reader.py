"""Files of an object store are fetched ahead, in their order and not without limit."""

from collections.abc import Iterator
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.errors import FloodmarkError
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import StoredObject
from floodmark.warehouse import lake_reader
from floodmark.warehouse.lake_reader import LakeFiles

PATHS = [f"{number}.parquet" for number in range(4)]


class Watched(MemoryObjectStore):
    """Notes which files were asked for, and lets a test wait for that."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = {path: Event() for path in PATHS}

    def get(self, key: str) -> StoredObject:
        self.asked[key].set()
        return super().get(key)

    def was_asked(self) -> list[str]:
        return [path for path, asked in self.asked.items() if asked.is_set()]


@pytest.fixture
def store() -> Watched:
    store = Watched()
    for number, path in enumerate(PATHS):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [number], "other": [0]}), sink)
        store.put(path, sink.getvalue().to_pybytes())
    return store


def ids(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        assert batch.schema.names == ["id"]
        yield from batch.column("id").to_pylist()


def test_the_next_file_is_fetched_while_one_is_read(store: Watched) -> None:
    found = ids(LakeFiles(store, None).batches_of(PATHS, ["id"]))
    assert next(found) == 0
    assert store.asked[PATHS[1]].wait(30)
    assert store.was_asked() == PATHS[:2]
    assert list(found) == [1, 2, 3]


def test_large_files_are_fetched_one_by_one(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_reader, "_MOST_AHEAD_BYTES", 10)
    found = ids(LakeFiles(store, None).batches_of(PATHS, ["id"]))
    for number, path in enumerate(PATHS):
        assert not store.asked[path].is_set()
        assert next(found) == number


def test_a_missing_file_is_reported_after_the_rows_before_it(store: Watched) -> None:
    store.delete(PATHS[1])
    found = ids(LakeFiles(store, None).batches_of(PATHS, ["id"]))
    assert next(found) == 0
    with pytest.raises(FloodmarkError, match=r"1\.parquet is missing"):
        next(found)
    assert PATHS[2] not in store.was_asked()


def test_nothing_more_is_fetched_once_nobody_reads(store: Watched) -> None:
    batches = LakeFiles(store, None).batches_of(PATHS, ["id"])
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert store.was_asked() == PATHS[:2]
    assert not list(LakeFiles(store, None).batches_of([], ["id"]))


def test_rows_come_in_small_batches_in_their_order() -> None:
    rows = 30_000
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": range(rows), "other": [None] * rows}), sink)
    store = MemoryObjectStore()
    store.put("large.parquet", sink.getvalue().to_pybytes())
    batches = list(LakeFiles(store, None).batches("large.parquet", ["id"]))
    assert max(batch.num_rows for batch in batches) <= 10_000
    assert list(ids(iter(batches))) == list(range(rows))
