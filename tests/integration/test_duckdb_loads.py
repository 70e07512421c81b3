"""Loads into DuckDB: rows are written once where possible, and memory has a limit."""

from collections.abc import Sequence
from pathlib import Path

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
