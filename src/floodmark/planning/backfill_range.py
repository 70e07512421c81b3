"""Determine which positions a backfill reads again."""

from floodmark.errors import UsageError
from floodmark.model.cursor import Cursor
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.model.verification import SyncedRange
from floodmark.planning.reconcile_ranges import CursorRange, ends_of


def backfill_range(
    table: TableName, wanted: CursorRange, cursor: Cursor, position: Position
) -> SyncedRange:
    """Return the positions of a range of cursor values; UsageError if some are not synced yet.

    Without an end, it ends at the table's position. Rows before the table's start may be read.
    """
    start, end = ends_of(wanted, cursor)
    start = start or START
    if end is None or (end.id is None and end.timestamp == position.timestamp):
        end = position  # its time may have rows that are not synced yet
    if end.compare(position) == 1:
        raise UsageError(
            f"{table} is synced up to {position}: the range ends after that, at {wanted.last}",
            hint=f"'floodmark sync -t {table}' reads what is new; or end the backfill earlier",
        )
    if end.compare(start) in (-1, 0):
        raise UsageError(
            f"{table} is synced up to {position}: there is nothing to read again from"
            f" {wanted.first} on",
            hint=f"'floodmark sync -t {table}' reads what is new; or start the backfill earlier",
        )
    return SyncedRange(start, end)
