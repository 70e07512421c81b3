"""Rows that differ between source and target are found, and nothing else is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from differences import differences
from floodmark.config.models import DuckdbConnection
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.sync.compared_sides import ComparedSides
from pipelines import Pipeline, ask, numbers, session
from warehouses import Warehouse, name_target, new_warehouse

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
        with session(self.it) as connection:
            for statement in ("SET sql_mode = ''", *statements):
                ask(connection, statement)

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


def empty(
    tables: dict[str, str],
    kind: str,
    pipeline: New,
    request: pytest.FixtureRequest,
    settings: str = "",
) -> World:
    """Make a pipeline that loads a kind of target."""
    lake = "ministack" if kind == "redshift" else "local"
    it = pipeline(tables, settings=settings, lake=lake)
    if kind == "duckdb":
        path = str(it.folder / "warehouse.duckdb")
        return World(it, Warehouse(DuckdbConnection(path=path), it.lake))
    warehouse = replace(new_warehouse(kind, request, it.folder / "other"), lake=it.lake)
    name_target(it.config, warehouse.connection)
    return World(it, warehouse)


@pytest.fixture
def world(pipeline: New, request: pytest.FixtureRequest) -> Make:
    """Makes a synced table in a kind of target: its columns, and rows to fill it with."""

    def make(
        columns: str = OF_CHANGES,
        *fill: str,
        kind: str = "duckdb",
        cursor: str = CURSOR,
        settings: str = "",
    ) -> World:
        made = empty({"t": cursor}, kind, pipeline, request, settings)
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


# Keys of each type, extremes among them.
KEYS = {
    "tiny": ("TINYINT", "-128, 0, 127"),
    "small": ("SMALLINT UNSIGNED", "0, 65535"),
    "padded": ("INT(8) UNSIGNED ZEROFILL", "0, 7, 4294967295"),
    "big": ("BIGINT", "-9223372036854775808, -1, 0, 1, 9223372036854775807"),
    "huge": ("BIGINT UNSIGNED", "0, 1, 9223372036854775808, 18446744073709551615"),
    "whole": ("DECIMAL(18,0)", "-999999999999999999, 0, 999999999999999999"),
    "digits": ("DECIMAL(30,0)", "-999999999999999999999999999999, 0, 100"),
    "money": ("DECIMAL(10,4)", "-0.5, 0, 1.5, 100, 999999.9999"),
    "filled": ("DECIMAL(10,2) ZEROFILL", "0, 1.5, 100"),
    "exact": (
        "DECIMAL(65,30)",
        "0, 1.5, -12345678901234567890123456789012345.000000000000000000001",
    ),
    "year": ("YEAR", "1901, 2155"),
    "bit": ("BIT(1)", "0"),
    "bits": ("BIT(64)", "0, 18446744073709551615"),
    "day": ("DATE", "'0001-01-01', '1969-12-31', '2024-02-29', '9999-12-31'"),
    "moment": ("DATETIME", "'0001-01-01', '2025-06-01 12:34:56', '9999-12-31 23:59:59'"),
    "micros": (
        "DATETIME(6)",
        "'1000-01-01', '2025-06-01 00:00:00.000001', '9999-12-31 23:59:59.999999'",
    ),
    "instant": ("TIMESTAMP(3)", "'1970-01-01 00:00:01', '2038-01-19 03:14:07.999'"),
    "duration": ("TIME(6)", "'-838:59:59', '00:00:00.000001', '838:59:59'"),
    "fixed": ("CHAR(10)", "'', 'a', 'b ', 'é🎈'"),
    "word": (
        "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "'', 'a', 'A', 'é🎈', 'it''s', 'b'",
    ),
    "blanks": ("VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "'a', ' b', 'c '"),
    "western": ("VARCHAR(20) CHARACTER SET latin1", "'é', 'ü'"),
    "choice": ("ENUM('x', 'é')", "'x', 'é'"),
    "options": ("SET('x', 'y')", "'', 'x,y'"),
    "raw": ("BINARY(4)", "X'00', X'FF00'"),
    "bytes": ("VARBINARY(20)", "X'', X'00FF', X'6162'"),
}
MARIADB_KEYS = {
    "uuid": ("UUID", "'00000000-0000-0000-0000-000000000001', UUID()"),
    "address": ("INET6", "'::1', '10.0.0.1'"),
}


# Types whose ranges an index serves, and some that are hashed.
LEADING = ("big", "huge", "bit", "day", "micros", "word")


def tables_of(keys: dict[str, tuple[str, str]], count: int) -> dict[str, tuple[str, list[str]]]:
    """Return tables that have all these types in their keys: columns, and some rows."""
    names = list(keys)
    found = {}
    for number in range(count):
        these = names[number::count]
        columns = ", ".join(f"`{name}` {keys[name][0]}" for name in these)
        values = [keys[name][1].split(", ") for name in these]
        rows = [", ".join(v[row % len(v)] for v in values) for row in range(5)]
        found[f"t{number}"] = (
            f"{columns}, PRIMARY KEY ({', '.join(map('`{}`'.format, these))})",
            rows,
        )
    return found


def check_tables(made: World, tables: dict[str, tuple[str, list[str]]], patch: Any) -> None:
    """Fill tables and compare them, before and after rows differ."""
    for name, (columns, rows) in tables.items():
        filled = (f"INSERT INTO {name} VALUES ({values}, '2025-06-01')" for values in rows)
        made.source(f"CREATE TABLE {name} ({columns}, update_at DATETIME NOT NULL)", *filled)
    made.sync()
    with patch.context() as patched:
        # Equal rows have equal fingerprints: no keys are read.
        patched.delattr(ComparedSides, "read_target")
        assert {name: differences(made.it, name) for name in tables} == {t: {} for t in tables}
    for name, (_, rows) in tables.items():
        made.source(
            f"DELETE FROM {name} LIMIT 1", f"UPDATE {name} SET update_at = '2025-05-31' LIMIT 1"
        )
        found = differences(made.it, name)
        stale = {"stale": 1} if len(rows) > 1 else {}
        assert {kind: len(keys) for kind, keys in found.items()} == {"deleted": 1, **stale}, name


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_every_type(
    pipeline: New,
    request: pytest.FixtureRequest,
    server: PrivateMariaDB,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = KEYS | (MARIADB_KEYS if type(server) is PrivateMariaDB else {})
    tables = tables_of(keys, 2)
    made = empty(dict.fromkeys(tables, "{cursor: update_at}"), kind, pipeline, request)
    check_tables(made, tables, monkeypatch)


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("kind", KINDS)
def test_leading_columns_of_every_type(
    pipeline: New, request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {
        f"t_{name}": (f"id {KEYS[name][0]} PRIMARY KEY", KEYS[name][1].split(", "))
        for name in LEADING
    }
    made = empty(dict.fromkeys(tables, "{cursor: update_at}"), kind, pipeline, request)
    check_tables(made, tables, monkeypatch)
