"""Determine which positions were synced, and how far both sides agree."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cmp_to_key
from itertools import pairwise

from floodmark.model.cursor import Cursor, key_kind
from floodmark.model.extraction import Window
from floodmark.model.fingerprint import FIRST_NUMBER, LAST_NUMBER, moment_number
from floodmark.model.manifest import Chunk
from floodmark.model.position import Identity, Position
from floodmark.model.schema import SourceTable
from floodmark.model.verification import Comparison, Extent, NotCompared, SyncedRange
from floodmark.planning.next_position import right_before


def synced_ranges(
    chunks: Iterable[Chunk], verified: Position, loaded: Position
) -> list[SyncedRange]:
    """Return the ranges between two positions that chunks cover, in order and merged.

    The gaps between ranges were skipped by an operator; a backfill covers what it read. An
    unfinished key scan covers nothing: its rows are anywhere between its start and its bound.
    """
    ranges: list[SyncedRange] = []
    found = filter(None, map(_range_of, chunks))
    for new in sorted(found, key=cmp_to_key(_in_order)):
        start = verified if new.start.compare(verified) == -1 else new.start
        end = loaded if new.end.compare(loaded) == 1 else new.end
        if end.compare(start) in (-1, 0):
            continue
        last = ranges[-1] if ranges else None
        if last and start.compare(last.end) in (-1, 0):
            if end.compare(last.end) in (1, None):
                ranges[-1] = SyncedRange(last.start, end)
        else:
            ranges.append(SyncedRange(start, end))
    return ranges


def _range_of(chunk: Chunk) -> SyncedRange | None:
    if chunk.reconciled and (part := chunk.reconciled.backfill):
        return SyncedRange(part.start, part.reached)
    if not chunk.moves_position or chunk.reload or chunk.end.walk:
        return None
    return SyncedRange(chunk.start.base, chunk.end)


def gaps_between(ranges: Sequence[SyncedRange]) -> list[NotCompared]:
    """Return the gaps around and between the synced ranges, not yet counted."""
    if not ranges:
        return [NotCompared(kind="not_loaded", rows=0)]
    first, last = ranges[0], ranges[-1]
    gaps = [NotCompared(kind="not_loaded", rows=0, start=last.end)]
    for before, after in pairwise(ranges):
        gaps.append(NotCompared(kind="skipped", rows=0, start=before.end, end=after.start))
    if not first.start.is_start:
        gaps.append(NotCompared(kind="before_start", rows=0, end=first.start))
    return gaps[::-1]


def agreed_position(
    start: Position, windows: Sequence[Window], comparisons: Sequence[Comparison]
) -> Position:
    """Return the end of the last window before the first that differs; `start` if there is none."""
    for window, comparison in zip(windows, comparisons, strict=True):
        if not comparison.agrees:
            return start
        start = window.end
    return start


def compared_cursor(table: SourceTable, cursor: Cursor) -> Cursor:
    """Return the part of a cursor that has the same order in source and target.

    Text is ordered by the source's collation; so windows end between times, and include all rows
    that tie.
    """
    if all(key_kind(table.column(name)) == "integer" for name in cursor.key):
        return cursor
    return Cursor(kind=cursor.kind, timestamp=cursor.timestamp, unique=False)


def compared_position(table: SourceTable, cursor: Cursor, position: Position) -> Position:
    """Return a position for `compared_cursor`: after all rows of a time, or before them.

    If the rows of a time cannot be ordered, all of them are compared again.
    """
    if compared_cursor(table, cursor) == cursor or position.id is None:
        return position
    assert position.timestamp is not None
    return right_before(position.timestamp)


def can_split_by_key(table: SourceTable) -> bool:
    """Return whether ranges of the primary key contain the same rows in source and target."""
    key = [table.column(name) for name in table.primary_key]
    return table.has_ordered_key and all(key_kind(column) == "integer" for column in key)


def target_extents(table: SourceTable, cursor: Cursor, window: Window) -> tuple[Extent, ...]:
    """Return the extents that contain a window's rows in the target.

    If only the time has the same order on both sides, they may contain more rows of its first and
    last time.
    """
    extents = []
    start, end = window.start, window.end
    if start.walk or end.walk:
        extents.append(
            Extent(
                columns=table.primary_key,
                start=_numbers(start.walk.key) if start.walk else (),
                end=_numbers(end.walk.key) if end.walk else (),
            )
        )
    compared = compared_cursor(table, cursor)
    if compared.columns:
        bound = end.walk.bound if end.walk else end
        first = compared_position(table, cursor, start.base)
        extents.append(
            Extent(
                columns=compared.columns,
                start=_values(compared, first),
                end=_values(compared, bound),
            )
        )
    return tuple(extents)


def synced_versions(ranges: Sequence[SyncedRange]) -> tuple[int, int]:
    """Return the numbers of the first and last time that a synced row can have."""
    starts = [synced.start.base.timestamp for synced in ranges]
    ends = [None if synced.end.walk else synced.end.timestamp for synced in ranges]
    return (
        min((moment_number(start) if start else FIRST_NUMBER for start in starts), default=0),
        max((moment_number(end) if end else LAST_NUMBER for end in ends), default=0),
    )


def contains_versions(ranges: Sequence[SyncedRange], low: int, high: int) -> bool:
    """Whether every row with a time in `[low, high]` is in one of the ranges, whatever its key."""
    return any(
        (not start.timestamp or moment_number(start.timestamp) < low)
        and not end.walk
        and end.timestamp is not None
        and high < moment_number(end.timestamp)
        for start, end in ((synced.start.base, synced.end) for synced in ranges)
    )


def _values(compared: Cursor, position: Position) -> tuple[datetime | int, ...]:
    moment = () if position.timestamp is None else (position.timestamp,)
    return moment if position.id is None or not compared.key else (*moment, *_numbers(position.id))


def _numbers(identity: Identity) -> tuple[int, ...]:
    return tuple(int(part) for part in (identity if isinstance(identity, tuple) else (identity,)))


def _in_order(left: SyncedRange, right: SyncedRange) -> int:
    return left.start.compare(right.start) or 0
