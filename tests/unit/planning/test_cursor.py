"""The choice of a cursor, from the configuration or from the schema."""

import pytest
from msgspec import structs

from floodmark.errors import ConfigError
from floodmark.model.cursor import Cursor, CursorChoice
from floodmark.model.schema import SourceColumn, SourceIndex, SourceTable
from floodmark.model.table import TableName
from floodmark.planning.cursor import SMALL_TABLE_ROWS, choose_cursor
from floodmark.planning.indexes import serving_index


def column(
    name: str,
    data_type: str = "int",
    *,
    nullable: bool = False,
    auto_increment: bool = False,
    on_update: bool = False,
    fraction: int | None = None,
) -> SourceColumn:
    return SourceColumn(
        name=name,
        data_type=data_type,
        column_type=data_type,
        nullable=nullable,
        auto_increment=auto_increment,
        on_update=on_update,
        fraction=fraction,
    )


ID = column("id", "bigint", auto_increment=True)
CODE = column("code", "varchar")
UPDATE_AT = column("update_at", "datetime", on_update=True, fraction=0)


def table(
    *columns: SourceColumn,
    key: tuple[str, ...] = (),
    indexes: tuple[tuple[str, ...], ...] = (),
    ordered: bool = True,
) -> SourceTable:
    primary = (SourceIndex(name="PRIMARY", columns=key, unique=True),) if key and ordered else ()
    return SourceTable(
        name=TableName("S", "shop", "orders"),
        columns=columns,
        primary_key=key,
        indexes=(
            *(SourceIndex(name="_".join(names), columns=names, unique=False) for names in indexes),
            *primary,
        ),
    )


ORDERS = table(ID, CODE, UPDATE_AT, key=("id",), indexes=(("update_at",),))


def test_time_and_key_are_found() -> None:
    choice = choose_cursor(ORDERS, None)
    assert choice.cursor == Cursor(kind="timestamp", timestamp="update_at", key=("id",))
    assert choice.index == "update_at"
    assert choice.warnings == ()
    assert "index update_at supports (update_at, id)" in choice.reasons


@pytest.mark.parametrize(
    "name",
    ["updated_at", "update_time", "modified", "last_modified", "gmt_modified", "UpdateTime"],
)
def test_a_column_is_found_by_its_name(name: str) -> None:
    choice = choose_cursor(table(ID, column(name, "timestamp"), key=("id",)), None)
    assert choice.cursor.timestamp == name
    assert any("'lag_seconds'" in warning for warning in choice.warnings)


def test_a_name_counts_more_than_on_update() -> None:
    login = column("login_at", "timestamp", on_update=True)
    assert (
        choose_cursor(table(ID, login, UPDATE_AT, key=("id",)), None).cursor.timestamp
        == "update_at"
    )


@pytest.mark.parametrize("name", ["create_at", "date_of_update_plan", "updated_by"])
def test_other_names_are_not_found(name: str) -> None:
    choice = choose_cursor(table(ID, column(name, "datetime"), key=("id",)), None)
    assert choice.cursor == Cursor(kind="id", key=("id",))
    assert "id only grows with inserts: updated rows are not seen" in choice.warnings


def test_without_a_cursor_the_whole_table_is_read() -> None:
    assert choose_cursor(table(CODE, key=("code",)), None).cursor.kind == "none"
    assert choose_cursor(ORDERS, ()).cursor.kind == "none"


def test_the_primary_key_breaks_ties_whatever_it_is() -> None:
    composite = table(UPDATE_AT, CODE, ID, key=("code", "id"), indexes=(("update_at",),))
    choice = choose_cursor(composite, ("update_at",))
    assert choice.cursor.columns == ("update_at", "code", "id")
    assert choice.index == "update_at"


def test_without_a_primary_key_rows_can_tie() -> None:
    choice = choose_cursor(table(CODE, UPDATE_AT, indexes=(("update_at",),)), ("update_at",))
    assert choice.cursor == Cursor(kind="timestamp", timestamp="update_at", unique=False)
    assert any("can tie" in warning for warning in choice.warnings)


def test_a_key_that_cannot_be_compared_is_left_out() -> None:
    kinds = table(column("kind", "enum"), UPDATE_AT, key=("kind",))
    choice = choose_cursor(kinds, ("update_at",))
    assert (choice.cursor.key, choice.cursor.unique) == ((), False)
    with pytest.raises(ConfigError, match="cannot break ties"):
        choose_cursor(kinds, ("update_at", "kind"))


def test_missing_index_and_nullable_columns_are_named() -> None:
    late = column("update_at", "datetime", nullable=True)
    large = structs.replace(table(ID, late, key=("id",)), estimated_rows=SMALL_TABLE_ROWS)
    choice = choose_cursor(large, ("update_at", "id"))
    assert choice.index is None
    assert any("no index on (update_at, id)" in warning for warning in choice.warnings)
    assert any("update_at may be NULL" in warning for warning in choice.warnings)


def test_a_small_table_needs_no_index() -> None:
    small = structs.replace(
        table(ID, column("update_at", "datetime"), key=("id",)), estimated_rows=16_000
    )
    choice = choose_cursor(small, ("update_at", "id"))
    assert not any("no index on" in warning for warning in choice.warnings)
    assert any("no index on (update_at, id)" in reason for reason in choice.reasons)


@pytest.mark.parametrize(
    ("configured", "message"),
    [
        (("updat_at",), "no column 'updat_at'"),
        (("code",), "which cannot be a cursor"),
        (("id", "update_at"), "begins with id"),
    ],
)
def test_unusable_cursors_are_refused(configured: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_cursor(ORDERS, configured)


def test_names_are_case_insensitive() -> None:
    assert choose_cursor(ORDERS, ("UPDATE_AT", "Id")).cursor.columns == ("update_at", "id")


def test_secondary_indexes_end_with_the_primary_key() -> None:
    assert serving_index(ORDERS, ("update_at", "id")) == "update_at"
    assert serving_index(ORDERS, ("update_at", "code")) is None
    assert serving_index(ORDERS, ("id",)) == "PRIMARY"
    wide = table(ID, CODE, UPDATE_AT, key=("id",), indexes=(("update_at", "code"),))
    assert serving_index(wide, ("update_at", "id")) is None
    assert serving_index(wide, ("update_at",)) == "update_at_code"


def test_a_descending_key_breaks_no_ties_if_only_the_time_has_an_index() -> None:
    def choose(*indexes: tuple[str, ...]) -> CursorChoice:
        descending = table(ID, UPDATE_AT, key=("id",), indexes=indexes, ordered=False)
        return choose_cursor(descending, ("update_at",))

    choice = choose(("update_at",))
    assert (choice.cursor.columns, choice.index) == (("update_at",), "update_at")
    assert "its index is not ascending" in choice.warnings[0]
    choice = choose(("update_at", "id"))
    assert (choice.cursor.columns, choice.index) == (("update_at", "id"), "update_at_id")
    assert choose().cursor.columns == ("update_at", "id")
    assert choose().cursor.unique


def test_nothing_is_found_for_a_table_without_a_key() -> None:
    choice = choose_cursor(table(CODE, UPDATE_AT, indexes=(("update_at",),)), None)
    assert choice.cursor.kind == "none"
    assert "no primary key" in choice.reasons[0]
