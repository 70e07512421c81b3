"""Which columns are compared by checksum, and how their text is part of a row's."""

import pytest

from floodmark.model.manifest import Column
from floodmark.model.row_checksums import CheckedColumn
from floodmark.planning.row_checksums import checked_columns, compared_columns
from floodmark.warehouse.postgres.canonical_text import joined
from floodmark.warehouse.row_checksums import Field, _family, _window

ID = Column("id", "int", False, "int32")
NOTE = Column("note", "varchar(20)", True, "string")
STORY = Column("story", "longtext", True, "string")


def forms(*columns: Column) -> list[str] | None:
    found = checked_columns(columns)
    return None if found is None else [column.form for column in found]


def test_short_text_is_framed_and_long_text_shortened() -> None:
    kinds = {
        "char": "framed",
        "varchar(255)": "framed",
        "varchar(256)": "shortened",
        "tinytext": "framed",
        "text": "shortened",
        "json": "shortened",
        "enum('a','b')": "framed",
        "time(6)": "framed",
        "uuid": "framed",
        "decimal(65,30)": "framed",
    }
    for kind, form in kinds.items():
        assert forms(Column("v", kind, True, "string")) == [form], kind
    assert forms(Column("v", "varbinary(9)", True, "binary")) == ["framed"]
    assert forms(Column("v", "blob", True, "binary")) == ["shortened"]
    assert forms(ID, Column("f", "double", True, "float64")) == ["plain", "plain"]


def test_a_row_never_has_more_text_than_a_database_allows() -> None:
    wide = [Column(f"v{n}", "varchar(255)", True, "string") for n in range(110)]
    assert forms(ID, *wide[:50]) == ["plain", *["framed"] * 50]
    assert forms(ID, *wide) == ["plain", *["shortened"] * 110]
    assert forms(ID, *wide, *wide) is None


def test_the_first_json_comes_last_if_a_row_may_have_any_length() -> None:
    one, other = (Column(name, "json", True, "string") for name in ("one", "other"))
    found = checked_columns([ID, one, other, NOTE], any_length=True) or ()
    assert [column.name for column in found] == ["id", "other", "note", "one"]
    assert [column.form for column in found] == ["plain", "shortened", "framed", "last"]
    assert forms(ID, one, other) == ["plain", "shortened", "shortened"]


def test_columns_that_are_read_need_the_key() -> None:
    checked = checked_columns([ID, NOTE, STORY]) or ()
    everything = ("id", "note", "story")

    def decided(key: tuple[str, ...], checkable: tuple[str, ...]) -> tuple[list[str], list[str]]:
        found = compared_columns([ID, NOTE, STORY], key, checked, checkable)
        return [column.name for column in found.checked], list(found.read)

    assert decided(("id",), everything) == (list(everything), [])
    assert decided((), everything) == (list(everything), [])
    assert decided(("id",), ("id", "note")) == (["id", "note"], ["story"])
    assert decided((), ("id", "note")) == ([], list(everything))
    assert decided(("note",), ("id", "story")) == ([], list(everything))
    assert decided(("id",), ()) == ([], list(everything))
    assert isinstance(checked[0], CheckedColumn)


@pytest.mark.parametrize("windows", range(1, 12))
def test_the_window_of_a_row_is_found_by_bisection(windows: int) -> None:
    ends = [f"n <= {end}" for end in range(windows - 1)]
    sql = _window(ends)
    assert sql.count("CASE") == windows - 1
    for row in range(windows):
        assert run(sql, row) == row


def run(sql: str, n: int) -> int:
    """Evaluate nested CASEs."""
    import duckdb

    answer = duckdb.execute(f"SELECT {sql} FROM (SELECT {n} AS n)").fetchone()
    assert answer is not None
    return int(answer[0])


def test_a_type_that_holds_values_in_another_form_has_no_text() -> None:
    price = Column("price", "decimal(10,2)", True, "decimal128(10, 2)")
    flag = Column("flag", "bit(1)", True, "bool")
    wide = Column("wide", "decimal(60,30)", True, "string")
    moment = Column("moment", "timestamp", True, "timestamp[us, UTC]")
    assert _family(price, "numeric(12,2)") == "decimal"
    assert _family(price, "DECIMAL(10,2)") == "decimal"
    assert _family(price, "numeric(12,3)") is None
    assert _family(price, "numeric") is None
    assert _family(price, "bigint") is None
    assert _family(price, "text") is None
    assert _family(ID, "BIGINT") == "integer"
    assert _family(ID, "numeric(20,0)") == "decimal"
    assert _family(ID, "numeric(20,1)") is None
    assert _family(ID, "DOUBLE") is None
    assert _family(flag, "smallint") == "integer"
    assert _family(wide, "numeric(60,30)") == "decimal"
    assert _family(wide, "numeric(60,29)") is None
    assert _family(wide, "VARCHAR(63)") == "text"
    assert _family(moment, "timestamp(6) without time zone") == "timestamp"
    assert _family(STORY, "jsonb") is None
    assert _family(Column("doc", "json", True, "string"), "jsonb") == "json"
    assert _family(STORY, "") is None


def test_postgresql_concatenates_at_most_a_hundred_values_at_once() -> None:
    fields = [Field(f"t{n}", f"t{n}") for n in range(125)]
    groups = joined(fields).split(" || ")
    assert len(groups) == 3
    for group in groups:
        assert group.startswith("concat_ws(',', t")
        assert group.endswith(" END, '')")
        assert group.count(", ") + 1 <= 100
    assert joined(fields[:49]).count("concat_ws(") == 1
