"""The first hour on a real cluster: what the stand-in only believes, in the order of its weight.

On a cluster if its address is in the environment, and on the stand-in always, so that these checks
themselves are known to work. With the address there, the whole contract suite of targets runs on
the cluster, too.

    FLOODMARK_REDSHIFT_URL=redshift://user:password@host:5439/database
    FLOODMARK_REDSHIFT_LAKE=s3://bucket/prefix    reached with the usual AWS credentials
    FLOODMARK_REDSHIFT_ROLE=arn:aws:iam::…        or `default`: how the cluster reads that lake

    make redshift
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from floodmark.config.models import LakeSettings, RedshiftConnection, TableSettings
from floodmark.errors import FloodmarkError
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.redshift import RedshiftTarget
from floodmark.warehouse.target import SchemaConflict
from scenarios import new_lake, use_test_keys
from warehouses import Loads, Warehouse, new_redshift, real_redshift

ID = Column("id", "bigint", False, "int64")
NAME = Column("name", "varchar(10)", True, "string")
MOMENT = Column("update_at", "timestamp(6)", True, "timestamp[us, UTC]")
PEOPLE = TargetTable(
    name="people", columns=(ID, NAME, MOMENT), primary_key=("id",), version="update_at"
)


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.real_redshift)])
def warehouse(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Warehouse]:
    if request.param == "stand-in":
        use_test_keys(monkeypatch)
        server = request.getfixturevalue("redshift")
        yield new_redshift(server, new_lake("ministack", request, tmp_path))
        return
    if (found := real_redshift()) is None:
        pytest.skip("FLOODMARK_REDSHIFT_URL, _LAKE and _ROLE are not set")
    yield found
    found.query("DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def people(warehouse: Warehouse) -> Loads:
    return Loads(warehouse, PEOPLE)


def row(number: int, name: str = "somebody") -> dict[str, Any]:
    return {"id": number, "name": name, "update_at": None}


def opened(warehouse: Warehouse, codec: Any = None, **settings: Any) -> RedshiftTarget:
    assert isinstance(warehouse.connection, RedshiftConnection)
    url = f"s3://{warehouse.lake.bucket}/{warehouse.lake.prefix}"
    lake = LakeSettings(url=url, codec=codec)
    objects = warehouse.lake.open()
    return RedshiftTarget(warehouse.connection, objects, lake, TableSettings(**settings))


def test_it_reads_the_lake(warehouse: Warehouse) -> None:
    with opened(warehouse) as target:
        print(target.probe().version)


def test_it_reads_zstd(warehouse: Warehouse) -> None:
    """No page says that it does: what this prints is worth a report."""
    try:
        with opened(warehouse, "zstd") as target:
            target.probe()
        print("ZSTD inside Parquet is read")
    except FloodmarkError as error:
        print(f"ZSTD inside Parquet is not read: {error}")


def test_a_manifest_is_loaded_once(people: Loads) -> None:
    chunk = people.chunk([row(1)], [row(2)])
    assert people.load(chunk) == 2
    assert people.load(chunk) == 0
    assert people.rows() == [row(1), row(2)]


def test_times_are_what_they_were(warehouse: Warehouse) -> None:
    local = Column("local", "datetime(6)", True, "timestamp[us]")
    loads = Loads(warehouse, structs.replace(PEOPLE, name="times", columns=(ID, local, MOMENT)))
    moment = datetime(2025, 3, 30, 1, 30, 0, 123456, tzinfo=UTC)
    times = {"id": 1, "local": moment.replace(tzinfo=None), "update_at": moment}
    loads.load(loads.chunk([times]))
    assert loads.rows() == [times]


def test_keys_of_bytes_and_of_text_with_blanks(warehouse: Warehouse) -> None:
    key, code = (
        Column("key", "binary(16)", False, "binary"),
        Column("code", "varchar(9)", False, "string"),
    )
    table = TargetTable(
        name="keys", columns=(key, code, NAME), primary_key=("key", "code"), version=None
    )
    loads = Loads(warehouse, table)
    keys = [bytes(range(16)), b"\xff" * 16]
    for name in ("before", "after"):
        rows = [{"key": k, "code": c, "name": name} for k in keys for c in ("a", "a ", "", "A")]
        assert loads.load(loads.chunk(rows)) == len(rows)
        assert loads.rows() == sorted(rows, key=repr)
    with opened(warehouse) as target:
        batches = list(target.read(table, ()))
    assert sum(batch.num_rows for batch in batches) == len(rows)
    assert {value for batch in batches for value in batch.column(0).to_pylist()} == set(keys)


def test_text_that_is_too_long_is_named(people: Loads) -> None:
    with pytest.raises(FloodmarkError, match="COPY failed") as caught:
        people.load(people.chunk([row(1, "x" * 41)]))
    assert "name" in caught.value.message
    assert people.load_what_fits(people.chunk([row(2), row(3, "x" * 41)])) == 1


def test_the_distkey_is_widened_as_the_hint_says(warehouse: Warehouse) -> None:
    small = structs.replace(PEOPLE, columns=(Column("id", "int", False, "int32"), NAME, MOMENT))
    with opened(warehouse, distkey="id", sortkey="id") as target:
        target.prepare(small)
        with pytest.raises(SchemaConflict) as caught:
            target.prepare(PEOPLE)
        undo, redo = (part for part in str(caught.value.hint).split("'") if "ALTER" in part)
        for statement in undo.split("; "):
            target._execute(statement)
        assert target.prepare(PEOPLE) == ["widened people.id to BIGINT"]
        for statement in redo.split("; "):
            target._execute(statement)


def test_two_loaders_load_once(people: Loads) -> None:
    chunk = people.chunk([row(number) for number in range(100)])
    people.load(people.chunk([row(1000)]))
    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(lambda _: people.load(chunk), range(2))) == [0, 100]
    assert len(people.rows()) == 101


def test_a_load_that_is_cut_off_is_not_there(people: Loads) -> None:
    people.load(people.chunk([row(1)]))
    chunk = people.chunk([row(2)])
    with opened(people.warehouse) as target:
        target._commit = target._session.close  # type: ignore[method-assign]
        target.load(people.batch(chunk))
    assert people.rows() == [row(1)]
    assert people.load(chunk) == 1
