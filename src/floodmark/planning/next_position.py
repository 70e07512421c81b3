"""Where a table begins, and how far it has come with a chunk: as far as the rows written."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cmp_to_key
from typing import Literal

from msgspec import structs

from floodmark.model.extraction import ChunkPlan, Receipt
from floodmark.model.position import START, Position
from floodmark.model.timestamps import FIRST_MOMENT


def first_position(
    kind: Literal["timestamp", "id", "none"], position: Position, default_start: Position
) -> Position:
    """Where reading begins: without a position, right before the rows of the default start."""
    if kind == "none":
        return START
    moment = default_start.timestamp
    if not position.is_start or kind != "timestamp" or moment is None:
        return position
    return right_before(moment)


def right_before(moment: datetime) -> Position:
    """The position before all rows of a moment; before the calendar's first one, the start."""
    return START if moment == FIRST_MOMENT else Position(moment - timedelta(microseconds=1))


def position_after(
    chunk: ChunkPlan, receipts: Sequence[Receipt], *, before: Position, by_key: bool
) -> Position:
    """The position that a chunk leaves its table at, which stood at `before`.

    Windows along the cursor end at a row. Those along the key end anywhere up to the bound, and the
    newest row of them all counts: what gets an older time than the bound's, but a newer one than
    any row had, is still seen. A walk remembers it on its way.
    """
    if not by_key:
        return chunk.end
    walk = chunk.end.walk
    bound = walk.bound if walk else chunk.end
    found = [before.walk.newest] if before.walk and before.walk.newest else []
    found += [_comparable(file.last) for receipt in receipts for file in receipt.files]
    if any(receipt.quarantine for receipt in receipts):
        found.append(bound)  # rows set aside say nothing of their positions
    newest = _last(position for position in found if not position.is_start)
    if walk:
        return structs.replace(chunk.end, walk=structs.replace(walk, newest=newest))
    return bound if newest is None or newest.compare(bound) == 1 else newest


def _comparable(position: Position) -> Position:
    """A position behind the whole moment, if only the database can tell the order of its keys."""
    parts = position.id if isinstance(position.id, tuple) else (position.id,)
    return (
        Position(position.timestamp) if any(isinstance(part, str) for part in parts) else position
    )


def _last(positions: Iterable[Position]) -> Position | None:
    return max(positions, key=cmp_to_key(_order), default=None)


def _order(left: Position, right: Position) -> int:
    return left.compare(right) or 0
