"""Whether a position still belongs to the table's cursor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from floodmark.errors import AnotherCursor
from floodmark.model.cursor import Cursor, CursorColumn
from floodmark.model.position import START, Position
from floodmark.model.schema import SourceColumn, SourceTable
from floodmark.model.table import TableName
from floodmark.model.timestamps import parse_timestamp
from floodmark.planning.cursor_change import (
    cursor_change,
    describe_cursor,
    keeps,
    refuse_another_cursor,
)

MOMENT = parse_timestamp("2025-06-01")
NAMES = ["id", "update_at", "created_at", "name"]


def table(types: dict[str, str]) -> SourceTable:
    columns = tuple(
        SourceColumn(name=n, data_type=t.partition("(")[0], column_type=t, nullable=False)
        for n, t in types.items()
    )
    return SourceTable(
        name=TableName("S", "s", "t"), columns=columns, primary_key=("id",), indexes=()
    )


def change(before: str, after: str, collations: tuple[str | None, str | None]) -> str | None:
    old = CursorColumn("id", before, collations[0])
    column = SourceColumn(
        name="id", data_type="", column_type=after, nullable=False, collation=collations[1]
    )
    now = SourceTable(
        name=TableName("S", "s", "t"), columns=(column,), primary_key=("id",), indexes=()
    )
    return cursor_change([old], now, Cursor(kind="id", key=("id",)), Position(id=1))


@given(st.permutations(NAMES), st.integers(1, 4))
def test_the_same_cursor_is_no_change(names: list[str], length: int) -> None:
    source = table(dict.fromkeys(NAMES, "bigint"))
    cursor = Cursor(kind="timestamp", timestamp=names[0], key=tuple(names[1:length]))
    known = describe_cursor(source, cursor)
    assert cursor_change(known, source, cursor, Position(MOMENT, 1)) is None
    assert keeps(known, None)
    assert keeps(known, cursor.columns)
    assert keeps(known, tuple(name.upper() for name in names[:1]))


@given(st.permutations(NAMES), st.permutations(NAMES), st.integers(1, 4), st.integers(1, 4))
def test_other_columns_are_a_change(
    before: list[str], after: list[str], old_length: int, new_length: int
) -> None:
    source = table(dict.fromkeys(NAMES, "bigint"))
    old, new = before[:old_length], after[:new_length]
    known = [CursorColumn(name) for name in old]
    cursor = Cursor(kind="timestamp", timestamp=new[0], key=tuple(new[1:]))
    assert (cursor_change(known, source, cursor, Position(MOMENT, 1)) is None) == (old == new)
    behind = cursor_change(known, source, cursor, Position(MOMENT))
    assert (behind is None) == (new[: len(old)] == old)
    assert cursor_change(known, source, cursor, START) is None
    assert cursor_change(known, source, Cursor(kind="none"), Position(MOMENT, 1)) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int(11)", "bigint unsigned"),
        ("bigint(20)", "int"),
        ("datetime", "datetime(6)"),
        ("timestamp(3)", "datetime(3)"),
        ("decimal(10,2)", "decimal(12,2)"),
        ("varbinary(4)", "varbinary(8)"),
        ("", "anything"),
    ],
)
def test_types_that_keep_the_order(before: str, after: str) -> None:
    assert change(before, after, (None, None)) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int", "varchar(20)"),
        ("datetime(6)", "datetime(3)"),
        ("datetime(6)", "timestamp"),
        ("decimal(10,2)", "decimal(10,1)"),
        ("decimal(10,2)", "decimal(12,4)"),
        ("binary(4)", "binary(8)"),
        ("date", "datetime"),
    ],
)
def test_types_that_may_change_the_order(before: str, after: str) -> None:
    assert f"was {before} when" in str(change(before, after, (None, None)))


@pytest.mark.parametrize(
    ("before", "after"), [("timestamp", "datetime"), ("datetime", "timestamp")]
)
def test_without_a_key_no_row_may_be_read_again(before: str, after: str) -> None:
    source = table({"at": after})
    known, cursor = [CursorColumn("at", before)], Cursor(kind="timestamp", timestamp="at")
    keyless = structs.replace(source, primary_key=())
    assert cursor_change(known, source, cursor, Position(MOMENT)) is None
    assert "would be duplicated" in str(cursor_change(known, keyless, cursor, Position(MOMENT)))
    now = [CursorColumn("at", f"{after}(6)")]
    wider = structs.replace(keyless, columns=table({"at": f"{after}(6)"}).columns)
    assert cursor_change(now, wider, cursor, Position(MOMENT)) is None


@pytest.mark.parametrize(
    ("before", "now", "key", "dropped"),
    [
        ("binary(5)", "binary(8)", "id", True),
        ("binary(5)", "binary(8)", "other", False),
        ("int", "varchar(9)", "id", True),
    ],
)
def test_other_values_in_a_key_need_a_new_table(
    before: str, now: str, key: str, dropped: bool
) -> None:
    source = structs.replace(table({"id": now, "other": "int"}), primary_key=(key,))
    cursor = Cursor(kind="id", key=("id",))
    with pytest.raises(AnotherCursor) as refused:
        refuse_another_cursor([CursorColumn("id", before)], source, cursor, Position(id=1))
    assert str(refused.value.hint).startswith("drop its table in the target") == dropped


def test_text_keeps_its_order_under_the_same_collation() -> None:
    same = ("utf8mb4_bin", "utf8mb4_bin")
    assert change("varchar(9)", "varchar(20)", same) is None
    assert change("char(9)", "varchar(9)", same) is None
    assert change("varchar(20)", "varchar(9)", same) is not None
    assert "(utf8mb4_bin)" in str(change("varchar(9)", "varchar(9)", ("utf8mb4_bin", "ascii_bin")))


@pytest.mark.parametrize(
    ("known", "configured", "kept"),
    [
        (["update_at", "id"], None, True),
        (["update_at", "id"], ("update_at",), True),
        (["update_at", "id"], ("id",), False),
        (["update_at", "id"], (), False),
        ([], (), True),
        ([], ("id",), False),
        ([], None, True),
        (["update_at"], ("update_at", "id"), False),
    ],
)
def test_what_a_configuration_keeps(
    known: list[str], configured: tuple[str, ...] | None, kept: bool
) -> None:
    assert keeps([CursorColumn(name) for name in known], configured) == kept
