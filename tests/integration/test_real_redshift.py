"""The first hour on a real cluster: what the stand-in only believes, in the order of its weight.

On a cluster whose address is in the environment; with that, the whole contract suite of targets
runs on it, too. `test_make_redshift.py` runs these checks on the stand-in, in just this way.

    FLOODMARK_REDSHIFT_URL=redshift://user:password@host:5439/database    without both: by IAM
    FLOODMARK_REDSHIFT_LAKE=s3://bucket/prefix    reached with the usual AWS credentials
    FLOODMARK_REDSHIFT_ROLE=arn:aws:iam::…        or `default`: how the cluster reads that lake

    make redshift    prints a report without names and secrets, which can be sent in
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import processes
from floodmark.config.models import LakeSettings, RedshiftConnection, TableSettings
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import FloodmarkError, SchemaConflict
from floodmark.model.load import LoadChunk, TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.redshift.target import RedshiftTarget
from pipelines import ask_once, new_pipeline
from warehouses import Loads, Warehouse, name_target, real_redshift

pytestmark = pytest.mark.real_redshift

ID = Column("id", "bigint", False, "int64")
NAME = Column("name", "varchar(10)", True, "string")
MOMENT = Column("update_at", "timestamp(6)", True, "timestamp[us, UTC]")
PEOPLE = TargetTable(
    name="people", columns=(ID, NAME, MOMENT), primary_key=("id",), version="update_at"
)


@pytest.fixture
def warehouse() -> Iterator[Warehouse]:
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


def load_and_wait(environment: dict[str, str], loads: Loads, chunk: LoadChunk, pipe: Any) -> None:
    """Load up to the commit, in a process that is killed there."""
    os.environ.update(environment)
    with opened(loads.warehouse) as target:
        target._commit = lambda: pipe.send("loaded") or pipe.recv()  # type: ignore[method-assign]
        target.load(loads.batch(chunk))


def test_a_load_that_is_killed_is_not_there(people: Loads) -> None:
    people.load(people.chunk([row(1)]))
    chunk = people.chunk([row(2)])
    ours, its = processes.pipe()
    loader = get_context("forkserver").Process(
        target=load_and_wait, args=(dict(os.environ), people, chunk, its)
    )
    loader.start()
    assert ours.poll(120), "it did not come to the commit"
    loader.kill()
    loader.join()
    assert people.rows() == [row(1)]
    assert people.load(chunk) == 1
    assert people.rows() == [row(1), row(2)]


@pytest.mark.only_on("mariadb")
def test_a_sync_is_verified(server: PrivateMariaDB, warehouse: Warehouse, tmp_path: Path) -> None:
    """The whole way: from a server of our own through the lake, and compared value by value."""
    synced = new_pipeline(server, warehouse.lake, tmp_path, {"t": "{cursor: id}"})
    name_target(synced.config, warehouse.connection)
    try:
        ask_once(
            synced,
            "CREATE TABLE t (id INT, code VARCHAR(9) COLLATE utf8mb4_nopad_bin, at DATETIME(6),"
            " moment TIMESTAMP(6) NULL, amount DECIMAL(20, 4), hash BINARY(16), doc JSON,"
            " PRIMARY KEY (id, code))",
        )
        for number, code in enumerate(("a", "a ", "", "Ä")):
            ask_once(
                synced,
                f"INSERT INTO t VALUES ({number // 2}, '{code}', '2025-03-30 02:30:00.123456',"
                " '2025-03-30 01:30:00.5', -12345.6789, UNHEX(MD5(1)), '{\"a\": [1, null]}'),"
                f" ({number // 2 + 9}, '{code}', NULL, NULL, NULL, NULL, NULL)",
            )
        ended = synced.call("sync", "-p", "main", "--verify-data", "--json")
        assert ended.code == 0, ended
        assert ended.table["verification"]["rows"] == 8
        print(f"{ended.table['verification']['rows']} rows are the same in source and target")
    finally:
        server.execute(f"DROP DATABASE {synced.schema}")
