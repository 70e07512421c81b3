"""Rows that no position reaches, because their cursor is NULL or no moment in time."""

from floodmark.errors import FloodmarkError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import NullCursors
from floodmark.model.table import TableName


def judge_unusable(
    table: TableName, cursor: Cursor, rows: int, policy: NullCursors = "skip"
) -> str | None:
    """What to tell about such rows, if there are any; FloodmarkError if the policy is 'error'.

    Nothing says when they changed, so they are never read by position: `skip` reports them with
    each sync, and they are read once their cursor is filled in.
    """
    if not rows:
        return None
    message = f"{table}: {rows} rows have no value in {cursor} and are not read"
    if policy == "error":
        raise FloodmarkError(message, hint="fill in their cursor, or set 'null_cursors: skip'")
    return message


def judge_waiting(table: TableName, cursor: Cursor, rows: int) -> str | None:
    """What to report about rows that wait for a later one, if there are any."""
    if not rows:
        return None
    waiting = "1 row waits" if rows == 1 else f"{rows} rows wait"
    return (
        f"{table}: {waiting} for a later row to be read with: {cursor.timestamp} is no moment in"
        " time there, such as 2025-06-00"
    )
