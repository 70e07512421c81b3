"""Where all tables stand, found in few requests."""

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
"""As many keys as S3 names in one answer."""

_AT_ONCE = 16


class Overview(Struct, frozen=True, kw_only=True):
    """Where a table stands and who works on it, or the `problem` that keeps us from knowing."""

    table: TableName
    watermark: Watermark | None = None
    lease: LeaseDocument | None = None
    problem: str | None = None


def read_overview(
    store: WatermarkStore, known: Iterable[TableName], *, remote: bool
) -> list[Overview]:
    """Look at every table that is known or has anything in the lake.

    A saved watermark stands if its table's log has nothing behind it; the others are read with all
    care. A `remote` lake is asked many things at once, and for many logs by one listing.
    """
    objects = store.objects
    keys = (info.key for info in objects.list_objects(lake_layout.PRIMARIES))
    saved = [table for key in keys if (table := lake_layout.table_of_primary(key))]
    tables = sorted({*saved, *store.log.tables(), *known})

    def look(table: TableName) -> Overview:
        try:
            lease = read_lease(objects, table)
            watermark = standing.get(table) or store.get(table)
            if watermark is not None:
                watermark.refuse_moved()
        except FloodmarkError as error:
            return Overview(table=table, problem=error.message)
        return Overview(table=table, watermark=watermark, lease=lease)

    with _many_at_once(remote and len(tables) > 1) as each:
        checkpoints = zip(saved, each(partial(_saved, store), saved), strict=True)
        standing = {table: watermark for table, watermark in checkpoints if watermark}
        places = {table: watermark.head for table, watermark in standing.items()}
        shares = _shares(places, KEYS_A_LISTING if remote else 0)
        for outrun in each(partial(_outrun, store), shares):
            for table in outrun:
                del standing[table]
        gone = {t for t, watermark in standing.items() if watermark.moved_to} - {*known}
        return list(each(look, [table for table in tables if table not in gone]))


def _saved(store: WatermarkStore, table: TableName) -> Watermark | None:
    """A table's watermark as it was saved; None if it cannot be read."""
    try:
        primary = store.copies.read(table, lake_layout.primary(table), "primary")
    except FloodmarkError:
        return None
    return primary.watermark if primary else None


def _shares(
    places: Mapping[TableName, ManifestId], most_keys: int
) -> Iterator[dict[TableName, ManifestId]]:
    """Tables whose logs lie so close to each other that one listing may go through them.

    It begins at the first one's place, and then meets every manifest of the others.
    """
    share: dict[TableName, ManifestId] = {}
    met = 0
    for table in sorted(places, key=lake_layout.manifests):
        place = places[table]
        # How many manifests earlier epochs have is not known.
        met += place.sequence + 1 if place.epoch == 1 else most_keys + 1
        if share and met > most_keys:
            yield share
            share, met = {}, 0
        share[table] = place
    if share:
        yield share


def _outrun(store: WatermarkStore, places: Mapping[TableName, ManifestId]) -> Iterable[TableName]:
    """The tables whose logs go on behind their places; all, if these cannot be listed."""
    try:
        return store.log.outrun(places)
    except FloodmarkError:
        return places


@contextmanager
def _many_at_once(wanted: bool) -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map`, which does many things at once if that is wanted."""
    if not wanted:
        yield map
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        yield pool.map
