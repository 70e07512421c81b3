"""Which positions a backfill reads, and that they count as synced."""

from datetime import UTC, datetime

import pytest

from floodmark.errors import UsageError
from floodmark.model.cursor import Cursor
from floodmark.model.log_state import Backfill
from floodmark.model.manifest import Chunk, Reconciled
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.model.verification import SyncedRange
from floodmark.planning.backfill_range import backfill_range
from floodmark.planning.reconcile_ranges import CursorRange
from floodmark.planning.verify_ranges import synced_ranges

TABLE = TableName("PROD", "s", "t")
BY_TIME = Cursor(kind="timestamp", timestamp="update_at", key=("id",), unique=True)
BY_ID = Cursor(kind="id", key=("id",), unique=True)
NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
HERE = Position(NOON, 7)


@pytest.mark.parametrize(
    ("wanted", "cursor", "position", "expected"),
    [
        (CursorRange(first="5", last="9"), BY_ID, Position(id=9), (Position(id=4), Position(id=9))),
        (CursorRange(last="9"), BY_ID, Position(id=20), (START, Position(id=9))),
        (CursorRange(first="5"), BY_ID, Position(id=20), (Position(id=4), Position(id=20))),
        # Rows of the position's own time that are not synced yet are left to a sync.
        (CursorRange(last="2025-06-01 12:00:00"), BY_TIME, HERE, (START, HERE)),
        (
            CursorRange(last="2025-06-01 11:00:00"),
            BY_TIME,
            HERE,
            (START, Position(NOON.replace(hour=11))),
        ),
    ],
)
def test_a_range_ends_at_the_position_at_most(
    wanted: CursorRange, cursor: Cursor, position: Position, expected: tuple[Position, Position]
) -> None:
    assert backfill_range(TABLE, wanted, cursor, position) == SyncedRange(*expected)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (CursorRange(first="1", last="21"), "the range ends after that, at 21"),
        (CursorRange(first="21"), "nothing to read again from 21 on"),
        (CursorRange(first="9", last="8"), "is empty"),
        (CursorRange(first="2025-06-01"), "is not an id"),
    ],
)
def test_a_range_without_synced_rows_is_refused(wanted: CursorRange, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        backfill_range(TABLE, wanted, BY_ID, Position(id=20))


def test_what_was_backfilled_counts_as_synced() -> None:
    here = Position(id=20)
    part = Backfill(first=START, last=Position(id=9), start=Position(id=2), reached=Position(id=5))
    chunks = [
        Chunk(start=Position(id=10), end=here, files=(), strategy="sequential"),
        Chunk(start=here, end=here, files=(), strategy="sequential", reconciled=Reconciled()),
        Chunk(
            start=here,
            end=here,
            files=(),
            strategy="sequential",
            reconciled=Reconciled(backfill=part),
        ),
    ]
    assert synced_ranges(chunks, START, here) == [
        SyncedRange(Position(id=2), Position(id=5)),
        SyncedRange(Position(id=10), here),
    ]
