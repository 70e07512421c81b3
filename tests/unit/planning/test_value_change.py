"""What a change of type does to values, and which columns may have swapped names."""

import pytest

from floodmark.model.manifest import Column
from floodmark.planning.value_change import exchanged, value_change


def column(kind: str, name: str = "v", source: str | None = None) -> Column:
    arrow = "bool" if kind == "bit(1)" else "string" if "(65," in kind else "x"
    return Column(name, kind, True, arrow, source)


SAME = [
    ("int", "bigint"),
    ("int(11)", "int"),
    ("int unsigned", "bigint"),
    ("int unsigned", "bigint unsigned"),
    ("int(5) unsigned zerofill", "bigint unsigned"),
    ("int", "decimal(10,0)"),
    ("int", "double"),
    ("float", "double"),
    ("float(10,2)", "float"),
    ("double unsigned", "double"),
    ("decimal(10,2)", "decimal(12,4)"),
    ("decimal(65,30) unsigned", "decimal(65,30)"),
    ("bit(1)", "tinyint"),
    ("bit(4)", "bit(8)"),
    ("date", "datetime"),
    ("datetime", "datetime(6)"),
    ("year(4)", "year"),
    ("int", "varchar(20)"),
    ("int", "char(20)"),
    ("decimal(10,2)", "text"),
    ("varchar(5)", "varchar(20)"),
    ("varchar(5)", "text"),
    ("varchar(63)", "tinytext"),
    ("char(5)", "varchar(5)"),
    ("char(5)", "char(9)"),
    ("tinytext", "text"),
    ("tinytext", "varchar(255)"),
    ("varbinary(4)", "blob"),
    ("enum('a')", "enum('b','a')"),
    ("enum('abc','d')", "varchar(3)"),
    ("set('a','b')", "set('a','b','c')"),
    ("set('a','b')", "varchar(3)"),
]
PERHAPS_CUT = [
    ("bigint", "int"),
    ("int", "int unsigned"),
    ("bigint", "bigint unsigned"),
    ("tinyint", "bigint unsigned"),
    ("bigint unsigned", "bigint"),
    ("varchar(20)", "varchar(5)"),
    ("varchar(100)", "tinytext"),
    ("text", "tinytext"),
    ("text", "varchar(255)"),
    ("blob", "varbinary(4)"),
]
UNKNOWN = [
    ("int", "decimal(5,0)"),
    ("int", "decimal(20,0) unsigned"),
    ("int", "float"),
    ("bigint", "double"),
    ("double", "float"),
    ("double", "double unsigned"),
    ("double", "double(10,2)"),
    ("decimal(10,2)", "decimal(11,4)"),
    ("decimal(10,2)", "decimal(10,2) unsigned"),
    ("decimal(10,2)", "decimal(65,30)"),
    ("decimal(10,2)", "int"),
    ("smallint", "year"),
    ("year", "int"),
    ("year", "varchar(20)"),
    ("bigint", "bit(64)"),
    ("bit(8)", "bit(4)"),
    ("bit(8)", "tinyint"),
    ("datetime", "date"),
    ("datetime(6)", "datetime"),
    ("timestamp", "datetime"),
    ("date", "varchar(20)"),  # a zero date was NULL
    ("double", "varchar(40)"),
    ("int", "varchar(3)"),
    ("int(5) unsigned zerofill", "varchar(20)"),
    ("varchar(20)", "int"),
    ("varchar(20)", "char(64)"),
    ("char(64)", "varchar(64)"),  # it may have been a hash
    ("char(9)", "char(5)"),
    ("text", "char(9)"),
    ("time", "time(3)"),
    ("json", "longtext"),
    ("longtext", "json"),
    ("uuid", "binary(16)"),
    ("uuid", "varchar(40)"),
    ("binary(5)", "binary(8)"),
    ("binary(5)", "varbinary(8)"),
    ("varbinary(8)", "binary(8)"),
    ("varbinary(8)", "varchar(8)"),
    ("varchar(8)", "varbinary(8)"),
    ("enum('a','b')", "enum('a')"),
    ("enum('abc')", "varchar(2)"),
    ("enum('abc')", "char(2)"),
    ("enum('a')", "set('a')"),
    ("set('a','b')", "set('b','a')"),
    ("set('a','b')", "set('a')"),
    ("set('a','b')", "enum('a','b')"),
    ("set('a','b')", "varchar(2)"),
    ("point", "blob"),
]


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        *((*pair, "same") for pair in SAME),
        *((*pair, "perhaps cut") for pair in PERHAPS_CUT),
        *((*pair, "unknown") for pair in UNKNOWN),
    ],
)
def test_what_a_change_of_type_does_to_values(before: str, now: str, change: str) -> None:
    assert value_change(column(before), column(now)) == change
    assert value_change(column(now), column(now)) == "same"
    assert value_change(None, column(now)) == "unknown"


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        ("decimal(10,2)", "decimal(10,4)", "unknown"),
        ("decimal(10,2)", "decimal(12,2)", "same"),
        ("int", "bigint", "same"),
        ("int", "decimal(12,2)", "unknown"),
        ("int unsigned", "int(9) unsigned zerofill", "unknown"),
        ("datetime", "datetime(6)", "unknown"),
        ("float", "double", "unknown"),
        ("varchar(5)", "text", "same"),
        ("varchar(5)", "varchar(3)", "perhaps cut"),
    ],
)
def test_a_hash_is_of_the_sources_text(before: str, now: str, change: str) -> None:
    hashes = [column("char(64)", source=kind) for kind in (before, now)]
    assert value_change(hashes[0], hashes[1]) == change
    assert value_change(column("char(64)"), hashes[1]) == "same"  # an older version's manifest
    assert value_change(hashes[0], column("char(64)")) == "unknown"


@pytest.mark.parametrize(
    ("before", "now", "names"),
    [
        ("a b c", "b a c", {"a", "b"}),
        ("a x b", "b x A", {"a", "b"}),
        ("a b c", "b a new c", {"a", "b"}),
        ("a gone b", "a b", set()),
        ("a x", "x a", set()),
        ("a b c", "c a b", set()),
        ("A b", "a B", set()),
    ],
)
def test_columns_that_swapped_places(before: str, now: str, names: set[str]) -> None:
    def columns(text: str) -> list[Column]:
        return [column("date" if n == "x" else "int", n) for n in text.split()]

    assert exchanged(columns(before), columns(now)) == names
