"""What to report about rows that are not read: before a table's start, or after the clock."""

from floodmark.model.history import RowCount, RowsBefore
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark


def begins(watermark: Watermark | None, start: Position) -> bool:
    """Whether a plan decides which rows are left out: at the first read, or if it begins earlier.

    What lies before a position that came from an older system was read by that system.
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
    """What to report about rows before the start."""
    return f"{table}: {before} {are(before.rows)} not read"


def how_to_read(table: TableName, before: RowsBefore, *, synced: bool, keyed: bool) -> str:
    """How an operator gets the rows before the start read.

    Rows without a key would be there twice if they were read again without emptying the target.
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
    """What to report about rows whose time is yet to come, if there are any."""
    if not future.rows:
        return None
    verb = "has" if future.rows == 1 else "have"
    return (
        f"{table}: {future} {verb} a time in {column} that is still in the future, and"
        f" {are(future.rows)} not read until then"
    )


def are(rows: int) -> str:
    """The verb for so many rows."""
    return "is" if rows == 1 else "are"
