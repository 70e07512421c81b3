"""Which positions a reconciliation over a range compares."""

from datetime import UTC, datetime, timedelta

import pytest

from floodmark.errors import UsageError
from floodmark.model.cursor import Cursor
from floodmark.model.position import START, Position
from floodmark.model.verification import SyncedRange
from floodmark.planning.reconcile_ranges import CursorRange, clipped

BY_TIME = Cursor(kind="timestamp", timestamp="update_at", key=("id",))
BY_ID = Cursor(kind="id", key=("id",))
IDS = [SyncedRange(START, Position(id=10)), SyncedRange(Position(id=20), Position(id=30))]


def day(number: int) -> datetime:
    return datetime(2025, 6, number, tzinfo=UTC)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (None, None, [(None, 10), (20, 30)]),
        ("5", None, [(4, 10), (20, 30)]),
        ("10", "21", [(9, 10), (20, 21)]),
        ("11", "20", []),  # skipped by an operator
        ("25", "25", [(24, 25)]),
        (None, "4", [(None, 4)]),
        ("31", None, []),
    ],
)
def test_a_range_of_ids(
    first: str | None, last: str | None, expected: list[tuple[int | None, int]]
) -> None:
    found = clipped(IDS, CursorRange(first=first, last=last), BY_ID)
    assert [(one.start.id, one.end.id) for one in found] == expected


def test_a_range_of_times_includes_both_ends() -> None:
    synced = [SyncedRange(Position(day(1), 7), Position(day(9), 5))]
    (found,) = clipped(synced, CursorRange(first="2025-06-03", last="2025-06-05"), BY_TIME)
    assert found.start == Position(day(3) - timedelta(microseconds=1))
    assert found.end == Position(day(5))
    assert clipped(synced, CursorRange(first="2025-05-01"), BY_TIME) == synced


@pytest.mark.parametrize(("first", "last"), [("9", "8"), ("x", None), (None, "2025-06-01")])
def test_ranges_that_mean_nothing(first: str | None, last: str | None) -> None:
    with pytest.raises(UsageError):
        clipped(IDS, CursorRange(first=first, last=last), BY_ID)
