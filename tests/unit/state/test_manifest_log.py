"""Which manifests and chunks of a table's log are read, and in which order."""

import pytest

from floodmark.errors import CorruptLog
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.table import TableName
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.operator_changes import reset
from floodmark.storage.memory import MemoryObjectStore
from scenarios import TABLE, land, open_store


@pytest.fixture
def objects() -> MemoryObjectStore:
    """A lake with chunks 1-1, 1-2 and 2-1, and a reset 1-3 between them."""
    objects = MemoryObjectStore()
    store = open_store(objects)
    land(store, rows=10, name="first")
    land(store, rows=20, name="second")
    reset(store, TABLE, ("extract",))
    land(store, rows=30, name="third")
    return objects


def test_manifests_are_read_in_order(objects: MemoryObjectStore) -> None:
    log = ManifestLog(objects)
    heads = [str(manifest.head) for manifest in log.manifests(TABLE)]
    assert heads == ["1-1", "1-2", "1-3", "2-1"]
    assert [str(m.head) for m in log.manifests(TABLE, newest_first=True)] == heads[::-1]


def test_the_range_of_manifests(objects: MemoryObjectStore) -> None:
    log, second, third = ManifestLog(objects), ManifestId(1, 2), ManifestId(1, 3)
    assert [str(m.head) for m in log.manifests(TABLE, since=second)] == ["1-2", "1-3", "2-1"]
    assert [str(m.head) for m in log.manifests(TABLE, after=second)] == ["1-3", "2-1"]
    assert [str(m.head) for m in log.manifests(TABLE, through=second)] == ["1-1", "1-2"]
    assert [str(m.head) for m in log.manifests(TABLE, after=second, through=third)] == ["1-3"]
    assert [str(m.head) for m in log.manifests(TABLE, since=ManifestId(2, 0))] == ["2-1"]


def test_manifests_outside_of_the_range_are_not_read(objects: MemoryObjectStore) -> None:
    log, first = ManifestLog(objects), ManifestId(1, 1)
    objects.put(lake_layout.manifest(TABLE, first), b"damaged")
    assert len(list(log.manifests(TABLE, after=first))) == 3
    with pytest.raises(CorruptLog):
        list(log.manifests(TABLE, since=first))


def test_chunks_leave_out_other_changes(objects: MemoryObjectStore) -> None:
    log = ManifestLog(objects)
    assert [chunk.rows for chunk in log.chunks(TABLE)] == [10, 20, 30]
    assert [chunk.rows for chunk in log.chunks(TABLE, newest_first=True)] == [30, 20, 10]
    assert [chunk.rows for chunk in log.chunks(TABLE, after=ManifestId(1, 2))] == [30]


def test_a_log_without_manifests_is_empty(objects: MemoryObjectStore) -> None:
    log = ManifestLog(objects)
    other = TableName("US_PROD", "shop", "other")
    assert (log.is_empty(TABLE), log.is_empty(other)) == (False, True)
    assert list(log.chunks(other)) == []
