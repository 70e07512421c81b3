"""Literals mean the same on every connection."""

from datetime import UTC, datetime

import pytest

from floodmark.errors import UsageError
from floodmark.model.cursor import Cursor
from floodmark.model.position import START, Position
from floodmark.model.schema import SourceColumn, SourceTable
from floodmark.model.table import TableName
from floodmark.mysql.predicates import Value, between, cursor_values, literal

TABLE = SourceTable(name=TableName("A", "s", "t"), columns=(), primary_key=(), indexes=())


def column(data_type: str, name: str = "c") -> SourceColumn:
    return SourceColumn(name=name, data_type=data_type, column_type=data_type, nullable=False)


@pytest.mark.parametrize(
    ("data_type", "value", "text"),
    [
        ("bigint", 18446744073709551615, "18446744073709551615"),
        ("decimal", "-12.50", "-12.50"),
        ("varchar", "plain-1_2.3", "'plain-1_2.3'"),
        ("varchar", "it's", "_utf8mb4 X'69742773'"),
        ("varchar", "a\\", "_utf8mb4 X'615c'"),
        ("varchar", "雨", "_utf8mb4 X'e99ba8'"),
        ("varchar", "", "''"),
        ("binary", "0x00ff", "X'00ff'"),
        ("datetime", datetime(2025, 8, 9, 20, 0, 1, tzinfo=UTC), "'2025-08-09 20:00:01'"),
        ("datetime", datetime(2025, 8, 9, 20, 0, 1, 5, tzinfo=UTC), "'2025-08-09 20:00:01.000005'"),
    ],
)
def test_literals(data_type: str, value: Value, text: str) -> None:
    assert literal(column(data_type), value) == text


@pytest.mark.parametrize(
    ("data_type", "value"), [("bigint", "1 OR 1"), ("decimal", "1; DROP"), ("binary", "zz'")]
)
def test_a_value_of_another_type_never_becomes_sql(data_type: str, value: str) -> None:
    with pytest.raises((ValueError, ArithmeticError)):
        literal(column(data_type), value)


def test_equal_prefixes_become_equalities() -> None:
    columns = (column("datetime", "u"), column("int", "a"), column("int", "b"))
    noon = datetime(2025, 8, 4, 12, tzinfo=UTC)
    assert between(columns, (noon, 1, 5), (noon, 1, 9)) == (
        "`u` = '2025-08-04 12:00:00' AND `a` = 1 AND `b` > 5 AND `b` <= 9"
    )


def test_positions_that_do_not_fit_the_cursor_are_refused() -> None:
    cursor = Cursor(kind="timestamp", timestamp="update_at", key=("id",))
    moment = datetime(2025, 8, 4, tzinfo=UTC)
    assert cursor_values(TABLE, cursor, START) == ()
    assert cursor_values(TABLE, cursor, Position(moment)) == (moment,)
    with pytest.raises(UsageError, match="no timestamp") as lacking:
        cursor_values(TABLE, cursor, Position(id=5))
    with pytest.raises(UsageError, match="does not fit") as wrong:
        cursor_values(TABLE, cursor, Position(moment, (1, 2)))
    for refused in (lacking, wrong):
        assert "floodmark watermark set -t A:s.t --timestamp" in str(refused.value.hint)
    # An id cursor ignores a time: it begins at the start.
    assert cursor_values(TABLE, Cursor(kind="id", key=("id",)), Position(moment)) == ()
