"""Rows that differ between source and target are found, and nothing else is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from differences import differences
from pipelines import Pipeline, ask_once, numbers
from warehouses import Warehouse, name_target, new_duckdb, new_warehouse

New = Callable[..., Pipeline]

CURSOR = "{cursor: [update_at, id]}"
OF_CHANGES = "id INT PRIMARY KEY, v INT, update_at DATETIME NOT NULL, KEY by_change (update_at, id)"
KINDS = ("duckdb", "postgres", "redshift")


@dataclass(frozen=True)
class World:
    """A pipeline, and the warehouse that it loads."""

    it: Pipeline
    warehouse: Warehouse

    def source(self, *statements: str) -> None:
        """Change the source, with old times: all of them are in the synced range."""
        for statement in statements:
            ask_once(self.it, statement, sql_mode="")

    def target(self, *statements: str) -> None:
        """Change the target behind our back."""
        for statement in statements:
            self.warehouse.query(statement)

    def sync(self) -> None:
        """Load what is new."""
        ended = self.it.call("sync", "-p", "main", "--json")
        assert ended.code == 0, ended

    def found(self, **options: Any) -> dict[str, list[Any]]:
        """What differs."""
        return differences(self.it, **options)


Make = Callable[..., World]


@pytest.fixture
def world(pipeline: New, request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes a synced table in a kind of target: its columns, and rows to fill it with."""

    def make(
        columns: str = OF_CHANGES,
        *fill: str,
        kind: str = "duckdb",
        cursor: str = CURSOR,
        settings: str = "",
    ) -> World:
        it = pipeline(
            {"t": cursor}, settings=settings, lake="ministack" if kind == "redshift" else "local"
        )
        if kind == "duckdb":
            warehouse = new_duckdb(it.folder, it.lake)
            warehouse = replace(
                warehouse,
                connection=type(warehouse.connection)(path=str(it.folder / "warehouse.duckdb")),
            )
        else:
            warehouse = replace(new_warehouse(kind, request, tmp_path / "other"), lake=it.lake)
            name_target(it.config, warehouse.connection)
        made = World(it, warehouse)
        made.source(f"CREATE TABLE t ({columns})", *fill)
        made.sync()
        return made

    return make


def rows(first: int, last: int) -> str:
    """Fill a table with rows that changed long ago."""
    return (
        "INSERT INTO t (id, v, update_at) SELECT seq, seq, '2025-06-01' + INTERVAL seq SECOND"
        f" FROM {numbers(first, last)}"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_difference(world: Make, kind: str) -> None:
    made = world(OF_CHANGES, rows(1, 3000), kind=kind)
    assert made.found() == {}
    made.source(
        "DELETE FROM t WHERE id IN (1, 700, 2999)",
        "UPDATE t SET update_at = '2025-06-01' WHERE id = 1000",
        "UPDATE t SET id = 5000 WHERE id = 1500",  # the key moves, and the time stays
        "INSERT INTO t VALUES (4000, 1, '2025-06-01 00:00:01')",  # late, with an old time
        "REPLACE INTO t VALUES (2000, 7, '2025-06-01 00:10:00')",
        "INSERT INTO t VALUES (9000, 1, '2030-01-01')",  # yet to be synced
        "UPDATE t SET update_at = '2030-01-01' WHERE id = 2500",
    )
    made.target("DELETE FROM {schema}.t WHERE id IN (10, 20)")
    assert made.found() == {
        "deleted": [1, 700, 1500, 2999],
        "missing": [10, 20, 4000, 5000],
        "stale": [1000, 2000],
    }
