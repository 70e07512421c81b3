"""Determine which positions a reconciliation compares."""

from collections.abc import Sequence

from msgspec import Struct

from floodmark.errors import UsageError
from floodmark.model.cursor import Cursor
from floodmark.model.position import Position
from floodmark.model.timestamps import parse_timestamp
from floodmark.model.verification import SyncedRange
from floodmark.planning.next_position import right_before


class CursorRange(Struct, frozen=True, kw_only=True):
    """The cursor values to compare, inclusive, as text; None leaves a side open."""

    first: str | None = None
    last: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether everything is compared."""
        return self.first is None and self.last is None


def clipped(
    ranges: Sequence[SyncedRange], wanted: CursorRange, cursor: Cursor
) -> list[SyncedRange]:
    """Return the parts of synced ranges within the wanted values of the cursor."""
    start, end = ends_of(wanted, cursor)
    found = []
    for synced in ranges:
        first, last = synced.start, synced.end
        if start is not None and first.compare(start) == -1:
            first = start
        if end is not None and last.compare(end) == 1:
            last = end
        if last.compare(first) == 1:
            found.append(SyncedRange(first, last))
    return found


def ends_of(wanted: CursorRange, cursor: Cursor) -> tuple[Position | None, Position | None]:
    """Return the positions right before the first value and at the last; None if a side is open."""
    start, end = _start(wanted.first, cursor), _end(wanted.last, cursor)
    if start is not None and end is not None and end.compare(start) in (-1, 0):
        raise UsageError(f"the range from {wanted.first!r} to {wanted.last!r} is empty")
    return start, end


def _start(text: str | None, cursor: Cursor) -> Position | None:
    if text is None:
        return None
    if cursor.kind == "timestamp":
        return right_before(parse_timestamp(text))
    return Position(id=_number(text) - 1)


def _end(text: str | None, cursor: Cursor) -> Position | None:
    if text is None:
        return None
    if cursor.kind == "timestamp":
        return Position(parse_timestamp(text))
    return Position(id=_number(text))


def _number(text: str) -> int:
    if not text.lstrip("-").isdecimal():
        raise UsageError(f"{text!r} is not an id", hint="the cursor of the table is an id")
    return int(text)
