"""Which positions were synced, their extents in the target, and how far both sides agree."""

from datetime import UTC, datetime, timedelta

import pytest

from floodmark.model.cursor import Cursor
from floodmark.model.extraction import Window
from floodmark.model.fingerprint import moment_number
from floodmark.model.manifest import Chunk
from floodmark.model.position import START, KeyScan, Position
from floodmark.model.schema import SourceColumn, SourceIndex, SourceTable
from floodmark.model.table import TableName
from floodmark.model.verification import Checksum, Comparison, Extent, SyncedRange
from floodmark.planning.verify_ranges import (
    agreed_position,
    can_split_by_key,
    compared_cursor,
    contains_versions,
    synced_ranges,
    target_extents,
)

NOON = datetime(2025, 8, 1, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)


def at(identity: int) -> Position:
    return Position(id=identity)


def chunk(start: Position, end: Position, *, reload: bool = False) -> Chunk:
    return Chunk(start=start, end=end, files=(), strategy="sequential", reload=reload)


def ids(*ranges: tuple[int, int]) -> list[SyncedRange]:
    return [SyncedRange(at(start) if start else START, at(end)) for start, end in ranges]


@pytest.mark.parametrize(
    ("synced", "verified", "loaded", "expected"),
    [
        ([(0, 5), (5, 9)], 0, 9, [(0, 9)]),
        ([(0, 5), (5, 9)], 3, 9, [(3, 9)]),
        ([(0, 5), (5, 9)], 5, 9, [(5, 9)]),
        ([(0, 5), (5, 9)], 9, 9, []),
        ([(0, 5), (7, 9)], 0, 9, [(0, 5), (7, 9)]),  # skipped by hand
        ([(0, 5), (7, 9)], 6, 9, [(7, 9)]),
        ([(0, 9), (4, 12)], 0, 12, [(0, 12)]),  # read again by hand
        ([(0, 9), (4, 6)], 0, 6, [(0, 6)]),
        ([(7, 9), (2, 4)], 0, 4, [(2, 4)]),
        ([(7, 9), (2, 4), (4, 7), (7, 12)], 0, 12, [(2, 12)]),
        ([], 0, 0, []),
    ],
)
def test_ranges_are_merged_and_clipped(
    synced: list[tuple[int, int]],
    verified: int,
    loaded: int,
    expected: list[tuple[int, int]],
) -> None:
    chunks = [chunk(one.start, one.end) for one in ids(*synced)]
    start = at(verified) if verified else START
    assert synced_ranges(chunks, start, at(loaded)) == ids(*expected)


def test_a_key_scan_counts_once_it_is_finished() -> None:
    bound = Position(NOON)
    half = Position(walk=KeyScan(50, bound))
    assert synced_ranges([chunk(START, half)], START, START) == []
    whole = [SyncedRange(START, bound)]
    assert synced_ranges([chunk(START, half), chunk(half, bound)], START, bound) == whole
    assert synced_ranges([chunk(half, bound)], START, bound) == whole


def test_ranges_with_text_keys_are_merged_where_they_meet() -> None:
    first, second, third = (Position(NOON, key) for key in ("b", "a", "c"))
    chunks = [chunk(START, first), chunk(first, second), chunk(second, third)]
    assert synced_ranges(chunks, START, third) == [SyncedRange(START, third)]
    assert synced_ranges(chunks, second, third)[-1].end == third


def test_a_full_reload_is_no_range() -> None:
    assert synced_ranges([chunk(START, START, reload=True)], START, START) == []


def comparison(part: int, *, agrees: bool) -> Comparison:
    rows = Checksum(1, 2, 3)
    differences = {} if agrees else {"missing": 1}
    return Comparison(part=part, source=rows, target=rows, differences=differences)  # type: ignore[arg-type]


@pytest.mark.parametrize(("agree", "reached"), [("+++", 30), ("++-", 20), ("-++", 0), ("+-+", 10)])
def test_verified_up_to_the_first_difference(agree: str, reached: int) -> None:
    windows = [
        Window(part=n, start=at(10 * n), end=at(10 * n + 10), predicate="") for n in range(3)
    ]
    found = [comparison(n, agrees=sign == "+") for n, sign in enumerate(agree)]
    assert agreed_position(at(0), windows, found) == at(reached)


