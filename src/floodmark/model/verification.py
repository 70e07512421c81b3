"""What is compared between source and target, and what was found."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from floodmark.model.extraction import Window
from floodmark.model.history import RowCount
from floodmark.model.position import START, Position

DifferenceKind = Literal["changed", "missing", "extra", "duplicate", "stale"]


class Extent(Struct, frozen=True, kw_only=True):
    """Rows whose values in these columns, in their order, lie in `(start, end]`.

    Fewer values than columns stand behind all rows that begin so; no values leave a side open.
    """

    columns: tuple[str, ...]
    start: tuple[datetime | int, ...] = ()
    end: tuple[datetime | int, ...] = ()


class SyncedRange(Struct, frozen=True):
    """Positions `(start, end]` whose rows were synced."""

    start: Position
    end: Position


class WindowPair(Struct, frozen=True):
    """A window of the source, and what holds the same rows in the target: all these extents."""

    window: Window
    extents: tuple[Extent, ...] = ()


class ValueDifference(Struct, frozen=True):
    """A value that source and target do not share; None is NULL."""

    column: str
    source: str | None
    target: str | None


class RowDifference(Struct, frozen=True, kw_only=True):
    """A row that source and target do not share.

    changed     other values in the target
    missing     in the source only
    extra       in the target only: most likely deleted in the source
    duplicate   in the target more often than in the source
    stale       in the target in an older version, though a newer one was synced

    A table without a key shows the whole row for its key, and knows no changes.
    """

    kind: DifferenceKind
    key: dict[str, str | None]
    values: tuple[ValueDifference, ...] = ()


class Checksum(Struct, frozen=True):
    """Rows, and two sums over hashes of them: the same in whatever order the rows come."""

    rows: int
    first: int
    second: int


class Comparison(Struct, frozen=True, kw_only=True):
    """What a task found in its window.

    `differences` counts rows by kind, `shown` are some of them. `moved` are rows that the source
    has changed since they were loaded: they are to come, and no difference. `quarantined` are rows
    that the target cannot hold. `undated` rows have a zero or partial date for their cursor, by
    which no row of the target is found, and are not compared. `remarks` are on how it was read.
    """

    part: int
    source: Checksum
    target: Checksum
    differences: dict[DifferenceKind, int] = {}
    shown: tuple[RowDifference, ...] = ()
    moved: int = 0
    quarantined: int = 0
    undated: int = 0
    seconds: float = 0.0
    remarks: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether nothing is different."""
        return not self.differences


class NotCompared(Struct, frozen=True, kw_only=True):
    """Rows of the source that a comparison left out.

    before_start   before the first position that was read
    skipped        between positions that were read: an operator moved the position across them
    not_loaded     behind what is loaded: new rows, or to be read again after `set` or `reset`
    no_cursor      without a value of the cursor, so that no position reaches them
    quarantined    set aside, because the target cannot hold them or for their zero dates
    """

    kind: Literal["before_start", "skipped", "not_loaded", "no_cursor", "quarantined"]
    rows: int
    exact: bool = True
    start: Position = START
    end: Position | None = None

    def __str__(self) -> str:
        rows = RowCount(self.rows, self.exact)
        match self.kind:
            case "before_start" if self.end is not None:
                return f"{rows} {self.end.as_end}"
            case "skipped":
                return f"{rows} skipped (between {self.start} and {self.end})"
            case "no_cursor":
                return f"{rows} without a cursor value"
            case "quarantined":
                return f"{rows} in quarantine"
        return f"{rows} not loaded" + ("" if self.start.is_start else f" (behind {self.start})")


class VerificationResult(Struct, frozen=True, kw_only=True):
    """What a comparison found.

    `differences` counts rows by kind, `shown` are the first of them. `moved` are rows that the
    source has changed since they were loaded, `quarantined` those that the target cannot hold,
    `undated` those that were not compared, since their cursor is a zero or partial date.
    `not_compared` is what else was left out. `position` is where the table is verified to.
    """

    rows: int = 0
    windows: int = 0
    moved: int = 0
    quarantined: int = 0
    undated: int = 0
    position: Position = START
    differences: dict[DifferenceKind, int] = {}
    shown: tuple[RowDifference, ...] = ()
    remarks: tuple[str, ...] = ()
    not_compared: tuple[NotCompared, ...] = ()
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """What differs, in one line."""
        words = {
            "changed": "{:,} with other values in the target",
            "missing": "{:,} missing in the target",
            "extra": "{:,} in the target only, most likely deleted in the source",
            "duplicate": "{:,} too often in the target",
            "stale": "{:,} in the target in an older version than was synced",
        }
        counts = self.differences
        found = [text.format(counts[kind]) for kind, text in words.items() if kind in counts]
        return "source and target differ in rows: " + "; ".join(found)
