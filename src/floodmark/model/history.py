"""Rows that are not read: before the position that a table began at, or after the clock."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from floodmark.model.position import Position

StartedBy = Literal["default", "system watermark", "operator"]


class RowCount(Struct, frozen=True):
    """How many rows there are; at least so many, if not all could be counted."""

    rows: int = 0
    exact: bool = True

    def __bool__(self) -> bool:
        return self.rows > 0 or not self.exact

    def __str__(self) -> str:
        if not self:
            return "no rows"
        if not self.rows:
            return "an unknown number of rows"
        word = "row" if self.rows == 1 else "rows"
        return f"{'' if self.exact else 'at least '}{self.rows:,} {word}"


class RowsBefore(Struct, frozen=True, kw_only=True):
    """Rows before the position that a table began at, which were not read."""

    up_to: Position
    """The position; rows up to it were not read."""
    rows: int
    """How many there were."""
    exact: bool = True
    """Whether all of them were counted; if not, there were at least so many."""
    by: StartedBy = "default"
    """What made the table begin there: `default_start`, the system watermark, or an operator."""
    counted_at: datetime
    """When they were counted."""

    @property
    def count(self) -> RowCount:
        """How many there were, and whether that is all of them."""
        return RowCount(self.rows, self.exact)

    def __str__(self) -> str:
        return f"{self.count} {self.up_to.as_end}"
