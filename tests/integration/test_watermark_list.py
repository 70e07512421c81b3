"""All tables at once: the same answer as for each by itself, in few requests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from floodmark.errors import FloodmarkError, StorageError
from floodmark.model import lake_layout
from floodmark.model.manifest import Reset
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state.watermark_list import KEYS_A_LISTING, Overview, read_overview
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectInfo, ObjectStore
from scenarios import chunk_after, new_lake, open_store, use_test_keys


def named(name: str, scope: str = "US_PROD") -> TableName:
    return TableName(scope, "shop", name)


def commit(objects: ObjectStore, table: TableName, times: int = 1) -> None:
    store = open_store(objects)
    for _ in range(times):
        store.commit(table, lambda current: chunk_after(current, 10, "file"))


def reset(objects: ObjectStore, table: TableName) -> None:
    open_store(objects).commit(table, lambda _: Reset(stages=("extract", "load")))


def left_behind(objects: ObjectStore, table: TableName) -> None:
    """As if killed between manifest and watermark, when the copies were lost, too."""
    before = objects.get(lake_layout.primary(table)).data
    commit(objects, table)
    objects.put(lake_layout.primary(table), before)
    for key in [info.key for info in objects.list_objects("watermarks/backups/")]:
        if f"{table.key}_" in key or key.endswith(f"{table.key}.json"):
            objects.delete(key)


def one_by_one(store: WatermarkStore, table: TableName) -> Watermark | str | None:
    try:
        return store.get(table, write_back=False)
    except FloodmarkError as error:
        return error.message


@pytest.mark.parametrize("kind", ["local", "seaweedfs"])
def test_every_table_is_where_it_is_by_itself(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_test_keys(monkeypatch)
    objects = new_lake(kind, request, tmp_path).open()
    # Names whose order is not that of their keys, and another scope between them.
    tables = [named(name) for name in ("a", "a b", "a-b", "a0", "aa", "b", "c", "d", "e", "ü")]
    tables += [named("a", scope) for scope in ("US", "US-PROD", "US_PROD2")]
    for times, table in enumerate(tables):
        commit(objects, table, times % 3 + 1)
    for name in ("a", "a-b", "c"):
        left_behind(objects, named(name))
    reset(objects, named("a0"))
    commit(objects, named("a0"))
    reset(objects, named("aa"))
    objects.delete(lake_layout.primary(named("b")))
    objects.put(lake_layout.primary(named("d")), b"damaged")
    objects.delete(next(iter(objects.list_objects(lake_layout.manifests(named("e"))))).key)
    for key in ("manifests/US_PROD/junk/00000001/00000009.json", "manifests/US_PROD/shop.a/junk"):
        objects.put(key, b"junk")
    unknown = named("never")
    expected = {t: one_by_one(open_store(objects), t) for t in (*tables, unknown)}
    found = read_overview(open_store(objects), [unknown], remote=kind != "local")
    assert [seen.table for seen in found] == sorted(expected)
    for seen in found:
        told = expected[seen.table]
        if isinstance(told, Watermark) and seen.watermark:
            assert seen.watermark.log_state == told.log_state, seen.table
        else:
            assert (seen.problem or seen.watermark) == told, seen.table


class Counting(MemoryObjectStore):
    """Counts listings of manifests, and how many keys they named."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = self.keys = 0
        self.broken = False

    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        if prefix.startswith(lake_layout.MANIFESTS):
            self.listings += 1
            if self.broken and prefix == lake_layout.MANIFESTS:
                raise StorageError("no listing")
            for info in super().list_objects(prefix, after=after):
                self.keys += 1
                yield info
        else:
            yield from super().list_objects(prefix, after=after)


def positions(found: list[Overview]) -> list[object]:
    return [seen.watermark.position.id if seen.watermark else seen.problem for seen in found]


def test_one_listing_serves_many_logs_but_goes_through_none_that_is_long() -> None:
    objects = Counting()
    for number in range(100):
        commit(objects, named(f"t{number:03d}"))
    long = named("t050")
    commit(objects, long, KEYS_A_LISTING)
    objects.listings = objects.keys = 0
    found = read_overview(open_store(objects), (), remote=True)
    assert positions(found) == [10 * (KEYS_A_LISTING + 1 if n == 50 else 1) for n in range(100)]
    assert objects.listings == 2
    assert objects.keys < 110


def test_logs_that_cannot_be_listed_together_are_looked_at_one_by_one() -> None:
    objects = Counting()
    for number in range(3):
        commit(objects, named(f"t{number}"), number + 1)
    objects.broken = True
    assert positions(read_overview(open_store(objects), (), remote=True)) == [10, 20, 30]
