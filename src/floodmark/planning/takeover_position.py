"""Determine where syncs go on in a table that another tool has filled."""

from datetime import datetime, timedelta

from floodmark.errors import FloodmarkError
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.timestamps import moved, plain
from floodmark.planning.next_position import right_before

_AHEAD = timedelta(minutes=1)


def takeover_position(
    table: TableName,
    greatest: datetime | int,
    margin: timedelta,
    *,
    start: Position,
    bound: Position,
    newest: datetime | int,
) -> Position:
    """Return the position that the greatest cursor value in the target stands for.

    A time is stepped back by the margin. What is beyond the bound is read again: transactions in
    flight may still add rows there. FloodmarkError if the source cannot have such a value yet
    (`newest` is its clock, or the greatest id so far), or if it is before the table's start.
    """
    if isinstance(greatest, datetime):
        assert isinstance(newest, datetime)
        if greatest > newest + _AHEAD:
            raise FloodmarkError(
                f"{table}: the target has rows up to {plain(greatest)}, and the clock of the"
                f" source shows {plain(newest)}",
                hint="check that both sides use the same time zone; remove rows from the future",
            )
        position = right_before(moved(greatest, -margin))
    else:
        assert isinstance(newest, int)
        if greatest > newest:
            raise FloodmarkError(
                f"{table}: the target has ids up to {greatest}, and the source up to {newest}",
                hint="check that this is the right server and table",
            )
        position = Position(id=greatest)
    if position.compare(bound) == 1:
        position = bound
    if position.compare(start) in (-1, 0):
        raise FloodmarkError(
            f"{table}: the newest row in the target is before the table's start ({start.opening})",
            hint="set 'default_start' to a time before it",
        )
    return position
