"""List the state of all tables with few requests."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from msgspec import Struct

from floodmark.errors import FloodmarkError
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state.lease import LeaseDocument, read_lease
from floodmark.state.watermark_store import WatermarkStore

KEYS_A_LISTING = 1000
"""The number of keys in one page of an S3 listing."""

_THREADS = 16


class Overview(Struct, frozen=True, kw_only=True):
    """A table's watermark and lease, or the `problem` why they cannot be read."""

    table: TableName
    watermark: Watermark | None = None
    lease: LeaseDocument | None = None
    problem: str | None = None


def read_overview(
    store: WatermarkStore,
    known: Iterable[TableName],
    *,
    remote: bool,
    write_back: bool = True,
) -> list[Overview]:
    """Read the state of every table that is configured or in the lake.

    A saved watermark is current if its table's log has nothing after it; the others go through
    recovery, and are saved unless `write_back` is off. For a `remote` lake, send requests in
    parallel and list many logs at once.
    """
    objects = store.objects
    keys = (info.key for info in objects.list_objects(lake_layout.PRIMARIES))
    saved = [table for key in keys if (table := lake_layout.table_of_primary(key))]
    touched = {*saved, *store.log.tables()}
    tables = sorted({*touched, *known})

    def look(table: TableName) -> Overview:
        try:
            lease = read_lease(objects, table)
            if not write_back and lease is None and table not in touched:
                return Overview(table=table)  # to look for an older system's takes many requests
            watermark = current.get(table) or store.get(table, write_back=write_back)
            if watermark is not None:
                watermark.refuse_moved()
        except FloodmarkError as error:
            return Overview(table=table, problem=error.message)
        return Overview(table=table, watermark=watermark, lease=lease)

    with _parallel_map(remote and len(tables) > 1) as each:
        checkpoints = zip(saved, each(partial(_saved, store), saved), strict=True)
        current = {table: watermark for table, watermark in checkpoints if watermark}
        places = {table: watermark.head for table, watermark in current.items()}
        shares = _shares(places, KEYS_A_LISTING if remote else 0)
        for outrun in each(partial(_outrun, store), shares):
            for table in outrun:
                del current[table]
        gone = {t for t, watermark in current.items() if watermark.moved_to} - {*known}
        return list(each(look, [table for table in tables if table not in gone]))


def _saved(store: WatermarkStore, table: TableName) -> Watermark | None:
    """Return a table's watermark as saved; None if it cannot be read."""
    try:
        primary = store.copies.read(table, lake_layout.primary(table), "primary")
    except FloodmarkError:
        return None
    return primary.watermark if primary else None


def _shares(
    places: Mapping[TableName, ManifestId], most_keys: int
) -> Iterator[dict[TableName, ManifestId]]:
    """Group tables with adjacent logs so that one listing covers each group.

    The listing begins at the first table's last manifest, and returns all manifests of the others.
    """
    share: dict[TableName, ManifestId] = {}
    listed = 0
    for table in sorted(places, key=lake_layout.manifests):
        place = places[table]
        # The number of manifests in earlier epochs is unknown.
        listed += place.sequence + 1 if place.epoch == 1 else most_keys + 1
        if share and listed > most_keys:
            yield share
            share, listed = {}, 0
        share[table] = place
    if share:
        yield share


def _outrun(store: WatermarkStore, places: Mapping[TableName, ManifestId]) -> Iterable[TableName]:
    """Return the tables whose logs continue after their places; all if listing fails."""
    try:
        return store.log.outrun(places)
    except FloodmarkError:
        return places


@contextmanager
def _parallel_map(parallel: bool) -> Iterator[Callable[..., Iterator[Any]]]:
    """Provide a `map` that runs in threads if `parallel`."""
    if not parallel:
        yield map
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        yield pool.map
