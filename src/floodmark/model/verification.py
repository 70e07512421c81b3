"""Comparisons of source and target, and their results."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from floodmark.model.extraction import Window
from floodmark.model.history import RowCount
from floodmark.model.position import START, Position

DifferenceKind = Literal["changed", "missing", "extra", "duplicate", "stale"]


class Extent(Struct, frozen=True, kw_only=True):
    """Rows whose values in these columns, in order, are in `(start, end]`.

    A prefix of values is after all rows with that prefix; no values leave a side open.
    """

    columns: tuple[str, ...]
    start: tuple[datetime | int, ...] = ()
    end: tuple[datetime | int, ...] = ()


class SyncedRange(Struct, frozen=True):
    """Positions `(start, end]` whose rows were synced."""

    start: Position
    end: Position


class WindowPair(Struct, frozen=True):
    """A window of the source, and the extents that together hold the same rows in the target."""

    window: Window
    extents: tuple[Extent, ...] = ()


class ValueDifference(Struct, frozen=True):
    """A value that differs between source and target; None is NULL."""

    column: str
    source: str | None
    target: str | None


class RowDifference(Struct, frozen=True, kw_only=True):
    """A row that differs between source and target.

    changed     different values in the target
    missing     in the source only
    extra       in the target only: most likely deleted in the source
    duplicate   more often in the target than in the source
    stale       an older version in the target, although a newer one was synced

    Without a primary key, `key` is the whole row, and no row counts as changed.
    """

    kind: DifferenceKind
    key: dict[str, str | None]
    values: tuple[ValueDifference, ...] = ()


class DifferingKey(Struct, frozen=True):
    """The key of a row that differs, with values as text; None is NULL.

    `version` is the newest version that the target holds of an `extra` row.
    """

    kind: DifferenceKind
    key: dict[str, str | None]
    version: str | None = None


class Checksum(Struct, frozen=True):
    """The number of rows and two sums of their hashes, independent of row order."""

    rows: int
    first: int
    second: int

    def __add__(self, other: "Checksum") -> "Checksum":
        return Checksum(
            self.rows + other.rows, self.first + other.first, self.second + other.second
        )


NO_ROWS = Checksum(0, 0, 0)


class Comparison(Struct, frozen=True, kw_only=True):
    """The result of comparing one window.

    `differences` counts rows by kind, `shown` are some of them, `keys` the keys of all. `moved` are
    rows that changed in the source since they were loaded: they are not differences. `quarantined`
    are rows that the target cannot represent. `undated` rows have a zero or partial date in the
    cursor, so they cannot be found in the target and are not compared. `remarks` are about how it
    was read; with `by_checksum` it was not, as the checksums of both databases are equal.
    """

    part: int
    source: Checksum
    target: Checksum
    differences: dict[DifferenceKind, int] = {}
    shown: tuple[RowDifference, ...] = ()
    keys: tuple[DifferingKey, ...] = ()
    moved: int = 0
    quarantined: int = 0
    undated: int = 0
    seconds: float = 0.0
    remarks: tuple[str, ...] = ()
    by_checksum: bool = False

    @property
    def agrees(self) -> bool:
        """Whether there are no differences."""
        return not self.differences


class NotCompared(Struct, frozen=True, kw_only=True):
    """Rows of the source, and of the target if they are `outside`, that were not compared.

    before_start   before the first position that was read
    skipped        between positions that were read: an operator moved the position past them
    not_loaded     after the loaded position: new rows, or to be read again after `set` or `reset`
    no_cursor      without a cursor value, so that no position includes them
    quarantined    in quarantine: the target cannot represent them, or they have zero dates
    outside        in the target, but not within what was synced, or without a cursor value
    """

    kind: Literal["before_start", "skipped", "not_loaded", "no_cursor", "quarantined", "outside"]
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
            case "outside":
                return f"{rows} of the target outside of what was synced"
        return f"{rows} not loaded" + ("" if self.start.is_start else f" (after {self.start})")


class VerificationResult(Struct, frozen=True, kw_only=True):
    """The result of a verification.

    `differences` counts rows by kind, `shown` are the first of them, `keys` the keys of all (none
    for a table without a primary key). `moved` are rows that changed in the source since they were
    loaded, `quarantined` those that the target cannot represent, `undated` those that were not
    compared because their cursor is a zero or partial date. `not_compared` are other rows that were
    left out. The table is verified up to `position`. The checksums of `checksum_windows` are equal
    in both databases, so that only their `read_columns` were read.
    """

    rows: int = 0
    windows: int = 0
    checksum_windows: int = 0
    read_columns: tuple[str, ...] = ()
    moved: int = 0
    quarantined: int = 0
    undated: int = 0
    position: Position = START
    differences: dict[DifferenceKind, int] = {}
    shown: tuple[RowDifference, ...] = ()
    keys: tuple[DifferingKey, ...] = ()
    remarks: tuple[str, ...] = ()
    not_compared: tuple[NotCompared, ...] = ()
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """The differences in one line."""
        texts = {
            "changed": "{:,} with different values in the target",
            "missing": "{:,} missing in the target",
            "extra": "{:,} in the target only, most likely deleted in the source",
            "duplicate": "{:,} duplicated in the target",
            "stale": "{:,} older in the target than the synced version",
        }
        counts = self.differences
        parts = [text.format(counts[kind]) for kind, text in texts.items() if kind in counts]
        return "source and target differ in rows: " + "; ".join(parts)
