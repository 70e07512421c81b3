"""The common type of two others, and what a change of type does to values."""

from functools import cache, reduce
from itertools import product

import pytest

from floodmark.model.manifest import Chunk, Column
from floodmark.model.position import START
from floodmark.planning.joined_types import join, joined_table
from floodmark.warehouse.duckdb import DuckdbTarget
from floodmark.warehouse.postgres.target import PostgresTarget
from floodmark.warehouse.redshift.target import RedshiftTarget
from floodmark.warehouse.sql_target import SqlTarget

ARROWS = {
    "smallint": "int16",
    "int": "int32",
    "int unsigned": "int64",
    "bigint": "int64",
    "bigint unsigned": "decimal128(20, 0)",
    "decimal(10,2)": "decimal128(10, 2)",
    "decimal(11,4)": "decimal128(11, 4)",
    "decimal(38,0)": "decimal128(38, 0)",
    "decimal(65,30)": "string",
    "float": "float32",
    "double": "float64",
    "bit(1)": "bool",
    "date": "date32",
    "datetime": "timestamp[us]",
    "datetime(6)": "timestamp[us]",
    "timestamp": "timestamp[us, UTC]",
    "varchar(20)": "string",
    "varchar(5)": "string",
    "char(64)": "string",
    "text": "string",
    "json": "string",
    "enum('a')": "string",
    "enum('a','b')": "string",
    "varbinary(4)": "binary",
    "blob": "binary",
    "time": "string",
}


def column(kind: str, name: str = "v") -> Column:
    return Column(name, kind, True, ARROWS[kind])


@pytest.mark.parametrize(
    ("one", "other", "kind", "arrow"),
    [
        ("smallint", "bigint", "bigint", "int64"),
        ("bit(1)", "int", "int", "int32"),
        ("bigint", "bigint unsigned", "decimal(20,0)", "decimal128(20, 0)"),
        ("decimal(10,2)", "decimal(11,4)", "decimal(12,4)", "decimal128(12, 4)"),
        ("decimal(38,0)", "decimal(11,4)", "decimal(42,4)", "string"),
        ("decimal(10,2)", "decimal(65,30)", "decimal(65,30)", "string"),
        ("int", "float", "double", "float64"),
        ("bigint", "double", "varchar(25)", "string"),
        ("decimal(10,2)", "double", "varchar(25)", "string"),
        ("date", "datetime", "datetime(6)", "timestamp[us]"),
        ("datetime", "timestamp", "varchar(29)", "string"),
        ("int", "varchar(5)", "varchar(13)", "string"),
        ("int", "varchar(20)", "varchar(20)", "string"),
        ("varchar(5)", "text", "longtext", "string"),
        ("json", "varchar(20)", "longtext", "string"),
        ("varbinary(4)", "blob", "longblob", "binary"),
        ("blob", "text", "longtext", "string"),
    ],
)
def test_the_common_type_of_two_others(one: str, other: str, kind: str, arrow: str) -> None:
    expected = Column("v", kind, True, arrow)
    assert join(column(one), column(other)) == expected
    assert join(column(other), column(one)) == expected


def test_a_table_has_the_columns_of_all_chunks_in_any_case() -> None:
    def chunk(*columns: Column) -> Chunk:
        return Chunk(start=START, end=START, files=(), strategy="sequential", columns=columns)

    gone = Column("gone", "int", False, "int32")
    chunks = [chunk(gone, column("int", "V")), chunk(column("bigint", "v"), column("date", "d"))]
    joined = joined_table("t", chunks)
    assert [(c.name, c.type, c.nullable) for c in joined.columns] == [
        ("v", "bigint", True),
        ("d", "date", True),
        ("gone", "int", True),
    ]


def targets() -> dict[str, SqlTarget]:
    """Return targets that only map types, so none is opened."""
    made: dict[str, SqlTarget] = {}
    for kind, json in (
        (DuckdbTarget, None),
        (PostgresTarget, "jsonb"),
        (PostgresTarget, "text"),
        (RedshiftTarget, "varchar"),
        (RedshiftTarget, "super"),
    ):
        target = kind.__new__(kind)
        vars(target)["_json"] = json
        made[f"{kind.__name__} {json}"] = target
    return made


@pytest.mark.parametrize("name", targets())
def test_every_target_has_the_common_type(name: str) -> None:
    """A table for manifests with three schemas takes the rows of each."""
    target = targets()[name]
    holds = cache(target._holds)
    for kinds in product(ARROWS, repeat=3):
        joined = target.column_type(reduce(join, map(column, kinds)))
        for kind in kinds:
            assert holds(target.column_type(column(kind)), joined), (kinds, kind, joined)
