"""Columns that are excluded, hashed or read as booleans."""

import pytest

from floodmark.errors import ConfigError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import ColumnChoices
from floodmark.model.manifest import Column
from floodmark.model.schema import SourceColumn, SourceTable
from floodmark.model.table import TableName
from floodmark.mysql.types import plan_columns
from floodmark.planning.columns import check_choices, leave_out_new

TABLE = SourceTable(
    name=TableName("S", "a", "b"),
    columns=tuple(
        SourceColumn(name=name, data_type=kind, column_type=f"{kind}(9)", nullable=True)
        for name, kind in (
            ("id", "int"),
            ("Mail", "varchar"),
            ("photo", "blob"),
            ("size", "decimal"),
            ("shape", "point"),
            ("flag", "tinyint"),
            ("odd", "vector"),
        )
    ),
    primary_key=("id",),
    indexes=(),
)
CURSOR = Cursor(kind="none")


def test_choices_have_the_servers_spelling() -> None:
    choices = ColumnChoices(exclude=("ODD",), hash=("mail",), booleans=("Flag",))
    found = check_choices(TABLE, CURSOR, choices)
    assert found == ColumnChoices(exclude=("odd",), hash=("Mail",), booleans=("flag",))
    assert check_choices(TABLE, CURSOR, ColumnChoices()) == ColumnChoices()


@pytest.mark.parametrize(
    "choices",
    [
        ColumnChoices(exclude=("id",)),
        ColumnChoices(hash=("nothing",)),
        ColumnChoices(booleans=("size",)),
        ColumnChoices(exclude=("mail", "mail")),
        ColumnChoices(exclude=("mail",), booleans=("mail",)),
    ],
    ids=str,
)
def test_invalid_choices_are_refused(choices: ColumnChoices) -> None:
    with pytest.raises(ConfigError):
        check_choices(TABLE, CURSOR, choices)


def test_excluded_columns_may_have_any_type_and_hashes_have_their_own() -> None:
    choices = ColumnChoices(
        exclude=("odd",), hash=("Mail", "photo", "size", "shape"), booleans=("flag",)
    )
    plans = {plan.name: plan for plan in plan_columns(TABLE, choices=choices)}
    assert list(plans) == ["id", "Mail", "photo", "size", "shape", "flag"]
    assert {name: plan.expression for name, plan in plans.items()} == {
        "id": "`id`",
        "Mail": "SHA2(CONVERT(`Mail` USING utf8mb4), 256)",
        "photo": "SHA2(`photo`, 256)",
        "size": "SHA2(CONCAT(`size`), 256)",
        "shape": "SHA2(`shape`, 256)",
        "flag": "CONCAT(`flag`)",
    }
    assert {plan.type for name, plan in plans.items() if name in choices.hash} == {"char(64)"}
    assert plans["flag"].arrow == "bool"


def test_an_unknown_name_has_a_hint() -> None:
    def hint(name: str) -> str | None:
        with pytest.raises(ConfigError) as refused:
            check_choices(TABLE, CURSOR, ColumnChoices(exclude=(name,)))
        return refused.value.hint

    assert hint("mial") == "did you mean 'Mail'?"
    assert hint("dropped_yesterday") == "remove it from 'exclude'"


def test_new_columns_are_left_out_whatever_else_is_chosen_for_them() -> None:
    before = [Column(name, "x", True, "x") for name in ("mail", "PHOTO", "flag")]
    choices = ColumnChoices(exclude=("odd",), hash=("size", "mail"), booleans=("flag",))
    found = leave_out_new(TABLE, Cursor(kind="timestamp", timestamp="shape"), choices, before)
    assert found == ColumnChoices(exclude=("size", "odd"), hash=("mail",), booleans=("flag",))
    assert check_choices(TABLE, CURSOR, found).exclude == ("size", "odd")
