"""Loads into DuckDB: rows are written once where possible, and memory has a limit."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import duckdb
import pytest
from msgspec import structs

from floodmark.config.models import DuckdbConnection
from floodmark.errors import FloodmarkError
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.duckdb import DuckdbTarget
from floodmark.warehouse.sql_dialect import NEWEST, STAGING
from scenarios import Lake, use_test_keys
from warehouses import Loads, Row, Warehouse, new_warehouse

COLUMNS = (
    Column("id", "bigint", False, "int64"),
    Column("code", "varchar(10)", False, "string"),
    Column("note", "varchar(50)", True, "string"),
    Column("version", "int", True, "int32"),
)
TABLE = TargetTable(name="t", columns=COLUMNS, primary_key=("id",), version="version")


@pytest.fixture(params=["duckdb", "duckdb-s3"])
def warehouse(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Warehouse:
    use_test_keys(monkeypatch)
    return new_warehouse(request.param, request, tmp_path)


def row(number: int, note: str | None = None, version: int | None = 0, code: str = "a") -> Row:
    return {"id": number, "code": code, "note": note, "version": version}


def load(loads: Loads, *files: Sequence[Row], staged: bool = False, **options: bool) -> int:
    """Load files as two manifests; tell whether rows were staged."""
    chunks = [loads.chunk(*files[:1]), loads.chunk(*files[1:])]
    with loads.warehouse.open() as target:
        assert isinstance(target, DuckdbTarget)
        staging: list[str] = []
        stage = target._stage

        def noted(table: TargetTable, paths: list[str]) -> int:
            staging.extend(paths)
            return stage(table, paths)

        target._stage = noted  # type: ignore[method-assign, assignment]
        target.prepare(loads.table)
        rows = target.load(loads.batch(*chunks, **options))
        assert bool(staging) == staged, STAGING
    return rows


def test_rows_are_inserted_without_staging(warehouse: Warehouse) -> None:
    loads = Loads(warehouse, TABLE)
    assert load(loads, [row(1), row(2)], [row(3)], [row(4)]) == 4
    assert loads.rows() == [row(number) for number in range(1, 5)]
    assert load(loads, [row(1, "later", 1)], [row(5)], staged=True) == 2
    assert [found["note"] for found in loads.rows()].count("later") == 1


def test_of_the_rows_of_a_key_the_newest_stays(warehouse: Warehouse) -> None:
    loads = Loads(warehouse, structs.replace(TABLE, primary_key=("id", "code")))
    first = [row(1, "old", 1), row(2, "only", None), row(1, "other", 1, "b")]
    assert load(loads, first, [row(3, "new", 5), row(1, "new", 2)], [row(3, "old", None)]) == 6
    assert sorted(found["note"] for found in loads.rows()) == ["new", "new", "only", "other"]


NUMBERS = {
    "smallint": ("int16", range(-(2**15), 2**15)),
    "int": ("int32", range(-(2**31), 2**31)),
    "bigint": ("int64", range(-(2**63), 2**63)),
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("place", ["first", "middle", "last", "everywhere"])
@pytest.mark.parametrize("twice", [0, 1, 20])
def test_the_newest_row_of_any_number_stays(
    warehouse: Warehouse, kind: str, place: str, twice: int
) -> None:
    """Whether a number comes twice is seen in bits where they are few, else by counting."""
    random = Random(f"{kind} {place} {twice}")
    arrow, every = NUMBERS[kind]
    starts = {"first": every[0], "middle": -25, "last": every[-1] - 49}
    near = range(starts[place], starts[place] + 50) if place in starts else every
    keys = list({random.randrange(near.start, near.stop) for _ in range(40)} | {near[0], near[-1]})
    rows = [row(key, "old", random.choice([None, 1])) for key in keys]
    rows += [row(key, "new", 2) for key in random.sample(keys, twice)]
    random.shuffle(rows)
    columns = (Column("id", kind, False, arrow), *COLUMNS[1:])
    loads = Loads(warehouse, structs.replace(TABLE, columns=columns))
    assert load(loads, rows[:30], rows[30:]) == len(rows)
    expected = {one["id"]: one for one in sorted(rows, key=lambda one: one["note"] == "new")}
    assert {one["id"]: one for one in loads.rows()} == expected
    assert len(loads.rows()) == len(keys)


def test_numbers_close_to_each_other_are_not_counted(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    count = DuckdbTarget._count_rows

    def noted(target: DuckdbTarget, source: str) -> int:
        counted.append(source)
        return count(target, source)

    monkeypatch.setattr(DuckdbTarget, "_count_rows", noted)
    for name, keys in {"close": [1, 2, 40], "apart": [1, 2, 400]}.items():
        counted.clear()
        loads = Loads(warehouse, structs.replace(TABLE, name=name))
        load(loads, [row(key) for key in keys])
        assert any("DISTINCT" in source for source in counted) == (name == "apart")


@pytest.mark.parametrize("held", ["BIGINT", "DOUBLE", "DECIMAL(38,2)", "VARCHAR"])
def test_a_key_may_have_another_type_in_the_target(warehouse: Warehouse, held: str) -> None:
    columns = (Column("id", "int", False, "int32"), *COLUMNS[1:])
    loads = Loads(warehouse, structs.replace(TABLE, columns=columns))
    with duckdb.connect(warehouse.connection.path) as target:  # type: ignore[union-attr]
        target.execute(f"CREATE TABLE t (id {held}, code VARCHAR, note VARCHAR, version INT)")
    with warehouse.open() as target:
        target.prepare(loads.table)
        files = [row(7, "old", 1), row(8)], [row(7, "new", 2)]
        assert target.load(loads.batch(*(loads.chunk(file) for file in files))) == 3
    with duckdb.connect(warehouse.connection.path) as target:  # type: ignore[union-attr]
        found = target.execute("SELECT id::INT, note FROM t ORDER BY id").fetchall()
    assert found == [(7, "new"), (8, None)]


@pytest.mark.parametrize("option", ["", "wins", "keep_newer_target_rows"])
def test_later_rows_are_copied_only_if_a_key_comes_twice(warehouse: Warehouse, option: str) -> None:
    options = {option: True} if option else {}
    loads = Loads(warehouse, TABLE)
    load(loads, [row(1, "kept", 9), row(2, "old", 1), row(3, "old", None)], [row(4)])
    with warehouse.open() as target:
        assert isinstance(target, DuckdbTarget)

        def copied() -> bool:
            names = target._query("SELECT table_name FROM duckdb_tables() WHERE temporary")
            return (NEWEST,) in names

        later = [row(1, "late", 5), row(2, "new", 2), row(5)]
        assert target.load(loads.batch(loads.chunk(later), **options)) == 3
        assert not copied()
        twice = [row(3, "older", 1), row(3, "newer", 2)]
        assert target.load(loads.batch(loads.chunk(twice), **options)) == 2
        assert copied()
    first = "late" if option == "wins" else "kept"
    assert [found["note"] for found in loads.rows()] == [first, "new", "newer", None, None]


def test_a_reload_and_rows_without_a_key_are_not_staged(warehouse: Warehouse) -> None:
    loads = Loads(warehouse, structs.replace(TABLE, primary_key=()))
    for _ in range(2):
        assert load(loads, [row(1)], [row(1)]) == 2
    assert loads.rows() == [row(1)] * 4
    chunk = loads.chunk([row(2)], [row(2)])
    assert loads.load(chunk, reload=True) == 2
    assert loads.rows() == [row(2)] * 2


def test_a_column_may_be_called_rowid(warehouse: Warehouse) -> None:
    columns = (*COLUMNS, Column("RowId", "int", True, "int32"))
    loads = Loads(warehouse, structs.replace(TABLE, columns=columns))
    rows = [{**row(1, note, version), "RowId": 7} for note, version in (("old", 1), ("new", 2))]
    assert load(loads, rows[:1], rows[1:], staged=True) == 2
    assert loads.rows() == rows[1:]


def test_only_a_first_load_has_any_size(warehouse: Warehouse) -> None:
    loads = Loads(warehouse, TABLE)
    with warehouse.open() as target:
        target.prepare(TABLE)
        assert target.takes_any_size(TABLE)
        target.load(loads.batch(loads.chunk([row(1)])))
        assert not target.takes_any_size(TABLE)


def test_memory_is_limited(warehouse: Warehouse) -> None:
    path = warehouse.connection.path  # type: ignore[union-attr]
    small = Warehouse(DuckdbConnection(path=path, memory_mb=128), warehouse.lake)
    with small.open() as target:
        found = target._query(
            "SELECT current_setting('memory_limit'), current_setting('threads'),"
            " current_setting('temp_directory')"
        )
    assert found == [("128.0 MiB", 1, f"{path}.tmp")]
    loads = Loads(small, TABLE)
    files = [[row(number, "x" * 40) for number in range(at, at + 40_000)] for at in (0, 40_000)]
    assert load(loads, *files) == 80_000


@pytest.mark.follows_hint("'memory_mb: …' of its connection")
def test_rows_that_need_more_memory_are_loaded_with_it(tmp_path: Path) -> None:
    """DuckDB holds some things in memory as a whole, such as the text of many rows."""
    lake = Lake(folder=str(tmp_path / "lake"))
    path = str(tmp_path / "warehouse.duckdb")
    loads = Loads(Warehouse(DuckdbConnection(path=path, memory_mb=128), lake), TABLE)
    chunk = loads.chunk([row(number, f"{number:04}" * 400_000) for number in range(100)])
    with pytest.raises(FloodmarkError, match="Out of Memory") as failed:
        loads.load(chunk)
    assert failed.value.hint is not None
    assert "memory_mb" in failed.value.hint
    loads.warehouse = Warehouse(DuckdbConnection(path=path, memory_mb=2048), lake)
    assert loads.load(chunk) == 100
