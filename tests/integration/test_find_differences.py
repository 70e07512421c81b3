"""Rows that differ between source and target are found, and nothing else is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count, pairwise
from threading import Event, Thread
from typing import Any

import pytest

from differences import comparing, differences, together
from floodmark.config.models import DuckdbConnection
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import UsageError
from floodmark.model.extraction import SESSION_SETTINGS
from floodmark.model.fingerprint import FIRST_NUMBER, LAST_NUMBER, moment_number
from floodmark.model.reconciliation import KeyLimits, Place
from floodmark.model.table import TableName
from floodmark.mysql import connection
from floodmark.mysql import fingerprints as mysql_fingerprints
from floodmark.mysql.catalog import read_table
from floodmark.planning import segments as planning_segments
from floodmark.planning.segments import batches
from floodmark.sync import compared_sides, find_differences
from floodmark.sync.compared_sides import ComparedSides
from floodmark.warehouse import fingerprints as warehouse_fingerprints
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
@pytest.mark.parametrize("many", [0, 100_000], ids=["versions-first", "keys-first"])
def test_every_kind_of_difference(
    world: Make, kind: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compared_sides, "_MANY_ROWS", many)
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


GHOSTS = "(-5, 0, NULL), (77, 0, '2025-09-01'), (78, 0, '2026-01-01'), (79, 0, '2037-01-01')"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("many", [0, 100_000], ids=["versions-first", "keys-first"])
def test_rows_added_to_the_target(
    world: Make, kind: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compared_sides, "_MANY_ROWS", many)
    made = world(OF_CHANGES, rows(1, 30), kind=kind)
    later = "(31, 1, '2025-06-02'), (32, 1, '2037-01-01')"  # yet to be synced
    made.source(f"INSERT INTO t VALUES {later}")
    made.target(f"INSERT INTO {{schema}}.t (id, v, update_at) VALUES {GHOSTS}, {later}")
    assert made.found(all_shown=True) == {"deleted": [-5, 77, 78, 79]}
    assert made.found() == {}  # a source that lags may not show rows after the position
    made.target("DELETE FROM {schema}.t WHERE id < 0")  # all that have no version
    assert made.found(all_shown=True) == {"deleted": [77, 78, 79]}
    made.target("UPDATE {schema}.t SET update_at = NULL WHERE id IN (3, 4, 77)")
    assert made.found(all_shown=True) == {"deleted": [77, 78, 79], "stale": [3, 4]}


def test_rows_added_before_the_start_are_left_alone(world: Make) -> None:
    made = world(OF_CHANGES, rows(1, 30), settings="default_start: '2025-06-01 00:00:10'")
    made.target("INSERT INTO t VALUES (70, 0, '2025-05-31'), (71, 0, NULL), (72, 0, '2025-09-01')")
    assert made.found(all_shown=True) == {"deleted": [71, 72]}


def test_added_rows_with_an_id_cursor(world: Make) -> None:
    made = world("id INT PRIMARY KEY, v INT", cursor="{cursor: id}")
    made.source(f"INSERT INTO t SELECT seq, seq FROM {numbers(1, 30)}")
    made.sync()
    made.source("INSERT INTO t VALUES (31, 1)")  # yet to be synced
    made.target("INSERT INTO t VALUES (31, 1), (77, 1), (-5, 1)")
    assert made.found(all_shown=True) == {"deleted": [-5, 77]}
    assert made.found() == {"deleted": [-5]}


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


@pytest.mark.parametrize("kind", KINDS)
def test_databases_compute_the_reference(
    world: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = "'0001-01-01', '1969-12-31 23:59:59.999999', '2025-06-01 12:34:56.123456'"
    keys = "-9223372036854775808, -1, 9223372036854775807"
    made = world(
        "id BIGINT PRIMARY KEY, update_at DATETIME(6) NOT NULL",
        *(
            f"INSERT INTO t VALUES ({key}, {moment})"
            for key, moment in zip(keys.split(", "), times.split(", "), strict=True)
        ),
        kind=kind,
        cursor="{cursor: update_at}",
        settings="default_start: all",
    )
    answers: list[Any] = []
    real = ComparedSides.compare

    def compare(self: ComparedSides, *arguments: Any) -> Any:
        found = real(self, *arguments)
        answers.append((self._compared.hashing, found))
        return found

    monkeypatch.setattr(ComparedSides, "compare", compare)
    made.found()
    hashing = answers[0][0]
    with session(made.it) as connection:
        held = [((key,), moment_number(at)) for key, at in ask(connection, "SELECT * FROM t")]
    expected = hashing.fingerprint(held)
    for side in (0, 1):
        parts = [one for _, found in answers for one in found[side].values()]
        assert sum(parts, start=type(expected)()) == expected


@pytest.mark.parametrize("kind", ["DATETIME", "TIMESTAMP", "DATETIME(3)", "DATE"])
def test_ranges_of_versions_that_are_shorter_than_the_fraction(world: Make, kind: str) -> None:
    """Each row is in one of the ranges that follow each other, with the index and without."""
    made = world()
    made.source(f"CREATE TABLE u (id INT, update_at {kind} NOT NULL, KEY by_change (update_at))")
    first = moment_number(datetime(2025, 6, 1, tzinfo=UTC))
    moments = ("2025-06-01", "2025-06-01 00:00:00.001", "2025-06-01 00:00:01", "2025-06-02")
    with session(made.it) as connection:
        ask(connection, "SET time_zone = '+00:00'")
        for number, moment in enumerate(moments):
            ask(connection, f"INSERT INTO u VALUES ({number}, '{moment}')")
        reader: Any = connection
        column = read_table(reader, TableName("PROD", made.it.schema, "u")).column("update_at")
        steps = (1, 400_000, 999_999, 1_000_000, 1_000_001, 5_000_000, 86_400_000_000)
        ends = [FIRST_NUMBER - 1, *(first + step for step in (-1, 0, *steps)), LAST_NUMBER]
        for index in ("FORCE INDEX (by_change)", "IGNORE INDEX (by_change)"):
            found = 0
            for low, high in pairwise(ends):
                where = mysql_fingerprints._range(column, "moment", "", low + 1, high)
                found += ask(connection, f"SELECT COUNT(*) FROM u {index} WHERE {where}")[0][0]
            assert found == len(moments), index


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_side(world: Make, kind: str) -> None:
    made = world(OF_CHANGES, rows(1, 500), kind=kind)
    made.target("DELETE FROM {schema}.t")
    assert made.found() == {"missing": list(range(1, 501))}
    made.source("TRUNCATE t")
    assert made.found() == {}
    made.target("INSERT INTO {schema}.t VALUES (5, 1, '2025-06-01 00:00:05')")
    assert made.found() == {"deleted": [5]}


def test_a_truncated_and_refilled_table(world: Make) -> None:
    made = world(OF_CHANGES, rows(1, 300))
    made.source(
        "TRUNCATE t",
        "INSERT INTO t SELECT seq, 0, IF(seq % 2, '2025-06-01', '2030-01-01')"
        f" FROM {numbers(1, 200)}",
    )
    assert made.found() == {
        "deleted": list(range(201, 301)),
        "stale": list(range(1, 200, 2)),
    }


@pytest.mark.enough_on("mysql")
def test_intervals_are_small_and_can_be_continued(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_differences, "batches", lambda found: batches(found, 300))
    made = world(OF_CHANGES, rows(1, 2000))
    made.source("UPDATE t SET update_at = '2025-06-01'")
    with comparing(made.it) as intervals:
        every = list(intervals)
    assert together(every) == {"stale": list(range(1, 2001))}
    assert sum(one.source_rows for one in every) == 2000
    assert len(every) > 5
    assert all(len(one.stale) <= 300 for one in every)
    with comparing(made.it) as intervals:
        first = next(intervals)
    with comparing(made.it, start=first.through) as intervals:
        assert together([first, *intervals]) == {"stale": list(range(1, 2001))}
    elsewhere = Place(("other",), 1900)
    assert made.found(start=elsewhere) == {"stale": list(range(1, 2001))}
    assert made.found(limits=KeyLimits(10, 20)) == {"stale": list(range(10, 21))}


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take small tables for large ones: a few places are compared first."""
    monkeypatch.setattr(planning_segments, "_LEAST_SAMPLED_ROWS", 100)
    monkeypatch.setattr(planning_segments, "_SAMPLE_ROWS", 300)


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("kind", KINDS)
def test_differences_that_are_spread(
    world: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world(OF_CHANGES, rows(1, 3000), kind=kind)
    assert made.found() == {}
    made.source(
        "DELETE FROM t WHERE id % 50 = 0",
        "UPDATE t SET update_at = '2025-06-01' WHERE id % 100 = 1",
        "UPDATE t SET update_at = '2030-01-01' WHERE id % 100 = 2",  # yet to be synced
        "INSERT INTO t VALUES (-7, 1, '2025-06-01'), (9000, 1, '2030-01-01')",
    )
    made.target("DELETE FROM {schema}.t WHERE id IN (10, 20)")
    made.target("UPDATE {schema}.t SET update_at = NULL WHERE id = 1001")
    if kind != "redshift":  # it has no aggregate of long texts
        monkeypatch.delattr(ComparedSides, "scan")
    assert made.found() == {
        "deleted": list(range(50, 3001, 50)),
        "missing": [-7, 10, 20],
        "stale": list(range(1, 3000, 100)),
    }


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize(
    ("kind", "low"),
    [
        ("BIGINT", -(2**63)),
        ("BIGINT", 2**63 - 600),
        ("BIGINT UNSIGNED", 2**64 - 600),
        ("INT(10) UNSIGNED ZEROFILL", 0),
        ("DECIMAL(18,0)", -300),
        ("DATETIME", 20250601000000),
    ],
)
@pytest.mark.parametrize("target", ["duckdb", "postgres"])
def test_spread_over_keys_with_gaps(world: Make, kind: str, low: int, target: str) -> None:
    far = {"BIGINT": 0, "BIGINT UNSIGNED": 7}.get(kind)
    step = 1 if kind != "DATETIME" else 100
    made = world(
        f"id {kind} PRIMARY KEY, update_at DATETIME NOT NULL",
        f"INSERT INTO t SELECT seq * {step} + {low}, '2025-06-01' + INTERVAL seq SECOND"
        f" FROM {numbers(0, 50)}",
        f"INSERT INTO t SELECT seq + {low}, '2025-06-01' + INTERVAL seq SECOND"
        f" FROM {numbers(51, 599)}"
        if kind != "DATETIME"
        else "DO 0",
        *([f"INSERT INTO t VALUES ({far}, '2025-06-01')"] if far is not None else []),
        kind=target,
        cursor="{cursor: update_at}",
    )
    assert made.found() == {}
    made.source("DELETE FROM t WHERE MINUTE(update_at) = 0 AND SECOND(update_at) % 10 = 5")
    found = made.found()
    assert list(found) == ["deleted"]
    assert len(found["deleted"]) == (5 if kind == "DATETIME" else 6)


@pytest.mark.usefixtures("sampled")
def test_all_rows_differ(world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(OF_CHANGES, rows(1, 2000))
    made.source("UPDATE t SET update_at = '2025-06-01'")
    every = {"stale": list(range(1, 2001))}
    assert made.found() == every
    for module, name in ((find_differences, "LINES_ROWS"), (find_differences, "BATCH_ROWS")):
        monkeypatch.setattr(module, name, 300)
    with comparing(made.it) as intervals:
        first = next(intervals)
    assert first.stale == list(zip(range(1, len(first.stale) + 1)))
    with comparing(made.it, start=first.through) as intervals:
        rest = list(intervals)
    assert together([first, *rest]) == every
    assert sum(one.source_rows for one in [first, *rest]) == 2000
    assert len(rest) > 5
    assert made.found(limits=KeyLimits(10, 20)) == {"stale": list(range(10, 21))}


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("side", ["source", "target"])
def test_lines_that_are_too_many(world: Make, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if side == "source":
        settings = (*SESSION_SETTINGS, "SET group_concat_max_len = 100")
        monkeypatch.setattr(connection, "SESSION_SETTINGS", settings)
    else:
        monkeypatch.setattr(warehouse_fingerprints, "MOST_LINES", 100)
    made = world(OF_CHANGES, rows(1, 1000))
    made.source("DELETE FROM t WHERE id % 10 = 0")
    assert made.found() == {"deleted": list(range(10, 1001, 10))}


@pytest.mark.usefixtures("sampled")
def test_duplicates_among_lines(world: Make) -> None:
    made = world(OF_CHANGES, rows(1, 1000))
    made.target(
        "INSERT INTO t SELECT * FROM t WHERE id % 100 = 7",
        "INSERT INTO t SELECT id, v, '2025-05-31' FROM t WHERE id = 500",
    )
    assert made.found() == {"duplicate": sorted([*range(7, 1000, 100), 500])}


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_under_one_leading_value(world: Make, kind: str) -> None:
    made = world(
        "shop INT UNSIGNED, id BIGINT, v INT, update_at DATETIME NOT NULL, PRIMARY KEY (shop, id)",
        "INSERT INTO t SELECT seq % 2, seq - 5, 1, '2025-06-01' + INTERVAL seq SECOND"
        f" FROM {numbers(1, 6000)}",
        kind=kind,
        cursor="{cursor: update_at}",
    )
    assert made.found() == {}
    made.source(
        "DELETE FROM t WHERE id = 700", "UPDATE t SET update_at = '2025-06-01' WHERE id = -2"
    )
    assert made.found() == {"deleted": [(1, 700)], "stale": [(1, -2)]}


def test_a_cursor_inside_the_primary_key(world: Make) -> None:
    made = world(
        "update_at DATETIME(3), id INT, PRIMARY KEY (update_at, id)",
        f"INSERT INTO t SELECT '2025-06-01' + INTERVAL seq SECOND, seq FROM {numbers(1, 500)}",
    )
    made.source("UPDATE t SET update_at = '2025-06-01 00:00:01.5' WHERE id = 100")
    assert made.found() == {
        "deleted": [("2025-06-01 00:01:40", 100)],
        "missing": [("2025-06-01 00:00:01.500000", 100)],
    }


@pytest.mark.enough_on("mariadb")
def test_soft_deleted_and_duplicate_rows(world: Make) -> None:
    made = world(OF_CHANGES, rows(1, 100))
    made.source("DELETE FROM t WHERE id IN (1, 2)")
    made.target(
        "ALTER TABLE t ADD COLUMN _deleted_at TIMESTAMP",
        "UPDATE t SET _deleted_at = now() WHERE id IN (1, 50)",
        "INSERT INTO t SELECT * FROM t WHERE id IN (2, 60)",
    )
    assert made.found(deleted_at="_deleted_at") == {
        "deleted": [2],
        "missing": [50],
        "duplicate": [60],
    }
    with comparing(made.it, deleted_at="_deleted_at") as intervals:
        (found,) = [key for one in intervals for key in one.deleted]
    assert moment_number(found.version) % 60_000_000 == 2_000_000


def test_without_times_only_keys_are_compared(world: Make) -> None:
    made = world("id INT PRIMARY KEY, v INT", cursor="{cursor: id}")
    made.source(f"INSERT INTO t SELECT seq, seq FROM {numbers(1, 500)}")
    made.sync()
    made.source("DELETE FROM t WHERE id = 7", "UPDATE t SET v = 0", "INSERT INTO t VALUES (-1, 1)")
    made.source("INSERT INTO t VALUES (600, 1)")  # yet to be synced
    made.target("DELETE FROM t WHERE id = 9")
    assert made.found() == {"deleted": [7], "missing": [-1, 9]}


@pytest.mark.enough_on("mariadb")
def test_rows_that_cannot_be_in_the_target(world: Make) -> None:
    made = world(
        "id INT PRIMARY KEY, day DATE, note VARCHAR(9), update_at DATETIME, KEY (update_at)",
        kind="postgres",
        settings="extraction: {zero_dates: quarantine, cursor_time_zone: UTC}\n"
        "default_start: '2025-01-01'",
    )
    made.source(
        "INSERT INTO t VALUES (1, '2025-01-01', 'a', '2025-06-01'), (2, NULL, '', '2024-01-01'),"
        " (3, NULL, '', NULL), (4, NULL, '', '0000-00-00'), (5, '0000-00-00', '', '2025-06-01'),"
        " (6, NULL, 'a\\0', '2025-06-01'), (7, NULL, '', '2025-06-02')",
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "INSERT INTO t VALUES (8, NULL, '', '2025-02-31')",
    )
    made.sync()
    made.source("INSERT INTO t VALUES (9, NULL, '', '2025-06-01')")
    with comparing(made.it) as intervals:
        found = list(intervals)
    assert together(found) == {"missing": [9]}
    assert sum(one.quarantined for one in found) == 3


def test_rows_that_change_meanwhile(world: Make) -> None:
    made = world(OF_CHANGES, rows(1, 1500))
    made.source("DELETE FROM t WHERE id % 300 = 0")
    over = Event()

    def write() -> None:
        with session(made.it) as connection:
            for number in count():
                if over.is_set():
                    return
                key = number * 7 % 1500 + 1
                ask(
                    connection, f"UPDATE t SET update_at = '2030-01-01', v = v + 1 WHERE id = {key}"
                )
                ask(connection, f"INSERT IGNORE INTO t VALUES ({-number}, 1, '2030-01-01')")

    writer = Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            assert made.found() == {"deleted": [300, 600, 900, 1200, 1500]}
    finally:
        over.set()
        writer.join()


def test_a_key_that_the_source_compares_as_equal(world: Make) -> None:
    made = world(
        "id VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, update_at DATETIME NOT NULL",
        "INSERT INTO t VALUES ('Ab', '2025-06-01'), ('x', '2025-06-01')",
        cursor="{cursor: update_at}",
    )
    made.source("UPDATE t SET id = 'aB' WHERE id = 'ab'")
    assert made.found() == {"deleted": ["Ab"], "missing": ["aB"]}


@pytest.mark.enough_on("mysql")
def test_every_statement_proves_its_server(world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(OF_CHANGES, rows(1, 300))
    made.source("DELETE FROM t WHERE id = 5")
    asked: list[str] = []
    real = connection.query

    def query(session: Any, sql: str) -> Any:
        asked.append(sql)
        return real(session, sql)

    monkeypatch.setattr(mysql_fingerprints, "query", query)
    assert made.found() == {"deleted": [5]}
    assert asked
    assert all("~0 + (CAST(CONCAT(@@" in sql for sql in asked)


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    ("columns", "cursor", "reason"),
    [
        ("id DOUBLE PRIMARY KEY, update_at DATETIME NOT NULL", "update_at", "double"),
        ("id INT, update_at DATETIME NOT NULL", "update_at", "no primary key"),
        ("id INT PRIMARY KEY, v INT", "none", "no cursor"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    world: Make, columns: str, cursor: str, reason: str
) -> None:
    made = world(columns, cursor=f"{{cursor: {cursor}}}")
    second = "'2025-06-01'" if "update_at" in columns else "1"
    made.source(f"INSERT INTO t VALUES (1, {second})")
    made.sync()
    with pytest.raises(UsageError, match=reason):
        made.found()


@pytest.mark.enough_on("mysql")
def test_a_key_of_another_type_in_the_target_is_refused(world: Make) -> None:
    made = world(OF_CHANGES, rows(1, 3))
    made.target("ALTER TABLE t ALTER id TYPE DOUBLE")
    with pytest.raises(UsageError, match=r"t\.id is DOUBLE in the target"):
        made.found()
