"""Staging by workers: every file once, whatever happens to the tasks and to the driver."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from floodmark.config.models import PostgresConnection
from floodmark.errors import FloodmarkError
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.parallel import ParallelRun
from floodmark.warehouse.sql_dialect import STAGING, quote
from parallel_loads import ALWAYS, race
from servers.postgres import PrivatePostgres
from warehouses import Loads, Row, Warehouse, new_warehouse

COLUMNS = (
    Column("id", "bigint", False, "int64"),
    Column("note", "varchar(50)", True, "string"),
    Column("wide", "decimal(65,30)", True, "string"),
    Column("doc", "json", True, "string"),
)
TABLE = TargetTable(name="t", columns=COLUMNS, primary_key=("id",), version=None)


@pytest.fixture
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return new_warehouse("postgres", request, tmp_path)


@pytest.fixture
def loads(warehouse: Warehouse) -> Loads:
    """A table with a row, so that what comes is to be merged."""
    loads = Loads(warehouse, TABLE)
    loads.load(loads.chunk([row(0, "there")]))
    return loads


def row(number: int, note: str | None = None) -> Row:
    wide = Decimal(number) / 1000 if number else None
    return {"id": number, "note": note, "wide": wide, "doc": {"n": number}}


def load(loads: Loads, *chunks: Any, spread: ParallelRun = ALWAYS) -> int:
    with loads.warehouse.open(spread=spread) as target:
        return target.load(loads.batch(*chunks))


def staging_tables(loads: Loads) -> list[str]:
    found = loads.warehouse.query(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE c.relkind = 'r' AND c.relname LIKE '{STAGING}%'"
        " AND quote_ident(n.nspname) = $${schema}$$"
    )
    return sorted(name for (name,) in found)


def nobody(_name: str, _work: Callable[[int], bytes], _parts: int, _most: int) -> list[bytes]:
    raise AssertionError("workers were asked")


def test_every_file_is_staged_once_however_often_it_is_tried(loads: Loads) -> None:
    first = loads.chunk([row(0, "new"), row(1)], [row(2)])
    second = loads.chunk([row(number) for number in range(3, 50)])
    assert load(loads, first, second) == 50
    assert loads.rows() == sorted([row(0, "new"), *map(row, range(1, 50))], key=repr)
    assert staging_tables(loads) == []


def test_batches_into_a_table_whose_key_was_dropped(loads: Loads) -> None:
    loads.warehouse.query("ALTER TABLE {schema}.t DROP CONSTRAINT t_pkey")
    with loads.warehouse.open(spread=ALWAYS) as target:
        for note in ("first", "second"):
            chunk = loads.chunk([row(1, note), row(2, note)], [row(3, note)])
            assert target.load(loads.batch(chunk)) == 3
    assert loads.rows() == [row(0, "there"), *(row(number, "second") for number in (1, 2, 3))]
    assert staging_tables(loads) == []


def test_little_and_one_file_are_no_work_for_others(loads: Loads) -> None:
    assert load(loads, loads.chunk([row(1)]), spread=ParallelRun(run=nobody, least_bytes=1)) == 1
    few = ParallelRun(run=nobody, least_bytes=10**6)
    assert load(loads, loads.chunk([row(2)], [row(3)]), spread=few) == 2


def test_workers_open_a_part_of_the_connections(loads: Loads) -> None:
    allowed: list[int] = []

    def counting(name: str, work: Callable[[int], bytes], parts: int, most: int) -> list[bytes]:
        allowed.append(most)
        return race(name, work, parts)

    def load_two(first: int) -> None:
        chunk = loads.chunk([row(first)], [row(first + 1)])
        assert load(loads, chunk, spread=ParallelRun(run=counting, least_bytes=1)) == 2

    ((most,),) = loads.warehouse.query("SHOW max_connections")
    load_two(1)
    connection = loads.warehouse.connection
    assert isinstance(connection, PostgresConnection)
    loads.warehouse = replace(
        loads.warehouse, connection=structs.replace(connection, max_connections=3)
    )
    load_two(3)
    limit = f"ALTER ROLE {quote(connection.user)} CONNECTION LIMIT"
    loads.warehouse.query(f"{limit} 2")
    try:
        load_two(5)
    finally:
        loads.warehouse.query(f"{limit} -1")
    assert allowed == [int(most) // 5, 3, 1]


def test_a_value_that_does_not_fit_is_named(loads: Loads) -> None:
    with pytest.raises(FloodmarkError, match=r"t\.note .*U\+0000"):
        load(loads, loads.chunk([row(1)], [row(2, "a\0b")]))
    assert loads.rows() == [row(0, "there")]
    assert staging_tables(loads) == []


def test_rows_loaded_concurrently_are_not_loaded_again(loads: Loads) -> None:
    first, second = loads.chunk([row(1)], [row(2)]), loads.chunk([row(3)])

    def overtaken(name: str, work: Callable[[int], bytes], parts: int, _most: int) -> list[bytes]:
        answers = race(name, work, parts)
        assert loads.load(first) == 2
        return answers

    assert load(loads, first, second, spread=ParallelRun(run=overtaken, least_bytes=1)) == 1
    assert loads.rows() == [row(0, "there"), row(1), row(2), row(3)]


def test_a_staging_table_is_removed_when_its_load_has_died_and_not_before(loads: Loads) -> None:
    def inspect(name: str, work: Callable[[int], bytes], parts: int, _most: int) -> list[bytes]:
        during.extend(staging_tables(loads))
        assert load(loads, loads.chunk([row(5)], [row(6)])) == 2
        assert staging_tables(loads) == during, "another load removed what is in use"
        return race(name, work, parts)

    during: list[str] = []
    chunk = loads.chunk([row(1)], [row(2)])
    assert load(loads, chunk, spread=ParallelRun(run=inspect, least_bytes=1)) == 2
    assert len(during) == 2
    for name in during:
        loads.warehouse.query(f'CREATE UNLOGGED TABLE {{schema}}."{name}" (id bigint)')
    assert load(loads, loads.chunk([row(7)])) == 1
    assert staging_tables(loads) == []


def test_a_server_that_crashes_loses_what_was_staged_and_nothing_else(
    loads: Loads, postgres: PrivatePostgres
) -> None:
    def crash(name: str, work: Callable[[int], bytes], parts: int, _most: int) -> list[bytes]:
        answers = race(name, work, parts)
        postgres.restart()
        return answers

    chunk = loads.chunk([row(1)], [row(2)])
    with pytest.raises(FloodmarkError, match="lost the connection"):
        load(loads, chunk, spread=ParallelRun(run=crash, least_bytes=1))
    assert loads.rows() == [row(0, "there")]
    assert load(loads, chunk) == 2
    assert loads.rows() == [row(0, "there"), row(1), row(2)]
    assert staging_tables(loads) == []


def test_staging_that_was_emptied_is_not_taken_for_whole(
    loads: Loads, postgres: PrivatePostgres
) -> None:
    def emptied(name: str, work: Callable[[int], bytes], parts: int, _most: int) -> list[bytes]:
        answers = race(name, work, parts)
        for table in staging_tables(loads):
            loads.warehouse.query(f'TRUNCATE {{schema}}."{table}"')
        return answers

    chunk = loads.chunk([row(1)], [row(2)])
    with pytest.raises(FloodmarkError, match="0 of 2 files"):
        load(loads, chunk, spread=ParallelRun(run=emptied, least_bytes=1))
    assert loads.rows() == [row(0, "there")]


def test_workers_on_spark_that_die_before_and_after_their_commit(
    loads: Loads, spark: Any, tmp_path: Path
) -> None:
    from floodmark.spark.runner import run_tasks

    deaths = str(tmp_path)

    def deadly(name: str, work: Callable[[int], bytes], parts: int, _most: int) -> list[str]:
        def dying(part: int) -> bytes:
            before, after = (os.path.join(deaths, f"{part}{when}") for when in ("before", "after"))
            for moment in (before, after):
                if not os.path.exists(moment):
                    with open(moment, "x"):
                        pass
                    if moment == after:
                        work(part)
                    os.kill(os.getpid(), signal.SIGKILL)
            return work(part)

        return run_tasks(spark, name, lambda part, _: dying(part), parts)

    chunk = loads.chunk([row(1), row(2)], [row(3)])
    assert load(loads, chunk, spread=ParallelRun(run=deadly, least_bytes=1)) == 3
    assert loads.rows() == [row(0, "there"), row(1), row(2), row(3)]
    assert len(os.listdir(deaths)) > 2
    assert staging_tables(loads) == []
