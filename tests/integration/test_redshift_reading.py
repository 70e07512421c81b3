"""Reading rows back from Redshift: through a cursor, or by UNLOAD through the lake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from floodmark.config.models import LakeSettings, RedshiftConnection
from floodmark.errors import FloodmarkError
from floodmark.model.lake_layout import unload_folder
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.notice import Notice
from floodmark.warehouse.factory import open_reader
from floodmark.warehouse.redshift.target import RedshiftTarget
from pipelines import Pipeline, ask_once, numbers, use_redshift
from scenarios import BUCKET, new_lake, use_test_keys
from servers.redshift import RedshiftStandIn
from warehouses import Loads, new_redshift

pytestmark = pytest.mark.enough_on("mysql")  # it is about the target

ID = Column("id", "bigint", False, "int64")
DATA = Column("data", "longblob", True, "binary")
THINGS = TargetTable(name="Things", columns=(ID, DATA), primary_key=("id",), version=None)


@pytest.fixture
def things(
    redshift: RedshiftStandIn,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Loads:
    use_test_keys(monkeypatch)
    monkeypatch.setattr(RedshiftTarget, "unload_rows", 2)
    return Loads(new_redshift(redshift, new_lake("ministack", request, tmp_path)), THINGS)


def read(loads: Loads) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Rows as a worker reads them, and what is said meanwhile."""
    assert isinstance(loads.warehouse.connection, RedshiftConnection)
    lake = loads.warehouse.lake
    settings = LakeSettings(url=f"s3://{BUCKET}/{lake.prefix}", endpoint=lake.endpoint or None)
    said: list[Notice] = []
    with open_reader(loads.warehouse.connection, settings) as target:
        target.report = said.append
        batches = list(target.read(THINGS, []))
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return sorted(rows), [notice.message for notice in said]


def kinds(redshift: RedshiftStandIn) -> set[str]:
    return {execution.kind for execution in redshift.executed}


@pytest.mark.parametrize(
    ("rows", "longest", "by"),
    [(1, 10, "FETCH"), (3, 10, "UNLOAD"), (3, 32_767, "UNLOAD"), (3, 32_768, "FETCH")],
)
def test_many_rows_are_unloaded(
    redshift: RedshiftStandIn, things: Loads, rows: int, longest: int, by: str
) -> None:
    values = [{"id": n, "data": b"\xff" * longest if n else None} for n in range(rows)]
    things.load(things.chunk(values))
    redshift.forget()
    assert read(things) == ([tuple(value.values()) for value in values], [])
    assert by in kinds(redshift)
    assert not kinds(redshift) >= {"FETCH", "UNLOAD"}
    assert not list(things.warehouse.lake.open().list_objects("loads/"))


def test_a_cursor_would_be_too_large(redshift: RedshiftStandIn, things: Loads) -> None:
    things.load(things.chunk([{"id": n, "data": b"x" * 100} for n in range(3)]))
    redshift.cursor_bytes = 200
    try:
        assert len(read(things)[0]) == 3
    finally:
        redshift.forget()


def test_missing_unload_privilege_is_reported_and_reading_continues(
    redshift: RedshiftStandIn, things: Loads
) -> None:
    things.load(things.chunk([{"id": n, "data": None} for n in range(3)]))
    redshift.may_unload = False
    try:
        rows, said = read(things)
        with things.warehouse.open() as target:
            ((remark, hint),) = target.probe().remarks
    finally:
        redshift.forget()
    assert [row[0] for row in rows] == [0, 1, 2]
    assert len(said) == 1
    assert "rows are read through a cursor, as UNLOAD failed" in said[0]
    assert "Access Denied" in said[0]
    assert "UNLOAD failed" in remark
    assert "redshift-permissions.md" in hint
    with things.warehouse.open() as target:
        assert target.probe().remarks == ()
    assert not list(things.warehouse.lake.open().list_objects("loads/"))


def test_rows_that_are_missing_from_the_files_are_noticed(
    things: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    things.load(things.chunk([{"id": n, "data": None} for n in range(3)]))
    unload = RedshiftTarget._unload
    monkeypatch.setattr(RedshiftTarget, "_unload", lambda *given: unload(*given) + 1)
    with pytest.raises(FloodmarkError, match=r"unloaded 4 rows, but its files .* hold 3"):
        read(things)


def test_verification_reports_a_role_without_unload_privilege(
    redshift: RedshiftStandIn, pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedshiftTarget, "unload_rows", 2)
    it = pipeline({"t": "{cursor: id}"}, lake="ministack")
    use_redshift(it, redshift, schema=f"s_{it.schema[-8:]}")
    # A DOUBLE has no checksum in Redshift, so that it is read.
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, f DOUBLE)"
        f" AS SELECT seq AS id, seq / 2 AS f FROM {numbers(1, 9)}",
    )
    redshift.may_unload = False
    try:
        ended = it.call("sync", "-p", "main", "--verify-data=new", "--json")
    finally:
        redshift.forget()
    assert ended.code == 0, ended
    verified = ended.table["verification"]
    assert (verified["rows"], len(verified["remarks"])) == (9, 1)
    assert "UNLOAD failed" in ended.err


def test_each_table_has_its_own_folder_for_unloads() -> None:
    assert unload_folder("My Table") == unload_folder("my table") == "loads/unloads/my=20table/"
    assert unload_folder("Orders_2.x-y") == "loads/unloads/orders_2.x-y/"
    names = ["u t", "u_t", "u=20t", "u/t", "é", "É", "e"]
    assert len({unload_folder(name) for name in names}) == len(names)
    assert all(unload_folder(name).count("/") == 3 for name in names)
