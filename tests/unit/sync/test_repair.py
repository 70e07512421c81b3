"""A key is the same however it is printed."""

import pytest

from floodmark.model.schema import SourceColumn
from floodmark.sync.repair import normal_key


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [
        ("datetime(6)", "2025-06-01 00:00:00.000000", "2025-06-01 00:00:00"),
        ("timestamp(3)", "2025-06-01 00:00:00.120", "2025-06-01 00:00:00.12"),
        ("date", "2025-06-01", "2025-06-01"),
        ("decimal(8,2) zerofill", "000001.50", "1.5"),
        ("decimal(8,2)", "100.00", "100"),
        ("double", "1e2", "100.0"),
        ("time(6)", "10:00:00.500000", "10:00:00.5"),
        ("varchar(9)", "1.50", "1.50"),
        ("datetime", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    ],
)
def test_a_key_that_two_databases_print(kind: str, left: str, right: str) -> None:
    name = kind.partition("(")[0].split()[0]
    column = SourceColumn(name="k", data_type=name, column_type=kind, nullable=False)
    assert normal_key([column], (left,)) == normal_key([column], (right,))


def test_other_keys_are_others() -> None:
    column = SourceColumn(name="k", data_type="varchar", column_type="varchar(9)", nullable=False)
    assert normal_key([column], ("1.50",)) != normal_key([column], ("1.5",))
