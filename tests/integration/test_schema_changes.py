"""Schemas that change while a table is synced: rows stay equal, and a lost warehouse comes back."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pipelines import Ended, Pipeline, ask, ask_once, session
from warehouses import Warehouse, name_target, new_warehouse, quoted

New = Callable[..., Pipeline]

CURSOR = "{cursor: [update_at, id]}"
STAMP = "update_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP"
COLUMNS = (
    "id INT AUTO_INCREMENT PRIMARY KEY, big BIGINT NOT NULL, note VARCHAR(20), day DATE,"
    f" amount DECIMAL(10,2), {STAMP}, KEY by_change (update_at, id)"
)


@dataclass(frozen=True)
class Synced:
    """A table that is synced to a warehouse, and can lose it."""

    it: Pipeline
    warehouse: Warehouse

    def sync(self, *arguments: str) -> Ended:
        return self.it.call("sync", "-p", "main", *arguments)

    def change(self, *statements: str) -> None:
        with session(self.it) as connection:
            for statement in statements:
                ask(connection, statement)

    def add(self, first: int, last: int, *, day: int) -> None:
        """Add rows of a day, with values in the columns that all tests have."""
        values = ", ".join(f"({n}, {n}, '2025-06-0{day} 00:00:00')" for n in range(first, last + 1))
        self.change(f"INSERT INTO t (id, big, update_at) VALUES {values}")

    def settle(self, *arguments: str) -> int:
        """Sync until that succeeds, by what the hints say; return how many were followed."""
        for followed in range(4):
            ended = self.sync(*arguments)
            if ended.code == 0:
                return followed
            self.follow(ended)
        raise AssertionError(ended)

    def follow(self, ended: Ended) -> None:
        hint = " ".join(ended.err.split()).partition("hint: ")[2]
        assert hint, ended
        if "drop t in the target" in hint:
            self.warehouse.query("DROP TABLE {schema}.t")
        commands = re.findall(r"'floodmark ([^']*)'", hint)
        assert commands, ended
        for command in commands:
            done = self.it.call(*command.split())
            assert done.code == 0, done

    def lose(self) -> None:
        for table in ("t", "floodmark_ledger"):
            self.warehouse.query(f"DROP TABLE {{schema}}.{table}")

    def check_equal(self) -> None:
        names = [row[0] for row in ask_once(self.it, "SHOW COLUMNS FROM t")]
        source = ask_once(self.it, "SELECT * FROM t")
        held = {
            row[0].lower(): row[0]
            for row in self.warehouse.query(
                "SELECT column_name FROM information_schema.columns WHERE table_name = 't'"
                f" AND table_schema = '{self.schema}'"
            )
        }
        wanted = ", ".join(quoted(held[name.lower()]) for name in names)
        target = self.warehouse.query(f"SELECT {wanted} FROM {{schema}}.t")
        assert shown(target) == shown(source)
        ended = self.sync("--load-only", "--verify-data=all")
        assert ended.code == 0, ended

    @property
    def schema(self) -> str:
        return str(getattr(self.warehouse.connection, "schema", "main")).lower()


def shown(rows: Sequence[tuple[Any, ...]]) -> list[tuple[str | None, ...]]:
    """Rows by their values, whatever type holds them."""
    return sorted((tuple(map(text, row)) for row in rows), key=repr)


def text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bytes() | memoryview():
            return bytes(value).hex()
        case datetime():
            return str(value.replace(tzinfo=None)).removesuffix(" 00:00:00")
        case date() | time():
            return str(value)
        case bool():
            return f"{value:02d}"  # as the client shows a BIT
        case float():
            return f"{value:.6g}"
        case Decimal():
            return f"{value.normalize():f}"
    return str(value).removesuffix(" 00:00:00")


@pytest.fixture(params=["duckdb", "postgres", "redshift"])
def target(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def new_table(
    pipeline: New, request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[..., Synced]:
    def make(
        kind: str = "duckdb", columns: str = COLUMNS, settings: str = CURSOR, **options: Any
    ) -> Synced:
        (tmp_path / "target").mkdir(exist_ok=True)
        lake = "ministack" if kind == "redshift" else "local"
        it = pipeline({"t": settings}, lake=lake, **options)
        warehouse = replace(new_warehouse(kind, request, tmp_path / "target"), lake=it.lake)
        name_target(it.config, warehouse.connection)
        ask_once(it, f"CREATE TABLE t ({columns})")
        return Synced(it, warehouse)

    return make


NewTable = Callable[..., Synced]

# What happens between syncs, and how many hints must be followed.
CHANGES: dict[str, tuple[list[list[str]], int]] = {
    "default": ([["ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7"]], 0),
    "nullable default": ([["ALTER TABLE t ADD COLUMN x VARCHAR(9) DEFAULT 'a''\\\\é'"]], 0),
    "bytes and dates": (
        [
            [
                "ALTER TABLE t ADD COLUMN x VARBINARY(4) NOT NULL DEFAULT X'00ff27'",
                "ALTER TABLE t ADD COLUMN y DATETIME(6) NOT NULL DEFAULT '2024-02-29 01:02:03.5'",
                "ALTER TABLE t ADD COLUMN z DECIMAL(12,4) NOT NULL DEFAULT -1.25",
                "ALTER TABLE t ADD COLUMN f FLOAT NOT NULL DEFAULT 0.1",
                "ALTER TABLE t ADD COLUMN b BIT(1) NOT NULL DEFAULT b'1'",
            ]
        ],
        0,
    ),
    "default that changed since": (
        [["ALTER TABLE t ADD COLUMN x INT DEFAULT 7", "ALTER TABLE t ALTER x SET DEFAULT 8"]],
        0,
    ),
    "now": ([["ALTER TABLE t ADD COLUMN x DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"]], 0),
    "generated": ([["ALTER TABLE t ADD COLUMN x INT AS (big * 2) STORED"]], 1),
    "updated": (
        [["ALTER TABLE t ADD COLUMN x INT DEFAULT 7", "UPDATE t SET x = 8 WHERE id = 3"]],
        1,
    ),
    "dropped": ([["ALTER TABLE t DROP COLUMN note"]], 0),
    "renamed": ([["ALTER TABLE t CHANGE note remark VARCHAR(20)"]], 1),
    "narrowed": ([["ALTER TABLE t MODIFY big INT NOT NULL"]], 0),
    "narrowed decimal": ([["ALTER TABLE t MODIFY amount DECIMAL(8,1)"]], 1),
    "int to varchar": ([["ALTER TABLE t MODIFY big VARCHAR(30) NOT NULL"]], 1),
    "varchar to int": ([["UPDATE t SET note = '007'", "ALTER TABLE t MODIFY note INT"]], 0),
    "date to datetime": ([["ALTER TABLE t MODIFY day DATETIME"]], 0),
    "decimal that is neither wider nor narrower": (
        [["ALTER TABLE t MODIFY amount DECIMAL(11,4)"]],
        2,
    ),
    "two changes": (
        [
            ["ALTER TABLE t MODIFY amount DECIMAL(11,4)"],
            ["ALTER TABLE t MODIFY big VARCHAR(40) NOT NULL", "ALTER TABLE t DROP COLUMN day"],
        ],
        3,
    ),
    "case of a name": ([["ALTER TABLE t CHANGE note Note VARCHAR(20)"]], 0),
    "dropped and added again": (
        [["ALTER TABLE t DROP COLUMN note"], ["ALTER TABLE t ADD COLUMN note INT DEFAULT 5"]],
        0,
    ),
}


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("name", CHANGES)
def test_rows_stay_equal_and_a_lost_warehouse_comes_back(
    new_table: NewTable, target: str, name: str
) -> None:
    steps, hints = CHANGES[name]
    synced = new_table(target)
    synced.add(1, 6, day=1)
    synced.change(
        "UPDATE t SET note = IF(id = 2, NULL, CONCAT('n', id)), day = '2024-02-29',"
        " amount = id + 0.25"
    )
    assert synced.sync().code == 0
    followed = 0
    for number, statements in enumerate(steps, 1):
        synced.change(*statements)
        synced.add(10 * number, 10 * number + 2, day=1 + number)
        followed += synced.settle()
        synced.check_equal()
    assert followed == hints
    synced.lose()
    ended = synced.sync("--redshift-only")
    assert ended.code == 0, ended
    synced.check_equal()
    synced.add(90, 91, day=9)
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.enough_on("mysql")
def test_changes_that_are_pending_together(new_table: NewTable, target: str) -> None:
    synced = new_table(target)
    synced.add(1, 6, day=1)
    assert synced.sync("--backup-only").code == 0
    statements = [
        "ALTER TABLE t MODIFY big VARCHAR(40) NOT NULL",
        "ALTER TABLE t MODIFY day DATETIME",
        "ALTER TABLE t MODIFY amount DECIMAL(11,4)",
        "ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7",
        "ALTER TABLE t DROP COLUMN x",
        "ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 8",
    ]
    for number, statement in enumerate(statements, 2):
        synced.change(statement)
        synced.add(10 * number, 10 * number + 1, day=number)
        assert synced.settle("--backup-only") == 0
    assert synced.sync("--redshift-only").code == 0
    synced.check_equal()
