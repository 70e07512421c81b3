"""Positions: values of a table's cursor."""

from datetime import datetime, timedelta

from msgspec import Struct

from floodmark.model.timestamps import moved, plain

Identity = int | str | tuple[int | str, ...]
LARGEST_NUMBER = 2**64 - 1  # of BIGINT UNSIGNED
_LAST_MICROSECOND = 999_999


class KeyScan(Struct, frozen=True, omit_defaults=True):
    """A first load along the primary key: it has read rows up to `bound` with keys up to `key`."""

    key: Identity
    """Last key that was read."""
    bound: "Position"
    """Bound that filters the rows."""
    newest: "Position | None" = None
    """Newest position among the rows that were read."""


class Position(Struct, frozen=True, omit_defaults=True):
    """A value of the cursor: all rows up to here are safe.

    Without an id, a timestamp is after every row that has it. With neither, the position is the
    start of the table. During a key scan, the rows that it has read are safe too; at its end the
    position becomes that of the newest row it read.
    """

    timestamp: datetime | None = None
    """Time, if the cursor has one."""
    id: Identity | None = None
    """Id or key, if the cursor has one."""
    walk: KeyScan | None = None
    """Progress of a first load along the primary key."""

    @property
    def is_start(self) -> bool:
        """Whether this is the start of the table."""
        return self == START

    @property
    def base(self) -> "Position":
        """The position without the key scan that began at it."""
        return Position(self.timestamp, self.id)

    @property
    def opening(self) -> "Position":
        """The first value that is read from here: right before a moment, that moment."""
        moment = self.timestamp
        if moment is None or self.id is not None or moment.microsecond != _LAST_MICROSECOND:
            return self
        return Position(moved(moment, timedelta(microseconds=1)))

    @property
    def as_end(self) -> str:
        """Describe the rows up to here: `before 2025-01-01 00:00:00`, or `up to id 5`."""
        opening = self.opening
        return f"up to {self}" if opening == self else f"before {opening}"

    def compare(self, other: "Position") -> int | None:
        """Return -1, 0 or 1 for before, equal, after; None if only the database can tell.

        Text is ordered by the database's collation, and an id alone does not compare with a
        timestamp alone.
        """
        mine, yours = self.base, other.base
        if mine == yours:
            return _compare_walks(self.walk, other.walk)
        if mine.is_start or yours.is_start:
            return -1 if mine.is_start else 1
        if self.timestamp is None and other.timestamp is None:
            return _compare_ids(self.id, other.id)
        if self.timestamp is None or other.timestamp is None:
            return None
        if self.timestamp != other.timestamp:
            return -1 if self.timestamp < other.timestamp else 1
        if self.id is None or other.id is None:
            return 1 if self.id is None else -1
        return _compare_ids(self.id, other.id)

    def __str__(self) -> str:
        parts = [] if self.timestamp is None else [plain(self.timestamp)]
        if self.id is not None:
            parts.append(f"id {show_id(self.id)}")
        base = ", ".join(parts) or "the start"
        if self.walk is None:
            return base
        return f"{base}, walking to {self.walk.bound} at key {show_id(self.walk.key)}"


START = Position()


def show_id(identity: Identity) -> str:
    """Format an id, or the parts of a composite key."""
    if isinstance(identity, tuple):
        return "(" + ", ".join(str(part) for part in identity) + ")"
    return str(identity)


def _compare_walks(left: KeyScan | None, right: KeyScan | None) -> int | None:
    if left is None or right is None:
        return (left is not None) - (right is not None)
    return _compare_ids(left.key, right.key) if left.bound == right.bound else None


def _compare_ids(left: Identity | None, right: Identity | None) -> int | None:
    lefts = left if isinstance(left, tuple) else (left,)
    rights = right if isinstance(right, tuple) else (right,)
    for mine, yours in zip(lefts, rights, strict=False):
        if mine == yours:
            continue
        if isinstance(mine, int) and isinstance(yours, int):
            return -1 if mine < yours else 1
        return None
    return 0 if len(lefts) == len(rights) else None
