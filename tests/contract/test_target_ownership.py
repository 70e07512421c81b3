"""The ledger decides which source table owns a target table, on every target."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec import structs

from floodmark.errors import FloodmarkError, TargetTaken
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.sql_dialect import LEDGER
from warehouses import Loads, Warehouse

ID = Column("id", "bigint", False, "int64")
KEYED = TargetTable(name="x", columns=(ID,), primary_key=("id",), version=None)
KEYLESS = TargetTable(name="x", columns=(ID,), primary_key=(), version=None)


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number} for number in numbers]


def entries(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    found = warehouse.query(f"SELECT table_name, load_epoch, target_table FROM {{schema}}.{LEDGER}")
    return sorted(found)


@pytest.fixture(params=[KEYED, KEYLESS], ids=["keyed", "keyless"])
def table(request: pytest.FixtureRequest) -> TargetTable:
    found: TargetTable = request.param
    return found


def test_a_table_of_another_source_is_refused(warehouse: Warehouse, table: TargetTable) -> None:
    first, second = Loads(warehouse, table, "A:b.x"), Loads(warehouse, table, "C:b.x")
    first.load(first.chunk(rows(1, 2)))
    with pytest.raises(
        TargetTaken, match=r"x in the target belongs to A:b\.x, so C:b\.x"
    ) as refused:
        second.load(second.chunk(rows(2, 3)))
    assert "target_name" in str(refused.value.hint)
    assert "watermark move -t A:b.x --to C:b.x" in str(refused.value.hint)
    with warehouse.open() as target, pytest.raises(TargetTaken):
        target.check_owner("C:b.x", 1, "x")
    assert first.rows() == rows(1, 2)
    assert entries(warehouse) == [("A:b.x", 1, "x")]


def test_dropped_table_has_no_owner(warehouse: Warehouse, table: TargetTable) -> None:
    first, second = Loads(warehouse, table, "A:b.x"), Loads(warehouse, table, "C:b.x")
    first.load(first.chunk(rows(1, 2)))
    warehouse.query('DROP TABLE {schema}."x"')
    with warehouse.open() as target:
        target.check_owner("C:b.x", 1, "x")
    second.load(second.chunk(rows(3)))
    assert second.rows() == rows(3)
    assert entries(warehouse) == [("C:b.x", 1, "x")]
    with pytest.raises(TargetTaken, match=r"belongs to C:b\.x"):
        first.load(first.chunk(rows(4)))


def test_a_table_that_no_source_has_loaded_may_be_taken(
    warehouse: Warehouse, table: TargetTable
) -> None:
    with warehouse.open() as target:
        target.prepare(table)
    warehouse.query('INSERT INTO {schema}."x" VALUES (1)')
    loads = Loads(warehouse, table, "A:b.x")
    loads.load(loads.chunk(rows(2)))
    assert loads.rows() == rows(1, 2)


def test_rows_of_one_load_epoch_are_not_split(warehouse: Warehouse, table: TargetTable) -> None:
    there, elsewhere = table, structs.replace(table, name="y")
    loads = Loads(warehouse, table, "A:b.x")
    chunk = loads.chunk(rows(1))
    loads.load(chunk)
    with pytest.raises(TargetTaken, match="were loaded into x so far: loading into y") as refused:
        loads.load(loads.chunk(rows(2)), table=elsewhere)
    assert "watermark reset -t A:b.x --load-only" in str(refused.value.hint)
    loads.load(chunk, load_epoch=2, table=elsewhere)
    assert loads.rows(elsewhere) == loads.rows(there) == rows(1)
    # What is left in the first is still this source's, and no other's.
    other = Loads(warehouse, table, "C:b.x")
    with pytest.raises(TargetTaken, match=r"x in the target belongs to A:b\.x"):
        other.load(other.chunk(rows(5)))
    # Back in the first, no row is duplicated.
    loads.load(chunk, load_epoch=3, table=there)
    assert loads.rows(there) == rows(1)
    with pytest.raises(TargetTaken, match=r"y in the target belongs to A:b\.x"):
        other.load(other.chunk(rows(5)), table=elsewhere)


def test_without_a_key_rows_of_unknown_origin_are_not_added_to_after_a_reset(
    warehouse: Warehouse,
) -> None:
    """A table that was renamed in the target as well holds what is to be loaded again."""
    loads = Loads(warehouse, KEYLESS, "A:b.x")
    chunk = loads.chunk(rows(1, 2))
    loads.load(chunk)
    warehouse.query('ALTER TABLE {schema}."x" RENAME TO "y"')
    renamed = structs.replace(KEYLESS, name="y")
    with pytest.raises(FloodmarkError, match="y contains 2 rows that may not be from") as refused:
        loads.load(chunk, load_epoch=2, table=renamed)
    assert str(refused.value.hint).startswith("empty y in the target")
    warehouse.query('DELETE FROM {schema}."y"')
    loads.load(chunk, load_epoch=2, table=renamed)
    assert loads.rows(renamed) == rows(1, 2)


def test_of_two_sources_at_once_one_gets_a_new_table(
    warehouse: Warehouse, table: TargetTable
) -> None:
    sources = [Loads(warehouse, table, f"S{number}:b.x") for number in range(4)]
    chunks = [source.chunk(rows(number)) for number, source in enumerate(sources)]
    at_once = threading.Barrier(len(sources))

    def load(number: int) -> bool:
        batch = sources[number].batch(chunks[number])
        with warehouse.open() as target:
            target.prepare(table)
            at_once.wait()
            try:
                target.load(batch)
            except TargetTaken:
                return False
        return True

    with ThreadPoolExecutor(len(sources)) as pool:
        loaded = list(pool.map(load, range(len(sources))))
    assert loaded.count(True) == 1
    assert sources[0].rows() == rows(loaded.index(True))


def test_entries_of_an_earlier_version_are_filled_in(warehouse: Warehouse) -> None:
    loads, other = Loads(warehouse, KEYED, "A:b.x"), Loads(warehouse, KEYED, "C:b.x")
    loads.load(loads.chunk(rows(1)))
    warehouse.query(f"ALTER TABLE {{schema}}.{LEDGER} DROP COLUMN target_table")
    with warehouse.open() as target:
        target.check_owner("A:b.x", 1, "x")
        with pytest.raises(TargetTaken, match=r"belongs to A:b\.x"):
            target.check_owner("C:b.x", 1, "x")
        assert target.prepare(KEYED) == [f"added {LEDGER}.target_table"]
    with pytest.raises(TargetTaken, match=r"belongs to A:b\.x"):
        other.load(other.chunk(rows(2)))
    loads.load(loads.chunk(rows(3)))
    assert entries(warehouse) == [("A:b.x", 1, "x")] * 2


@pytest.mark.parametrize("name", ["Orders", 'it\'s 100% "x"'])
def test_names_are_compared_as_the_target_compares_them(warehouse: Warehouse, name: str) -> None:
    table = structs.replace(KEYED, name=name)
    loads, other = Loads(warehouse, table, "A:b.x"), Loads(warehouse, KEYED, "C:b.x")
    loads.load(loads.chunk(rows(1)))
    loads.load(loads.chunk(rows(2)))
    with pytest.raises(TargetTaken):
        other.load(other.chunk(rows(3)), table=table)
    swapped = structs.replace(table, name=name.swapcase())
    if type(warehouse.connection).__struct_config__.tag == "postgres":
        other.load(other.chunk(rows(3)), table=swapped)
    else:
        loads.load(loads.chunk(rows(4)), table=swapped)
        with pytest.raises(TargetTaken):
            other.load(other.chunk(rows(3)), table=swapped)
