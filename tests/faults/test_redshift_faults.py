"""Redshift or the network fails during a load: rows are still loaded exactly once."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from floodmark.config.logins import LOGINS
from floodmark.config.models import RedshiftConnection
from floodmark.errors import FloodmarkError, PassingConflict
from floodmark.model.load import TargetTable
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Column
from floodmark.model.notice import Notice
from floodmark.warehouse.lake_reader import LakeFiles
from floodmark.warehouse.redshift.locks import lock_name
from floodmark.warehouse.redshift.target import RedshiftTarget
from floodmark.warehouse.sql_target import TRIES
from scenarios import new_lake, use_test_keys
from servers.dropping import CommitDropper
from servers.redshift import RedshiftStandIn
from servers.redshift.faults import (
    CANCELLED,
    DENIED,
    ELSEWHERE,
    NOT_SERIALIZABLE,
    S3_FORBIDDEN,
    SERIALIZATION_VIOLATION,
    DropAfter,
    DropBefore,
    Execution,
    Fail,
    Fault,
    at,
    first,
)
from warehouses import Loads, Warehouse, new_redshift

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


def ledger(loads: Loads) -> dict[ManifestId, int]:
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
    "fault",
    [*NOT_SERIALIZABLE, Fail("could not serialize access", "40001")],
    ids=["1023", "conflict", "1018", "OID", "40001"],
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


@pytest.mark.parametrize(
    ("fault", "hint"),
    [
        (DENIED, "grant the user the missing privilege"),
        (S3_FORBIDDEN, "let the role read the lake"),
        (CANCELLED, "run it again"),
        (ELSEWHERE, "in the region of the cluster"),
    ],
    ids=["denied", "S3", "cancelled", "region"],
)
@pytest.mark.parametrize("kind", ["COPY", "INSERT"])
def test_what_is_not_about_data_reads_nothing_of_the_lake(
    redshift: RedshiftStandIn,
    loads: Loads,
    kind: str,
    fault: Fail,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LakeFiles, "batches", unwanted)
    redshift.plan = first(9, kind, fault)
    with pytest.raises(FloodmarkError) as caught:
        loads.load_what_fits(loads.chunk([row(3)]))
    assert hint in str(caught.value.hint)
    assert (kind == "COPY") is ("Redshift can only read S3 on AWS" in str(caught.value.hint))
    assert loads.rows() == [row(1), row(2)]


def unwanted(*_: object) -> None:
    raise AssertionError("nothing is wrong with the rows")


@pytest.mark.parametrize("said", [b"LOCK TABLE", b"COPY ", b"COMMIT"])
def test_a_connection_that_is_dropped_in_silence_does_not_hang(
    redshift: RedshiftStandIn, loads: Loads, said: bytes
) -> None:
    chunk = loads.chunk([row(3)])
    with CommitDropper(redshift.port) as device:
        direct = loads.warehouse.connection
        assert isinstance(direct, RedshiftConnection)
        settings = structs.replace(direct, port=device.port)
        with Warehouse(settings, loads.warehouse.lake).open() as target:
            assert isinstance(target, RedshiftTarget)
            target.quiet_seconds = 0.1
            device.forget_at = said
            with pytest.raises(FloodmarkError, match="no longer has the session") as caught:
                target.load(loads.batch(chunk))
    assert "run it again" in str(caught.value.hint)
    assert loads.load(chunk) == 1
    assert loads.rows() == [row(1), row(2), row(3)]


def test_who_waits_for_long_is_asked_about_and_left_alone(
    redshift: RedshiftStandIn, loads: Loads
) -> None:
    """The load waits for a lock, and nobody can tell what became of its session."""
    notices: list[Notice] = []
    refused = threading.Event()

    def refuse(execution: Execution) -> Fault | None:
        return DENIED if "stv_sessions" in execution.sql else None

    def hear(notice: Notice) -> None:
        notices.append(notice)
        refused.set()

    redshift.plan = refuse
    chunk = loads.chunk([row(3)])
    with loads.warehouse.open() as holder, loads.warehouse.open() as target:
        assert isinstance(target, RedshiftTarget)
        target.quiet_seconds, target.report = 0.1, hear
        holder._begin()
        holder._execute(f"LOCK TABLE {holder._name(lock_name(loads.table.name))}")
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(target.load, loads.batch(chunk))
            assert refused.wait(30)
            holder._rollback()
            assert loading.result() == 1
    assert "its sessions cannot be read" in notices[0].message


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the driver that is refused
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_refused_login_of_the_watchdog_does_not_stop_others(
    redshift: RedshiftStandIn, loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    LOGINS.forget()
    refused = threading.Event()
    chunk = loads.chunk([row(3)])
    with loads.warehouse.open() as holder, loads.warehouse.open() as target:
        assert isinstance(target, RedshiftTarget)
        target.quiet_seconds, target.report = 0.1, lambda _: refused.set()
        holder._begin()
        holder._execute(f"LOCK TABLE {holder._name(lock_name(loads.table.name))}")
        tried = redshift.logins.tried
        with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patched:
            patched.setattr(redshift.logins, "password", "another")
            loading = pool.submit(target.load, loads.batch(chunk))
            assert refused.wait(30)
            time.sleep(0.3)  # further attempts could lock the user
            assert redshift.logins.tried == tried + 1
            patched.undo()
            holder._rollback()
            assert loading.result() == 1
    assert loads.rows() == [row(1), row(2), row(3)]
    gc.collect()  # while warnings of sockets that drivers left behind are ignored


def test_another_error_is_not_tried_again(redshift: RedshiftStandIn, loads: Loads) -> None:
    chunk = loads.chunk([row(3)])
    redshift.forget()
    redshift.plan = first(9, "INSERT", Fail("Disk Full", "53100"))
    with pytest.raises(FloodmarkError, match="Disk Full"):
        loads.load(chunk)
    assert [e.kind for e in redshift.executed].count("BEGIN") == 1
    assert loads.rows() == [row(1), row(2)]
