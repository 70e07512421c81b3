"""Go on with a table whose watermark is lost, wrong, or to be continued in a later epoch.

Only `WatermarkStore` writes: this decides which state its next commit or update starts from.
"""

from msgspec import structs

from floodmark.errors import CorruptLog, FutureState, StateLost
from floodmark.model import lake_layout
from floodmark.model.formatting import counted
from floodmark.model.log_state import MysqlState
from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.model.timestamps import LAST_MOMENT
from floodmark.model.transitions import after
from floodmark.model.watermark import (
    RedshiftState,
    VerifiedState,
    Watermark,
    empty_watermark,
    not_after,
)
from floodmark.state.watermark_copies import Copies
from floodmark.state.watermark_reader import Reading, WatermarkReader
from floodmark.state.watermark_store import WatermarkStore


def begin_again(store: WatermarkStore, table: TableName) -> None:
    """Start over if the state cannot be read: as a new table, or after a loss in a new epoch.

    State that is only in the future is kept, with its times set to now.
    """
    try:
        reading = store.reader.read(table)
    except FutureState:
        reading = _read_from_future(store, table)
    except (StateLost, CorruptLog):
        reading = _abandon_log(store, table)
    store.start_from(table, reading)


def _abandon_log(store: WatermarkStore, table: TableName) -> Reading:
    """Return an empty state in a new epoch.

    Resets count from 1; minutes since 1970 are far beyond any number of them.
    """
    left = sum(1 for _ in store.log.heads(table))
    if left:
        message = f"{table}: abandoned a broken log of {counted(left, 'manifest')}"
        store.run.report(Notice("warning", message, table=str(table)))
    now = store.now()
    epoch = int(now.timestamp()) // 60
    fresh = structs.replace(
        empty_watermark(table, store.run.session_id, now),
        epoch=epoch,
        mysql_state=MysqlState(counted_from_epoch=epoch),
        redshift_state=_nothing_loaded(epoch),
    )
    primary = store.copies.read(table, lake_layout.primary(table), "primary")
    etag = primary.etag if primary else None
    return Reading(watermark=fresh, etag=etag, source="manifests")


def _read_from_future(store: WatermarkStore, table: TableName) -> Reading:
    copies = Copies(store.objects, lambda: LAST_MOMENT, store.run.report)
    reader = WatermarkReader(store.objects, store.log, copies, lambda: LAST_MOMENT)
    reading = reader.read(table)
    assert reading.watermark is not None
    watermark = not_after(reading.watermark, store.now())
    return structs.replace(reading, watermark=watermark, manifests=(), source="manifests")


def begin_epoch(store: WatermarkStore, table: TableName, epoch: int) -> None:
    """Continue a table in a later epoch, in which no earlier manifest is loaded.

    The next commit opens it; until then nothing changes.
    """
    reading = store.current(table)
    current = reading.watermark or store.run.empty(table)
    watermark = structs.replace(
        current,
        epoch=epoch,
        mysql_state=structs.replace(current.mysql_state, last_sequence=0, last_manifest=None),
        redshift_state=_nothing_loaded(epoch),
        verified_state=VerifiedState(),
    )
    reading = structs.replace(reading, watermark=watermark, source="manifests")
    store.start_from(table, reading)


def _nothing_loaded(epoch: int) -> RedshiftState:
    """Return the load state of an epoch in which nothing is loaded yet."""
    return RedshiftState(loaded_epoch=epoch, eligible_from_epoch=epoch, load_epoch=epoch)


def repair(store: WatermarkStore, table: TableName) -> Watermark:
    """Rewrite the watermark from the last manifest; keep the load state."""
    reading = store.reader.read(table)
    last = store.log.newest(table)
    if last is None:
        return store.update(table)
    current = reading.watermark or store.run.empty(table)
    reading = structs.replace(
        reading,
        watermark=after(current, store.log.read(table, last)),
        source="manifests",
        problem=reading.problem or "the watermark did not agree with the manifests",
    )
    store.start_from(table, reading)
    return store.update(table)
