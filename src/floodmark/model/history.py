"""Rows that are not read: before a table's start position, or in the future."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from floodmark.model.position import Position

StartedBy = Literal["default", "system watermark", "operator"]


class RowCount(Struct, frozen=True):
    """A number of rows; a lower bound if it is not `exact`."""

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
    """Rows before a table's start position, which were not read."""

    up_to: Position
    """The start position; rows up to it were not read."""
    rows: int
    """Number of these rows."""
    exact: bool = True
    """Whether all of them were counted; if not, `rows` is a lower bound."""
    by: StartedBy = "default"
    """What set the start position: `default_start`, the system watermark, or an operator."""
    counted_at: datetime
    """When they were counted."""

    @property
    def count(self) -> RowCount:
        """The number of rows, and whether it is exact."""
        return RowCount(self.rows, self.exact)

    def __str__(self) -> str:
        return f"{self.count} {self.up_to.as_end}"
