"""Redshift goes away in the middle of a load, or has something in between: exactly once anyway."""

from pathlib import Path
from typing import Any

import pytest

from floodmark.errors import FloodmarkError
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.standing import Head
from floodmark.warehouse.backend import PassingConflict
from floodmark.warehouse.sql import TRIES
from scenarios import new_lake, use_test_keys
from servers.redshift import RedshiftStandIn
from servers.redshift.faults import (
    SERIALIZATION_VIOLATION,
    DropAfter,
    DropBefore,
    Fail,
    Fault,
    at,
    first,
)
from warehouses import Loads, new_redshift

ID = Column("id", "bigint", False, "int64")
NAME = Column("name", "varchar(10)", True, "string")
KEYED = TargetTable(name="keyed", columns=(ID, NAME), primary_key=("id",), version="id")
UNKEYED = TargetTable(name="unkeyed", columns=(ID, NAME), primary_key=(), version=None)


def row(number: int, name: str = "first") -> dict[str, Any]:
    return {"id": number, "name": name}


@pytest.fixture(params=[KEYED, UNKEYED], ids=["with a key", "without"])
def loads(
    redshift: RedshiftStandIn,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Loads:
    use_test_keys(monkeypatch)
    warehouse = new_redshift(redshift, new_lake("ministack", request, tmp_path))
    made = Loads(warehouse, request.param)
    made.load(made.chunk([row(1), row(2)]))
    return made


def ledger(loads: Loads) -> dict[Head, int]:
    with loads.warehouse.open() as target:
        return {entry.head: entry.rows for entry in target.ledger(loads.source, 1)}


@pytest.mark.parametrize("fault", [DropBefore(), DropAfter()], ids=["before", "after"])
def test_the_connection_is_lost_at_any_statement(
    redshift: RedshiftStandIn, loads: Loads, fault: Fault
) -> None:
    """Each time the load is repeated afterwards, and then the manifest is there once."""
    held = [row(1), row(2)]
    for number in range(1, 60):
        chunk = loads.chunk([row(100 + number)])
        with loads.warehouse.open() as target:
            redshift.forget()
            redshift.plan = at(number, fault)
            try:
                target.load(loads.batch(chunk))
            except FloodmarkError as error:
                assert "connection to Redshift" in error.message  # noqa: PT017
                assert "run it again" in str(error.hint)  # noqa: PT017
                lost = redshift.executed[number - 1].kind
            else:
                lost = ""
        redshift.forget()
        committed = isinstance(fault, DropAfter) and lost == "COMMIT"
        assert loads.load(chunk) == (0 if committed or not lost else 1), lost
        held.append(row(100 + number))
        assert loads.rows() == sorted(held, key=repr)
        assert sum(ledger(loads).values()) == len(held)
        if not lost:
            assert number > 8
            return
    raise AssertionError("the load never ended")


@pytest.mark.parametrize("kind", ["LOCK", "COPY", "INSERT", "COMMIT"])
@pytest.mark.parametrize(
    "fault", [SERIALIZATION_VIOLATION, Fail("could not serialize access", "40001")]
)
def test_a_serialization_violation_is_tried_again(
    redshift: RedshiftStandIn, loads: Loads, kind: str, fault: Fail
) -> None:
    chunk = loads.chunk([row(3)])
    redshift.forget()
    redshift.plan = first(TRIES - 1, kind, fault)
    assert loads.load(chunk) == 1
    assert [e.kind for e in redshift.executed].count("BEGIN") == TRIES
    assert loads.rows() == [row(1), row(2), row(3)]
    assert loads.load(chunk) == 0


def test_it_is_not_tried_forever(redshift: RedshiftStandIn, loads: Loads) -> None:
    chunk = loads.chunk([row(3)])
    redshift.plan = first(TRIES, "COMMIT", SERIALIZATION_VIOLATION)
    with pytest.raises(PassingConflict, match="Serializable isolation violation"):
        loads.load(chunk)
    assert loads.rows() == [row(1), row(2)]
    assert loads.load(chunk) == 1


def test_another_error_is_not_tried_again(redshift: RedshiftStandIn, loads: Loads) -> None:
    chunk = loads.chunk([row(3)])
    redshift.forget()
    redshift.plan = first(9, "INSERT", Fail("Disk Full", "53100"))
    with pytest.raises(FloodmarkError, match="Disk Full"):
        loads.load(chunk)
    assert [e.kind for e in redshift.executed].count("BEGIN") == 1
    assert loads.rows() == [row(1), row(2)]
