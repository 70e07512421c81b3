"""A lake that ignores conditional writes is refused before anything is committed."""

from datetime import UTC, datetime

import pytest

from floodmark.errors import StorageError
from floodmark.model import lake_layout
from floodmark.model.table import TableName
from floodmark.state.conditional_writes import check_conditional_writes
from floodmark.storage.memory import MemoryObjectStore
from scenarios import open_store

TABLE = TableName("PROD", "s", "t")


class IgnoresAbsence(MemoryObjectStore):
    """Ignores `If-None-Match`."""

    def put_if_absent(self, key: str, data: bytes) -> str:
        return self.put(key, data)


class IgnoresTags(MemoryObjectStore):
    """Ignores `If-Match`."""

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        return self.put(key, data)


class Counting(MemoryObjectStore):
    """Counts calls of `put_if_absent`."""

    writes = 0

    def put_if_absent(self, key: str, data: bytes) -> str:
        self.writes += 1
        return super().put_if_absent(key, data)


@pytest.mark.parametrize(
    ("kind", "condition"), [(IgnoresAbsence, "If-None-Match"), (IgnoresTags, "If-Match")]
)
def test_a_lake_that_ignores_conditions_is_refused(
    kind: type[MemoryObjectStore], condition: str
) -> None:
    objects = kind()
    with pytest.raises(StorageError, match=f"ignores {condition}"):
        open_store(objects).lease(TABLE)
    assert [info.key for info in objects.list_objects("")] == []


def test_a_lake_is_tested_once() -> None:
    objects = Counting()
    for _ in range(2):
        check_conditional_writes(objects, lambda: datetime(2026, 1, 1, tzinfo=UTC), "me@here")
    assert objects.writes == 2  # one that succeeds, and one that must fail
    assert [info.key for info in objects.list_objects("")] == [lake_layout.PROBED]


@pytest.mark.parametrize("left", [b"", b"{}", b'{"lake": "another", "by": "x"}'])
def test_a_result_for_another_lake_is_ignored(left: bytes) -> None:
    objects = Counting()
    objects.put(lake_layout.PROBED, left)
    check_conditional_writes(objects, lambda: datetime(2026, 1, 1, tzinfo=UTC), "me@here")
    assert objects.writes == 2
