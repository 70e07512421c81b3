"""Report rows that are not read: before a table's start, or in the future."""

from floodmark.model.history import RowCount, RowsBefore
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark


def begins(watermark: Watermark | None, start: Position) -> bool:
    """Return whether a run decides which earlier rows are not read.

    It does on the first read, or if it begins earlier than before. Rows before a position that was
    imported from an older system were read by that system.
    """
    if start.is_start or start.walk:
        return False
    if watermark is None or watermark.position.is_start:
        return True
    state = watermark.mysql_state
    if not state.chunk_count:
        return watermark.metadata.imported_from is None
    known = state.before_start
    return known is not None and start.compare(known.up_to) == -1


def judge_before(table: TableName, before: RowsBefore) -> str:
    """Return the warning about rows before the start."""
    return f"{table}: {before} {are(before.rows)} not read"


def how_to_read(table: TableName, before: RowsBefore, *, synced: bool, keyed: bool) -> str:
    """Return how to sync the rows before the start.

    Rows without a key would be duplicated if they were read again without emptying the target.
    """
    again = f"'floodmark watermark reset -t {table}{' --extract-only' if keyed else ''}'"
    if before.by == "default":
        setting = "set 'default_start: all' in the configuration"
        return f"{setting}, then run {again} and sync" if synced else setting
    if before.up_to.timestamp is None:  # an id cursor: only an operator begins it elsewhere
        return f"run {again} and sync"
    begin = f"'floodmark watermark set -t {table} --timestamp 0001-01-01 --force'"
    return f"run {again}, {begin} and sync" if synced and not keyed else f"run {begin} and sync"


def judge_future(table: TableName, column: str | None, future: RowCount) -> str | None:
    """Return the warning about rows in the future; None if there are none."""
    if not future.rows:
        return None
    verb = "has" if future.rows == 1 else "have"
    return (
        f"{table}: {future} {verb} a time in {column} that is in the future, and"
        f" {are(future.rows)} not read until then"
    )


def are(rows: int) -> str:
    """Return the verb for a number of rows."""
    return "is" if rows == 1 else "are"
