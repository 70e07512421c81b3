"""Divide keys into segments, of which only those that differ are divided further.

A segment is a range of the leading number of the key. Widths are powers of two that all begin at
one base, so the segments of one pass divide those of the pass before. Where the leading number is
indexed, a pass reads only the segments that differ. Where it is a hash, each pass reads the whole
table, so the first one has small segments and there is no second.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from floodmark.model.fingerprint import FIRST_NUMBER, LAST_NUMBER
from floodmark.model.reconciliation import Fingerprint, Grouping, Slice

INTERVAL_ROWS = 4_000_000
"""Rows of one interval, about, if the source reads it by its key."""
SCANNED_ROWS = 16_000_000
"""Rows of one interval, about, if each pass reads the whole table or a whole index."""
BATCH_ROWS = 131_072
"""Rows in segments that differ, which are examined together: they must fit into memory."""
MOST_RANGES = 200
"""Ranges in one statement."""
MOST_GROUPS = 5_000
"""Groups listed in one statement."""

_SEGMENT_ROWS = 128
_HASHED_SEGMENT_ROWS = 64
_MOST_SEGMENTS = 65_536
_FEW_ROWS = 32
_MANY_ROWS = 2_048
_MOST_BUCKETS = 4_096
_LARGEST_SPAN = 2**62
_VERSION_GROUPS = 16
_NOTHING = Fingerprint()


class Segment(Struct, frozen=True, kw_only=True):
    """A range of leading numbers, inclusive, and the fingerprints of both sides."""

    low: int
    high: int
    width: int
    source: Fingerprint = _NOTHING
    target: Fingerprint = _NOTHING

    @property
    def differs(self) -> bool:
        """Whether the sides differ."""
        return self.source != self.target

    @property
    def rows(self) -> int:
        """The rows of the larger side."""
        return max(self.source.rows, self.target.rows)


class VersionComparison(Struct, frozen=True):
    """The ranges of versions that differ, and how many rows are in those that do not."""

    differing: tuple[tuple[int, int], ...]
    equal_rows: int


def version_grouping(low: int, high: int) -> Grouping:
    """Return how to group rows by version, in a few groups that begin at the year 0."""
    return Grouping(width=_power_of_two((high - low) // _VERSION_GROUPS + 1), by_version=True)


def version_range(grouping: Grouping, group: int) -> tuple[int, int]:
    """Return the versions of a group, inclusive, within the calendar."""
    low = group * grouping.width
    return max(low, FIRST_NUMBER), min(low + grouping.width - 1, LAST_NUMBER)


def compare_groups(
    source: Mapping[int, Fingerprint], target: Mapping[int, Fingerprint], grouping: Grouping
) -> VersionComparison:
    """Return which ranges of versions differ."""
    every = sorted(source.keys() | target.keys())
    differing = {group for group in every if source.get(group) != target.get(group)}
    return VersionComparison(
        tuple(version_range(grouping, group) for group in every if group in differing),
        sum(source[group].rows for group in every if group not in differing),
    )


def intervals(low: int, high: int, rows: int, most_rows: int) -> list[tuple[int, int]]:
    """Divide a range of leading numbers into even intervals of at most so many rows, about."""
    number = max(1, -(-rows // most_rows))
    # The distance of a key from the first of its interval must fit into a BIGINT.
    size = min(-(-(high - low + 1) // number), _LARGEST_SPAN)
    return [(first, min(first + size - 1, high)) for first in range(low, high + 1, size)]


def first_grouping(low: int, high: int, rows: int, *, hashed: bool) -> Grouping:
    """Return the segments of the first pass over an interval of about so many rows."""
    segments = rows // (_HASHED_SEGMENT_ROWS if hashed else _SEGMENT_ROWS)
    number = min(max(1, segments), _MOST_SEGMENTS)
    return Grouping(base=low, width=_power_of_two((high - low + number) // number // 2 + 1))


def segments(
    source: Mapping[int, Fingerprint],
    target: Mapping[int, Fingerprint],
    grouping: Grouping,
    last: int,
) -> list[Segment]:
    """Combine the fingerprints of both sides, in ascending order; `last` is the end of all."""
    found = []
    for group in sorted(source.keys() | target.keys()):
        low = grouping.base + group * grouping.width
        found.append(
            Segment(
                low=low,
                high=min(low + grouping.width - 1, last),
                width=grouping.width,
                source=source.get(group, _NOTHING),
                target=target.get(group, _NOTHING),
            )
        )
    return found


def batches(found: Sequence[Segment], most_rows: int = BATCH_ROWS) -> Iterator[list[Segment]]:
    """Divide segments, in order, so that those of a batch that differ have so many rows at most.

    A larger segment is in a batch with others that do not differ.
    """
    batch: list[Segment] = []
    rows = 0
    for segment in found:
        more = segment.rows if segment.differs else 0
        if rows and rows + more > most_rows:
            yield batch
            batch, rows = [], 0
        batch.append(segment)
        rows += more
    yield batch


def next_width(segment: Segment) -> int | None:
    """Return the width of the segments to divide a segment into; None to read its keys.

    Dividing does not pay if there are few rows, or if most of them differ anyway.
    """
    rows, fewer = segment.rows, min(segment.source.rows, segment.target.rows)
    if rows <= _FEW_ROWS or segment.width == 1 or (fewer < rows // 2 and rows <= _MANY_ROWS):
        return None
    bits = (rows // (_FEW_ROWS // 2)).bit_length() - 1
    return max(1, segment.width >> bits)


def key_buckets(segment: Segment) -> Grouping | None:
    """Return the groups to divide a single leading number with many rows into, by their key."""
    if segment.width > 1 or segment.rows <= _MANY_ROWS:
        return None
    return Grouping(modulus=min(_MOST_BUCKETS, _power_of_two(segment.rows // _FEW_ROWS)))


def merged_ranges(found: Iterable[Segment]) -> list[tuple[int, int]]:
    """Return the ranges of segments; those of neighbors are joined."""
    ranges: list[tuple[int, int]] = []
    for segment in sorted(found, key=lambda one: one.low):
        if ranges and ranges[-1][1] + 1 == segment.low:
            ranges[-1] = (ranges[-1][0], segment.high)
        else:
            ranges.append((segment.low, segment.high))
    return ranges


def slices(found: Sequence[Segment], grouping: Grouping, *, hashed: bool) -> list[Slice]:
    """Return the slices that read these segments, which `grouping` has made."""
    if hashed:
        groups = [(segment.low - grouping.base) // grouping.width for segment in found]
        return [
            Slice(grouping=grouping, groups=tuple(groups[at : at + MOST_GROUPS]))
            for at in range(0, len(groups), MOST_GROUPS)
        ]
    ranges = merged_ranges(found)
    return [
        Slice(ranges=tuple(ranges[at : at + MOST_RANGES]))
        for at in range(0, len(ranges), MOST_RANGES)
    ]


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()