def table(key: dict[str, str]) -> SourceTable:
    columns = {"update_at": "datetime", **key}
    return SourceTable(
        name=TableName("A", "b", "t"),
        columns=tuple(
            SourceColumn(name=name, data_type=kind, column_type=kind, nullable=False)
            for name, kind in columns.items()
        ),
        primary_key=tuple(key),
        indexes=(SourceIndex(name="PRIMARY", columns=tuple(key), unique=True),),
    )


def window(start: Position, end: Position) -> Window:
    return Window(part=1, start=start, end=end, predicate="")


def test_numbers_have_the_same_order_on_both_sides() -> None:
    source = table({"id": "bigint"})
    cursor = Cursor(kind="timestamp", timestamp="update_at", key=("id",))
    assert compared_cursor(source, cursor) == cursor
    assert can_split_by_key(source)
    between = window(Position(NOON, 7), Position(NOON + TICK, 9))
    assert target_extents(source, cursor, between) == (
        Extent(columns=("update_at", "id"), start=(NOON, 7), end=(NOON + TICK, 9)),
    )


def test_with_text_keys_all_rows_of_a_time_are_compared() -> None:
    source = table({"code": "varchar", "id": "int"})
    cursor = Cursor(kind="timestamp", timestamp="update_at", key=("code", "id"))
    assert compared_cursor(source, cursor).columns == ("update_at",)
    assert not compared_cursor(source, cursor).unique
    assert not can_split_by_key(source)
    between = window(Position(NOON, ("b", 1)), Position(NOON + TICK, ("a", 2)))
    assert target_extents(source, cursor, between) == (
        Extent(columns=("update_at",), start=(NOON - TICK,), end=(NOON + TICK,)),
    )
    behind = window(Position(NOON), Position(NOON + TICK))
    assert target_extents(source, cursor, behind) == (
        Extent(columns=("update_at",), start=(NOON,), end=(NOON + TICK,)),
    )


def test_a_key_scan_is_limited_by_key_and_cursor() -> None:
    source = table({"a": "int", "b": "int"})
    cursor = Cursor(kind="timestamp", timestamp="update_at", key=("a", "b"))
    bound = Position(NOON)
    on_the_way = window(
        Position(walk=KeyScan((1, 2), bound)), Position(walk=KeyScan((3, 4), bound))
    )
    assert target_extents(source, cursor, on_the_way) == (
        Extent(columns=("a", "b"), start=(1, 2), end=(3, 4)),
        Extent(columns=("update_at", "a", "b"), end=(NOON,)),
    )


def test_all_rows_with_a_time_strictly_within_a_range_are_in_it_whatever_their_key() -> None:
    day = timedelta(days=1)
    walk = KeyScan(7, Position(NOON + 9 * day))
    ranges = [
        SyncedRange(Position(NOON, 5), Position(NOON + day, 5)),
        SyncedRange(Position(NOON + 3 * day), Position(NOON + 4 * day)),
        SyncedRange(Position(NOON + 5 * day), Position(NOON + 6 * day, 1, walk=walk)),
    ]

    def within(first: datetime, last: datetime) -> bool:
        return contains_versions(ranges, moment_number(first), moment_number(last))

    assert within(NOON + TICK, NOON + day - TICK)
    assert not within(NOON, NOON + TICK)  # rows up to key 5 are not in it
    assert not within(NOON + TICK, NOON + day)  # rows above key 5 are not in it
    assert not within(NOON + TICK, NOON + 4 * day - TICK)  # there is a gap
    assert within(NOON + 3 * day + TICK, NOON + 4 * day - TICK)
    assert not within(NOON + 5 * day + TICK, NOON + 5 * day + 2 * TICK)  # read only up to a key
    assert contains_versions([SyncedRange(START, Position(NOON))], 0, moment_number(NOON) - 1)
    assert not contains_versions([SyncedRange(START, START)], 0, 1)
    assert not contains_versions([], 0, 1)
