"""The stand-in's scenarios on a real cluster; skipped unless its address is in the environment.

With the address there, the whole contract suite of targets runs on it, too:

    FLOODMARK_REDSHIFT_URL=redshift://user:password@host:5439/database
    FLOODMARK_REDSHIFT_LAKE=s3://bucket/prefix    reached with the usual AWS credentials
    FLOODMARK_REDSHIFT_ROLE=arn:aws:iam::…        or `default`: how the cluster reads that lake

    pytest -m real_redshift
"""

from collections.abc import Iterator
from typing import Any

import pytest

from floodmark.errors import FloodmarkError
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from warehouses import Loads, real_redshift

ID = Column("id", "bigint", False, "int64")
NAME = Column("name", "varchar(10)", True, "string")
MOMENT = Column("update_at", "timestamp(6)", True, "timestamp[us, UTC]")
PEOPLE = TargetTable(
    name="people", columns=(ID, NAME, MOMENT), primary_key=("id",), version="update_at"
)

pytestmark = pytest.mark.real_redshift


@pytest.fixture
def people() -> Iterator[Loads]:
    warehouse = real_redshift()
    if warehouse is None:
        pytest.skip("FLOODMARK_REDSHIFT_URL, _LAKE and _ROLE are not set")
    yield Loads(warehouse, PEOPLE)
    warehouse.query("DROP SCHEMA IF EXISTS {schema} CASCADE")


def row(number: int, name: str = "somebody") -> dict[str, Any]:
    return {"id": number, "name": name, "update_at": None}


def test_a_manifest_is_loaded_once(people: Loads) -> None:
    chunk = people.chunk([row(1)], [row(2)])
    assert people.load(chunk) == 2
    assert people.load(chunk) == 0
    assert people.rows() == [row(1), row(2)]


def test_text_that_is_too_long_is_named(people: Loads) -> None:
    with pytest.raises(FloodmarkError, match="COPY failed") as caught:
        people.load(people.chunk([row(1, "x" * 41)]))
    assert "name" in caught.value.message
