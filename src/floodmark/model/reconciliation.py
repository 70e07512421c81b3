"""Differences between source and target that a reconciliation finds, and where it continues."""

from datetime import datetime

from msgspec import Struct

Key = tuple[int | str, ...]
"""The values of a primary key, in its order, as in positions and `keys_predicate`.

Integers are int; everything else is text as MySQL prints it, binary values `0x` and hexadecimal.
"""

Version = datetime | int | str | None
"""The version of a row: the cursor's time in UTC; None if rows have no version."""


class Place(Struct, frozen=True, omit_defaults=True):
    """Where the next run continues: after all keys whose leading number is at most `after`.

    The leading number is the first column of the key if that is an integer, otherwise a hash of it
    (`hashed`). A place counts only for the same key columns.
    """

    key: tuple[str, ...]
    """Columns of the primary key."""
    after: int
    """Leading number up to which keys were compared."""
    hashed: bool = False
    """Whether the leading number is a hash."""


class FoundKey(Struct, frozen=True):
    """A key in the target, and the version that the target holds (the newest, if several)."""

    key: Key
    version: Version


class Fingerprint(Struct, frozen=True):
    """The number of rows and two sums over their keys and versions, independent of row order.

    Fingerprints of disjoint sets of rows add up to that of their union.
    """

    rows: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        return Fingerprint(
            self.rows + other.rows, self.first + other.first, self.second + other.second
        )


class KeyLimits(Struct, frozen=True):
    """Compare only keys whose first column is within these bounds, inclusive; None is open."""

    first: int | None = None
    last: int | None = None


class Grouping(Struct, frozen=True, kw_only=True):
    """How rows are grouped: by ranges of the leading number, so wide, that begin at `base`.

    With `by_version`, by ranges of the version. With a `modulus`, by the hash of the whole key.
    """

    base: int = 0
    width: int = 1
    modulus: int = 0
    by_version: bool = False


NO_VERSION = -(1 << 63)
"""The group of rows without a version, if rows are grouped by it."""


class Slice(Struct, frozen=True, kw_only=True):
    """Rows whose leading number is in one of these ranges, inclusive; all rows without a range.

    With `versions`, only rows whose version is in one of these ranges, inclusive. With a
    `grouping`, only rows of these `groups`.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    versions: tuple[tuple[int, int], ...] = ()
    grouping: Grouping | None = None
    groups: tuple[int, ...] = ()


ALL_ROWS = Slice()


def count_lines(text: str) -> int:
    """Return the number of lines."""
    return text.count("\n") + 1 if text else 0


class IntervalDifferences(Struct, frozen=True, kw_only=True):
    """What differs in one interval of keys.

    deleted     in the target only: the source has no row with this key
    missing     in the source only, although it was synced
    stale       another version in the target than in the source, although that one was synced
    duplicate   more than once in the target

    No key is in two of these. `through` is where the next interval begins; None after the last
    one. `moved_out` are those stale rows that no sync brings, with the source's versions.
    `source_rows` and `target_rows` are the compared rows of each side, `quarantined` the rows
    of the source that are left out because the target cannot hold them, `unkeyed` the rows of the
    target without a key that a source can have.
    """

    through: Place | None
    source_rows: int = 0
    target_rows: int = 0
    deleted: list[FoundKey] = []
    missing: list[Key] = []
    stale: list[Key] = []
    duplicate: list[Key] = []
    moved_out: list[FoundKey] = []
    quarantined: int = 0
    unkeyed: int = 0

    @property
    def count(self) -> int:
        """The number of keys that differ."""
        rows = len(self.missing) + len(self.stale) + len(self.duplicate)
        return len(self.deleted) + rows
