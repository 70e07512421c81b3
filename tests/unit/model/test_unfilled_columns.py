"""New columns that earlier rows lack values of: which rows are left, and how to read them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from floodmark.model.log_state import Backfill, UnfilledColumn
from floodmark.model.manifest import Chunk, Column, Reconciled
from floodmark.model.position import START, KeyScan, Position
from floodmark.model.table import TableName
from floodmark.model.unfilled_columns import (
    Unfilled,
    backfill_hint,
    describe_unfilled,
    unfilled_after,
)

TABLE = TableName("PROD", "shop", "orders")


def at(number: int | None) -> Position:
    return START if number is None else Position(id=number)


def left(start: int | None, up_to: int, column: str = "x") -> UnfilledColumn:
    return UnfilledColumn(column=column, start=at(start), up_to=at(up_to))


def chunk(start: Position, end: Position, columns: str = "id x y", **more: Any) -> Chunk:
    found = tuple(Column(name, "int", True, "int32") for name in columns.split())
    return Chunk(start=start, end=end, files=(), strategy="sequential", columns=found, **more)


def backfill(start: int | None, reached: int, columns: str = "id x y", **more: Any) -> Chunk:
    part = Backfill(first=at(start), last=at(reached), start=at(start), reached=at(reached))
    return chunk(at(90), at(90), columns, reconciled=Reconciled(backfill=part), **more)


@pytest.mark.parametrize(
    ("read", "rest"),
    [
        (backfill(None, 50), ()),
        (backfill(5, 60), ()),
        (backfill(None, 20), (left(20, 50),)),
        (backfill(20, 60), (left(5, 20),)),
        (backfill(20, 30), (left(5, 50),)),  # a hole: both sides are still to be read
        (backfill(50, 60), (left(5, 50),)),
        (backfill(None, 5), (left(5, 50),)),
        (backfill(None, 50, "id y"), ()),  # the source has no such column any more
        (chunk(at(90), at(99)), (left(5, 50),)),
        (chunk(at(20), at(99)), (left(5, 20),)),  # an operator moved the position back
        (chunk(at(90), at(99), reload=True), ()),
        (chunk(at(90), at(99), fills={"X": "1"}), ()),
        (chunk(at(90), at(90), "id", adopted=True), (left(5, 50),)),
        (chunk(at(None), at(99), inherited=True), (left(5, 50),)),
        (
            chunk(Position(walk=KeyScan(key=3, bound=at(50))), at(40)),
            (left(5, 40),),
        ),
    ],
)
def test_rows_that_were_read_again_are_filled(read: Chunk, rest: Unfilled) -> None:
    assert unfilled_after((left(5, 50),), read) == rest


def test_a_backfill_that_meets_a_new_column_fills_only_what_it_reads_from_then_on() -> None:
    new = (left(None, 90, "y"),)
    before = (left(30, 50),)
    assert unfilled_after(before, backfill(30, 60, unfilled=new)) == new
    assert unfilled_after((), backfill(None, 60, unfilled=new)) == (left(60, 90, "y"),)
    assert unfilled_after((), backfill(None, 90, unfilled=new)) == ()


def test_a_backfill_up_to_the_position_fills_keys_that_only_the_database_can_order() -> None:
    first, then = (Position(datetime(2025, 6, 1, tzinfo=UTC), (key,)) for key in ("a", "b"))
    part = Backfill(first=START, last=then, start=START, reached=then)
    rows = (UnfilledColumn(column="x", start=START, up_to=first),)
    again = Reconciled(backfill=part)
    assert unfilled_after(rows, chunk(then, then, reconciled=again)) == ()
    later = Position(datetime(2025, 6, 2, tzinfo=UTC), ("a",))
    assert unfilled_after(rows, chunk(later, later, reconciled=again)) != ()


def test_the_hint_names_the_rows_that_are_left() -> None:
    day = datetime(2025, 6, 1, tzinfo=UTC)
    rows = (
        left(None, 9),
        left(None, 9, "y"),
        left(5, 9, "z"),
        UnfilledColumn(
            column="t",
            start=Position(day.replace(day=1, hour=0)),
            up_to=Position(day.replace(day=3, microsecond=5), (1, "a")),
        ),
    )
    assert backfill_hint(TABLE, rows) == (
        "'floodmark backfill -t PROD:shop.orders --to 9' fills x, y;"
        " 'floodmark backfill -t PROD:shop.orders --from 6 --to 9' fills z;"
        " 'floodmark backfill -t PROD:shop.orders --from 2025-06-01T00:00:00"
        " --to 2025-06-03T00:00:00.000005' fills t"
    )
    assert "rows up to id 9 do not have their values of x, y" in describe_unfilled(rows)
    assert backfill_hint(TABLE, ()) is None
