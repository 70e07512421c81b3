"""Divide keys into segments, of which only those that differ are divided further.

A segment is a range of the leading number of the key. Widths are powers of two that all begin at
one base, so the segments of one pass divide those of the pass before. Where the leading number is
indexed, a pass reads only the segments that differ. Where it is a hash, each pass reads the whole
table, so the first one has small segments and there is no second.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isqrt

from msgspec import Struct

from floodmark.model.fingerprint import FIRST_NUMBER, LAST_NUMBER
from floodmark.model.reconciliation import Fingerprint, Grouping, Slice

INTERVAL_ROWS = 4_000_000
"""Rows of one interval, about, if the source reads it by its key."""
SCANNED_ROWS = 16_000_000
"""Rows of one interval, about, if each pass reads the whole table or a whole index."""
LINES_ROWS = 500_000
"""Rows whose keys are read at a time, about, if differences are spread over all of them."""
BATCH_ROWS = 131_072
"""Rows in segments that differ, which are examined together: they must fit into memory."""
MOST_RANGES = 200
"""Ranges in one statement."""
MOST_GROUPS = 5_000
"""Groups listed in one statement."""

_SEGMENT_ROWS = 128
_LEAST_SEGMENT_ROWS = 32
_HASHED_SEGMENT_ROWS = 64
_MOST_SEGMENTS = 65_536
_FEW_ROWS = 64
_DENSE_ROWS = 512
_MANY_ROWS = 2_048
_MOST_BUCKETS = 4_096
_LEAST_SAMPLED_ROWS = 50_000
_SAMPLES = 3
_SAMPLE_ROWS = 2_048
_LARGEST_SPAN = 2**62
_VERSION_GROUPS = 16
_MOST_HALVINGS = 12
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
    differing_rows: int = 0
    """At least how many rows differ."""


def version_grouping(low: int, high: int) -> Grouping:
    """Return how to group rows by version, in a few groups that begin at the year 0."""
    return Grouping(width=_power_of_two((high - low) // _VERSION_GROUPS + 1), by_version=True)


def version_range(grouping: Grouping, group: int) -> tuple[int, int]:
    """Return the versions of a group, inclusive, within the calendar."""
    low = group * grouping.width
    return max(low, FIRST_NUMBER), min(low + grouping.width - 1, LAST_NUMBER)


def balanced(
    ends: tuple[int, int], estimate: Callable[[tuple[int, int]], int], most_rows: int
) -> Iterator[tuple[int, int]]:
    """Halve a range, inclusive, until no part has more than about so many rows.

    Only a few times: all rows may have one value.
    """
    yield from _halved(ends, estimate, most_rows, _MOST_HALVINGS)


def _halved(
    ends: tuple[int, int], estimate: Callable[[tuple[int, int]], int], most_rows: int, times: int
) -> Iterator[tuple[int, int]]:
    low, high = ends
    if not times or low == high or estimate(ends) <= most_rows:
        yield ends
        return
    middle = (low + high) // 2
    for half in ((low, middle), (middle + 1, high)):
        yield from _halved(half, estimate, most_rows, times - 1)


def compare_groups(
    source: Mapping[int, Fingerprint], target: Mapping[int, Fingerprint], grouping: Grouping
) -> VersionComparison:
    """Return which ranges of versions differ."""
    every = sorted(source.keys() | target.keys())
    differing = {group for group in every if source.get(group) != target.get(group)}
    rows = {
        group: (source.get(group, _NOTHING).rows, target.get(group, _NOTHING).rows)
        for group in differing
    }
    return VersionComparison(
        tuple(version_range(grouping, group) for group in every if group in differing),
        sum(source[group].rows for group in every if group not in differing),
        sum(max(1, abs(here - there)) for here, there in rows.values()),
    )


def divided_ranges(
    ranges: Sequence[tuple[int, int]], most: int
) -> list[tuple[tuple[int, int], ...]]:
    """Divide ascending ranges over so many statements at most; neighbors become one range."""
    size = max(1, -(-len(ranges) // most))
    return [tuple(joined_ranges(ranges[at : at + size])) for at in range(0, len(ranges), size)]


def intervals(low: int, high: int, rows: int, most_rows: int) -> list[tuple[int, int]]:
    """Divide a range of leading numbers into even intervals of at most so many rows, about."""
    number = max(1, -(-rows // most_rows))
    # The distance of a key from the first of its interval must fit into a BIGINT.
    size = min(-(-(high - low + 1) // number), _LARGEST_SPAN)
    return [(first, min(first + size - 1, high)) for first in range(low, high + 1, size)]


def first_grouping(low: int, high: int, rows: int, *, hashed: bool, differing: int = 0) -> Grouping:
    """Return the segments of the first pass over an interval of about so many rows.

    If it is known that at least so many rows differ, there are about as many segments as rows in
    segments that differ: then one pass is enough, as their keys are few.
    """
    size = _HASHED_SEGMENT_ROWS if hashed else _SEGMENT_ROWS
    if differing:
        size = min(size, max(_LEAST_SEGMENT_ROWS, isqrt(rows // differing)))
    number = min(max(1, rows // size), _MOST_SEGMENTS)
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


def next_width(segment: Segment, *, dense: bool = False) -> int | None:
    """Return the width of the segments to divide a segment into; None to read its keys.

    Dividing does not pay if there are few rows, or if most of them differ anyway. If most of the
    segments beside it differ (`dense`), those of its parts that do not are few as well.
    """
    rows, fewer = segment.rows, min(segment.source.rows, segment.target.rows)
    if (
        rows <= (_DENSE_ROWS if dense else _FEW_ROWS)
        or segment.width == 1
        or (fewer < rows // 2 and rows <= _MANY_ROWS)
    ):
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
    return joined_ranges(sorted((segment.low, segment.high) for segment in found))


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that follow each other without a gap."""
    joined: list[tuple[int, int]] = []
    for low, high in ranges:
        if joined and joined[-1][1] + 1 == low:
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return joined


def is_dense(found: Sequence[Segment]) -> bool:
    """Whether most segments differ."""
    return 2 * sum(segment.differs for segment in found) > len(found)


def range_slices(ranges: Sequence[tuple[int, int]]) -> list[Slice]:
    """Return the slices that read these ranges."""
    return [
        Slice(ranges=tuple(ranges[at : at + MOST_RANGES]))
        for at in range(0, len(ranges), MOST_RANGES)
    ]


def sample(low: int, high: int, rows: int) -> Slice | None:
    """Return a few places of an interval that shows whether differences are spread over it."""
    size = (high - low + 1) * _SAMPLE_ROWS // max(1, rows)
    if rows < _LEAST_SAMPLED_ROWS or not size:
        return None
    starts = (low + (high - low + 1) * place // (_SAMPLES + 1) for place in range(1, _SAMPLES + 1))
    return Slice(ranges=tuple((start, start + size - 1) for start in starts))


def slices(found: Sequence[Segment], grouping: Grouping, *, hashed: bool) -> list[Slice]:
    """Return the slices that read these segments, which `grouping` has made."""
    if hashed:
        groups = [(segment.low - grouping.base) // grouping.width for segment in found]
        return [
            Slice(grouping=grouping, groups=tuple(groups[at : at + MOST_GROUPS]))
            for at in range(0, len(groups), MOST_GROUPS)
        ]
    return range_slices(merged_ranges(found))


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()
