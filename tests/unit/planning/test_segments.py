"""Segments divide keys without gaps, and only where sides differ."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from floodmark.model.fingerprint import FIRST_NUMBER, LAST_NUMBER
from floodmark.model.reconciliation import Fingerprint, Grouping
from floodmark.planning.segments import (
    MOST_GROUPS,
    MOST_RANGES,
    Segment,
    balanced,
    batches,
    compare_groups,
    first_grouping,
    intervals,
    key_buckets,
    merged_ranges,
    next_width,
    segments,
    slices,
    version_grouping,
    version_range,
)

NUMBERS = st.integers(-(2**63), 2**64 - 1)
SOME = Fingerprint(1, 2, 3)


def segment(low: int, rows: int, other: int = 0, width: int = 16) -> Segment:
    return Segment(
        low=low,
        high=low + width - 1,
        width=width,
        source=Fingerprint(rows, 1, 1),
        target=Fingerprint(other, 1, 1),
    )


@given(NUMBERS, NUMBERS, st.integers(0, 10**9), st.booleans())
def test_intervals_tile_all_keys(one: int, other: int, rows: int, hashed: bool) -> None:
    low, high = sorted((one, other))
    found = intervals(low, high, rows, 4_000_000)
    assert (found[0][0], found[-1][1]) == (low, high)
    assert all(a[1] + 1 == b[0] for a, b in pairwise(found))
    for first, last in found:
        grouping = first_grouping(first, last, rows // len(found), hashed=hashed)
        groups = (last - first) // grouping.width + 1
        assert grouping.base == first
        assert groups <= 2**17
        assert last - first < 2**63  # the distance is a BIGINT


@given(st.integers(0, 2**40), st.integers(0, 20), st.sets(st.integers(0, 100), min_size=1))
def test_segments_cover_their_groups(base: int, bits: int, groups: set[int]) -> None:
    grouping = Grouping(base=base, width=2**bits)
    last = base + (max(groups) + 1) * grouping.width - 1
    found = segments(dict.fromkeys(groups, SOME), {}, grouping, last)
    assert [(one.low - base) // grouping.width for one in found] == sorted(groups)
    for one in found:
        width = next_width(one) or 1
        assert (one.low - base) % width == 0  # smaller segments lie within
    again = {number for s in slices(found, grouping, hashed=True) for number in s.groups}
    assert again == groups
    covered = {
        n
        for low, high in merged_ranges(found)
        for n in ((low - base) // grouping.width, (high - base) // grouping.width)
    }
    assert covered <= groups


def test_sides_that_are_equal_do_not_differ() -> None:
    found = segments({0: SOME, 2: SOME}, {0: SOME, 1: SOME}, Grouping(width=10), 25)
    assert [(one.low, one.high, one.differs) for one in found] == [
        (0, 9, False),
        (10, 19, True),
        (20, 25, True),
    ]


@given(st.lists(st.integers(0, 300), max_size=30))
def test_batches_are_bounded(rows: list[int]) -> None:
    found = [segment(16 * n, count) for n, count in enumerate(rows)]
    made = list(batches(found, 500))
    assert [one for batch in made for one in batch] == found
    assert all(sum(one.rows for one in batch if one.differs) <= 500 for batch in made)


def test_when_a_segment_is_divided() -> None:
    assert next_width(segment(0, 30, 29, 2**20)) is None  # few rows
    assert next_width(segment(0, 128, 127, 2**20)) == 2**18
    assert next_width(segment(0, 128, 127, 2**20), dense=True) is None
    assert next_width(segment(0, 1000, 0, 2**20)) is None  # most of them differ
    assert next_width(segment(0, 10**6, 0, 2**20)) == 2**6
    assert next_width(segment(0, 10**6, 0, 2)) == 1
    assert next_width(segment(0, 10**6, 0, 1)) is None
    assert key_buckets(segment(0, 10**6, 0, 2)) is None
    assert key_buckets(segment(0, 2000, 0, 1)) is None
    assert key_buckets(segment(0, 10**6, 0, 1)) == Grouping(modulus=4096)


def test_statements_are_not_too_long() -> None:
    far = [segment(100 * n, 1) for n in range(2 * MOST_RANGES)]
    assert [len(s.ranges) for s in slices(far, Grouping(), hashed=False)] == [MOST_RANGES] * 2
    near = [segment(16 * n, 1) for n in range(MOST_GROUPS + 1)]
    assert [len(s.ranges) for s in slices(near, Grouping(), hashed=False)] == [1]
    by_group = slices(near, Grouping(width=16), hashed=True)
    assert [len(s.groups) for s in by_group] == [MOST_GROUPS, 1]


@given(st.integers(FIRST_NUMBER, LAST_NUMBER), st.integers(FIRST_NUMBER, LAST_NUMBER))
def test_ranges_of_versions_hold_their_groups(one: int, other: int) -> None:
    low, high = sorted((one, other))
    grouping = version_grouping(low, high)
    groups = range(low // grouping.width, high // grouping.width + 1)
    assert len(groups) <= 18
    for version in (low, high):
        first, last = version_range(grouping, version // grouping.width)
        assert first <= version <= last


@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=60),
    st.integers(0, 10),
    st.integers(0, 2**40),
)
def test_parts_tile_a_range_and_have_few_rows(versions: list[int], most: int, high: int) -> None:
    low, high = sorted((high, versions[0]))
    held = [version for version in versions if low <= version <= high]

    def rows(ends: tuple[int, int]) -> int:
        return sum(ends[0] <= version <= ends[1] for version in held)

    parts = list(balanced((low, high), rows, most))
    assert [first for first, _ in parts] == [low, *(last + 1 for _, last in parts[:-1])]
    assert parts[-1][1] == high
    smallest = (high - low + 1) // 2**12 + 1
    assert all(rows(part) <= most or part[1] - part[0] < smallest for part in parts)
    assert len(parts) <= 1 + 2 * 12 * len(held)


def test_versions_that_only_one_side_has_differ() -> None:
    grouping = Grouping(width=2**60, by_version=True)
    found = compare_groups({0: SOME, 1: SOME}, {1: SOME, 2: SOME}, grouping)
    assert found.equal_rows == 1
    assert [low // grouping.width for low, _ in found.differing] == [0, 2]
