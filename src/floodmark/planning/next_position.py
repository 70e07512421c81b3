"""Compute a table's first position, and its position after a chunk."""

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
    """Return where reading begins: without a position, right before the default start."""
    if kind == "none":
        return START
    moment = default_start.timestamp
    if not position.is_start or kind != "timestamp" or moment is None:
        return position
    return right_before(moment)


def right_before(moment: datetime) -> Position:
    """Return the position before all rows of a time; for the first possible time, the start."""
    return START if moment == FIRST_MOMENT else Position(moment - timedelta(microseconds=1))


def position_after(
    chunk: ChunkPlan, receipts: Sequence[Receipt], *, before: Position, by_key: bool
) -> Position:
    """Return a table's position after a chunk; it was at `before`.

    Windows along the cursor end at a row. Those along the key end anywhere up to the bound, and the
    newest row that was read decides: a row that later gets a time between that and the bound is
    still read. A key scan keeps the newest position as it goes.
    """
    if not by_key:
        return chunk.end
    walk = chunk.end.walk
    bound = walk.bound if walk else chunk.end
    found = [before.walk.newest] if before.walk and before.walk.newest else []
    found += [_comparable(file.last) for receipt in receipts for file in receipt.files]
    if any(receipt.quarantine for receipt in receipts):
        found.append(bound)  # the positions of quarantined rows are not known
    newest = _last(position for position in found if not position.is_start)
    if walk:
        return structs.replace(chunk.end, walk=structs.replace(walk, newest=newest))
    return bound if newest is None or newest.compare(bound) == 1 else newest


def _comparable(position: Position) -> Position:
    """Return the position after all rows of its time if only the database can order its keys."""
    parts = position.id if isinstance(position.id, tuple) else (position.id,)
    return (
        Position(position.timestamp) if any(isinstance(part, str) for part in parts) else position
    )


def _last(positions: Iterable[Position]) -> Position | None:
    return max(positions, key=cmp_to_key(_order), default=None)


def _order(left: Position, right: Position) -> int:
    return left.compare(right) or 0
