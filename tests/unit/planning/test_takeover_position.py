"""Where syncs go on in a table that another tool has filled."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import FloodmarkError
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.planning.takeover_position import takeover_position

TABLE = TableName("PROD", "s", "t")
NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@given(
    st.timedeltas(-30 * HOUR, timedelta(0)),
    st.timedeltas(timedelta(0), 9 * HOUR),
    st.timedeltas(-30 * HOUR, timedelta(0)),
)
def test_no_row_that_may_be_missing_is_before_the_position(
    age: timedelta, margin: timedelta, bound: timedelta
) -> None:
    greatest, limit = NOON + age, Position(NOON + bound)
    found = takeover_position(TABLE, greatest, margin, start=START, bound=limit, newest=NOON)
    assert found.compare(limit) in (-1, 0)
    # The rows of the greatest time are read again: the other tool may have seen only some.
    assert found.timestamp is not None
    assert found.timestamp < greatest - margin or margin == timedelta(0)
    assert found.timestamp < greatest


def test_an_id_is_taken_as_it_is_up_to_the_bound() -> None:
    for greatest, expected in ((50, 50), (60, 55)):
        found = takeover_position(
            TABLE, greatest, HOUR, start=START, bound=Position(id=55), newest=60
        )
        assert found == Position(id=expected)


@pytest.mark.parametrize(
    ("greatest", "start", "newest", "why"),
    [
        (NOON + timedelta(minutes=2), START, NOON, "the clock of the source shows"),
        (61, START, 60, "ids up to 61, and the source up to 60"),
        (NOON, Position(NOON), NOON, "before the table's start"),
    ],
)
def test_what_the_source_cannot_have_is_refused(
    greatest: datetime | int, start: Position, newest: datetime | int, why: str
) -> None:
    bound = Position(NOON) if isinstance(greatest, datetime) else Position(id=60)
    with pytest.raises(FloodmarkError, match=why):
        takeover_position(TABLE, greatest, HOUR, start=start, bound=bound, newest=newest)
