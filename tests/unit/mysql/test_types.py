"""How each MySQL type is read."""

import pytest

from floodmark.errors import UsageError
from floodmark.model.schema import SourceColumn, SourceTable
from floodmark.model.table import TableName
from floodmark.mysql.types import plan_columns, quote_name


def table_of(*columns: SourceColumn) -> SourceTable:
    return SourceTable(
        name=TableName("S", "shop", "orders"), columns=columns, primary_key=(), indexes=()
    )


def column(
    data_type: str,
    *,
    name: str = "v",
    unsigned: bool = False,
    precision: int | None = None,
    scale: int | None = None,
    nullable: bool = False,
    column_type: str | None = None,
) -> SourceColumn:
    return SourceColumn(
        name=name,
        data_type=data_type,
        column_type=column_type or data_type,
        nullable=nullable,
        unsigned=unsigned,
        precision=precision,
        scale=scale,
    )


CASES = [
    (column("tinyint", column_type="tinyint(1)"), "`v`", "int16"),
    (column("tinyint", unsigned=True), "`v`", "int16"),
    (column("smallint"), "`v`", "int16"),
    (column("smallint", unsigned=True), "`v`", "int32"),
    (column("mediumint"), "`v`", "int32"),
    (column("mediumint", unsigned=True), "`v`", "int32"),
    (column("int"), "`v`", "int32"),
    (column("int", unsigned=True), "`v`", "int64"),
    (column("bigint"), "`v`", "int64"),
    (column("bigint", unsigned=True), "`v`", "decimal128(20, 0)"),
    (column("year"), "`v`", "int16"),
    (column("decimal", precision=12, scale=4), "CONCAT(`v`)", "decimal128(12, 4)"),
    (column("decimal", precision=38, scale=30), "CONCAT(`v`)", "decimal128(38, 30)"),
    (column("decimal", precision=39, scale=0), "CONCAT(`v`)", "string"),
    (column("float"), "`v` * 1E0", "float32"),
    (column("double"), "`v`", "float64"),
    (column("bit", precision=1), "CAST(`v` AS UNSIGNED)", "bool"),
    (column("bit", precision=63), "CAST(`v` AS UNSIGNED)", "int64"),
    (column("bit", precision=64), "CAST(`v` AS UNSIGNED)", "decimal128(20, 0)"),
    (column("date"), "CONCAT(`v`)", "date32"),
    (column("datetime"), "CONCAT(`v`)", "timestamp[us]"),
    (column("timestamp"), "CONCAT(`v`)", "timestamp[us, UTC]"),
    (column("time"), "CONCAT(`v`)", "string"),
    (column("uuid"), "CONCAT(`v`)", "string"),
    (column("inet6"), "CONCAT(`v`)", "string"),
    (column("longtext"), "`v`", "string"),
    (column("enum"), "`v`", "string"),
    (column("set"), "`v`", "string"),
    (column("json"), "CAST(`v` AS CHAR)", "string"),
    (column("varbinary"), "`v`", "binary"),
    (
        column("multipolygon"),
        (
            "IF(LEFT(`v`, 4) = X'00000000', SUBSTR(`v`, 5),"
            " CONCAT(SUBSTR(`v`, 5, 4), X'20', LEFT(`v`, 4), SUBSTR(`v`, 10)))"
        ),
        "binary",
    ),
]


@pytest.mark.parametrize(
    ("source", "expression", "arrow"),
    CASES,
    ids=[f"{c.column_type}-{c.unsigned}-{c.precision}" for c, _, _ in CASES],
)
def test_expression_and_arrow_type_of_each_type(
    source: SourceColumn, expression: str, arrow: str
) -> None:
    (plan,) = plan_columns(table_of(source))
    assert (plan.expression, plan.arrow) == (expression, arrow)


def test_an_unknown_type_is_refused_with_table_and_column() -> None:
    source = column("vector", name="embedding", column_type="vector(768)")
    with pytest.raises(UsageError, match=r"S:shop\.orders.*'embedding'.*'vector\(768\)'"):
        plan_columns(table_of(source))


def test_only_columns_that_can_be_null_are_nullable() -> None:
    plans = plan_columns(
        table_of(column("int", name="a"), column("int", name="b", nullable=True), column("date"))
    )
    # A date that is never NULL may still be zero, and then it becomes NULL.
    assert [plan.nullable for plan in plans] == [False, True, True]
    assert [plan.zero_dates for plan in plans] == [False, False, True]


def test_names_are_quoted_whatever_they_contain() -> None:
    assert quote_name("a`b c'\"%") == "`a``b c'\"%`"
