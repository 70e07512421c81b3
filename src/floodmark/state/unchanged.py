"""Read a table's state without its lease, and record that it has nothing new."""

from datetime import datetime

from msgspec import Struct

from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state import lease
from floodmark.state.lease import LeaseDocument
from floodmark.state.watermark_reader import Reading
from floodmark.state.watermark_store import WatermarkStore


class Look(Struct, frozen=True, kw_only=True):
    """A table's state, read without its lease, which was free right before."""

    watermark: Watermark
    lease: LeaseDocument
    etag: str
    reading: Reading


def look_at(store: WatermarkStore, table: TableName) -> Look | None:
    """Read a table's state without taking its lease.

    None if another run has the lease, a stage fails, or the watermark is not up to date.
    """
    free = lease.read_free_lease(store.objects, table, store.now())
    reading = store.reader.read_settled(table) if free else None
    if free is None or reading is None or reading.watermark is None:
        return None
    return Look(watermark=reading.watermark, lease=free[0], etag=free[1], reading=reading)


def record_unchanged(
    store: WatermarkStore,
    table: TableName,
    look: Look,
    *,
    fresh: datetime | None,
    loaded: bool,
    warnings: tuple[str, ...],
    every_seconds: float | None,
) -> bool:
    """Record that a table has nothing new; False if its state may have changed since `look`."""
    store.check_conditional_writes()
    recorded = lease.record_unchanged(
        store.objects,
        table,
        (look.lease, look.etag),
        session_id=store.run.session_id,
        owner=store.run.author,
        now=store.now(),
        fresh=fresh,
        loaded=loaded,
        warnings=warnings,
        every_seconds=every_seconds,
    )
    if recorded:
        store.start_from(table, look.reading)
    return recorded
