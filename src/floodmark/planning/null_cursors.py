"""Report rows that are not read because their cursor is NULL or not a valid date."""

from floodmark.errors import FloodmarkError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import NullCursors
from floodmark.model.table import TableName
from floodmark.planning.history import are


def judge_unusable(
    table: TableName, cursor: Cursor, rows: int, policy: NullCursors = "skip"
) -> str | None:
    """Return the warning about such rows, if any; FloodmarkError if the policy is 'error'.

    Their changes cannot be ordered, so they are never read by position: `skip` reports them in
    each sync, and they are read once their cursor has a value.
    """
    if not rows:
        return None
    some = "1 row has" if rows == 1 else f"{rows:,} rows have"
    message = f"{table}: {some} no value in {cursor} and {are(rows)} not read"
    if policy == "error":
        raise FloodmarkError(message, hint="fill in their cursor, or set 'null_cursors: skip'")
    return message


def judge_waiting(table: TableName, cursor: Cursor, rows: int) -> str | None:
    """Return the warning about rows that are read only with a later one; None if there are none."""
    if not rows:
        return None
    waiting = "1 row waits" if rows == 1 else f"{rows:,} rows wait"
    return (
        f"{table}: {waiting} for a later row to be read with: {cursor.timestamp} is not a valid"
        " date there, such as 2025-06-00"
    )
