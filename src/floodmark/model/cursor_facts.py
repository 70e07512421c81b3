"""Facts about a table's cursor that are known without querying the source."""

from datetime import timedelta
from typing import Literal

from msgspec import Struct

from floodmark.model.log_state import Clock
from floodmark.model.manifest import Chunk
from floodmark.model.position import Position


class CursorFacts(Struct, frozen=True, kw_only=True):
    """The kind of a cursor and, for a time cursor, its clock.

    `described` is the time column with its clock, `offset` the clock's offset from UTC.
    `id_problem` is why an integer id cannot be part of a position. `problem` is why the source
    could not be queried.
    """

    kind: Literal["timestamp", "id", "none"] | None = None
    offset: timedelta | None = None
    described: str = ""
    id_problem: str | None = None
    problem: str | None = None


def remembered(
    columns: tuple[str, ...] | None, last: Chunk | None, before: Position | None
) -> CursorFacts:
    """Return the facts that follow from the configuration and the last chunk."""
    if columns == () or (columns is None and last and last.reload):
        return CursorFacts(kind="none")
    if columns == ("id",):
        return CursorFacts(kind="id")
    if columns and len(columns) > 1:
        return _by_time(columns[0], last)
    read = None if last is None or last.reload else last
    time = _time_of(read) if read else None
    if time and columns in (None, (time,)):
        return _by_time(time, last)
    if (read and not time) or (before and before.timestamp is None and before.id):
        return CursorFacts(kind="id")
    return CursorFacts()


def _time_of(chunk: Chunk) -> str | None:
    """Return the time column that a chunk was read by.

    Older versions stored no cursor, only the version column.
    """
    if chunk.cursor is None:
        return chunk.version
    is_time = chunk.cursor[0].type.startswith(("datetime", "timestamp")) if chunk.cursor else False
    return chunk.cursor[0].name if is_time else None


def _by_time(column: str, last: Chunk | None) -> CursorFacts:
    clock = last.clock if last and _time_of(last) == column else None
    return CursorFacts(
        kind="timestamp",
        offset=timedelta(seconds=clock.offset_seconds) if clock else None,
        described=f"{column} ({show_offset(clock)} when it was last read)" if clock else column,
    )


def show_offset(clock: Clock) -> str:
    """Format the time zone of a clock: `zone +08:00`."""
    minutes = abs(clock.offset_seconds) // 60
    sign = "-" if clock.offset_seconds < 0 else "+"
    return f"zone {sign}{minutes // 60:02d}:{minutes % 60:02d}"
