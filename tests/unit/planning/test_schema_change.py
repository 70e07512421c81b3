"""What has changed between two readings of a table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import FloodmarkError
from floodmark.model.manifest import Column
from floodmark.model.table import TableName
from floodmark.planning.schema_change import column_changes, possible_renames, refuse_changes

TABLE = TableName("A", "b", "t")


def columns(text: str) -> list[Column]:
    """Columns as `a int, b text!`; the mark means NOT NULL."""
    pairs = (part.split() for part in text.split(", ") if part)
    return [Column(name, kind.rstrip("!"), not kind.endswith("!"), kind) for name, kind in pairs]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("a int, b text", "B text, a int", []),
        ("a int", "a int, b text", ["b (text) is new"]),
        ("a int, b text", "a int", ["b (text) is gone"]),
        ("a int", "a bigint", ["a was int and is now bigint"]),
        ("a int!", "a int", ["a was int NOT NULL and is now int"]),
        (
            "a int, b text, c int",
            "a int, d text, c int",
            [
                "d (text) is new, perhaps b under a new name",
                "b (text) is gone, perhaps renamed to d",
            ],
        ),
        ("a int, b text", "a int, d int", ["d (int) is new", "b (text) is gone"]),
        ("b text, a int", "a int, d text", ["d (text) is new", "b (text) is gone"]),
    ],
)
def test_changes(before: str, now: str, expected: list[str]) -> None:
    assert list(map(str, column_changes(columns(before), columns(now)))) == expected


def test_a_hash_of_an_older_version_lacks_its_source() -> None:
    before = [Column("a", "char(64)", True, "string")]
    now = [Column("a", "char(64)", True, "string", "int")]
    assert column_changes(before, now) == []
    assert len(column_changes(now, [Column("a", "char(64)", True, "string", "text")])) == 1


def test_stopping_at_changes() -> None:
    refuse_changes(TABLE, [], columns("a int"))
    refuse_changes(TABLE, columns("a int, b text"), columns("b text, a int"))
    for before, now in (("a int", "a int, b int"), ("a int, b int", "b int, a int")):
        with pytest.raises(FloodmarkError, match="'schema_changes' is 'stop'"):
            refuse_changes(TABLE, columns(before), columns(now))


KINDS = st.sampled_from(["int", "text", "int!"])
TABLES = st.lists(st.tuples(st.sampled_from("abcdef"), KINDS), unique_by=lambda c: c[0]).map(
    lambda found: columns(", ".join(f"{name} {kind}" for name, kind in found))
)


@given(TABLES, TABLES)
def test_each_difference_is_found_once(before: list[Column], now: list[Column]) -> None:
    changes = {change.name: change for change in column_changes(before, now)}
    old, new = ({column.name: column for column in each} for each in (before, now))
    assert set(changes) == {n for n in old.keys() | new.keys() if old.get(n) != new.get(n)}
    assert all((c.before, c.now) == (old.get(n), new.get(n)) for n, c in changes.items())
    renames = possible_renames(before, now)
    assert len(set(renames.values())) == len(renames)
    for name, gone in renames.items():
        assert name not in old
        assert gone not in new
        assert (new[name].type, new[name].nullable) == (old[gone].type, old[gone].nullable)
