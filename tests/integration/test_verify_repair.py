"""`sync --verify-data --repair`: what a comparison finds is repaired."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from pipelines import Ended, Pipeline, ask_once, numbers
from warehouses import name_target, new_warehouse

New = Callable[..., Pipeline]

STAMP = "update_at DATETIME NOT NULL"
SETTINGS = "extraction: {window_rows: 4, windows_per_chunk: 2}"


def synced(pipeline: New, deletes: str, cursor: str = "[update_at, id]") -> Pipeline:
    """Twenty rows, in source and target."""
    table = f"{{cursor: {cursor}, reconcile: {{deletes: {deletes}}}}}"
    it = pipeline({"t": table}, settings=SETTINGS)
    ask_once(it, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, {STAMP}, KEY (update_at, id))")
    ask_once(
        it,
        "INSERT INTO t SELECT seq, seq, '2025-06-01' + INTERVAL seq DIV 3 SECOND"
        f" FROM {numbers(1, 20)}",
    )
    ended = it.call("sync", "-p", "main")
    assert ended.code == 0, ended
    return it


def in_target(it: Pipeline, *statements: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        for statement in statements:
            found = database.execute(statement)
        return found.fetchall()


def repair(it: Pipeline, *arguments: str) -> Ended:
    every = ("--verify-data=all", "--repair", "--json")
    return it.call("sync", "-p", "main", "--load-only", *every, *arguments)


DAMAGE = (
    "UPDATE t SET v = -1 WHERE id IN (3, 9)",
    "DELETE FROM t WHERE id = 5",
    "INSERT INTO t SELECT t.* FROM t WHERE id = 7",
    "INSERT INTO t VALUES (99, 0, '2025-06-01 00:00:03')",
)


@pytest.mark.enough_on("mariadb")
def test_every_kind_of_difference_is_repaired(pipeline: New) -> None:
    it = synced(pipeline, "hard")
    in_target(it, *DAMAGE)
    ended = repair(it)
    assert ended.code == 0, ended
    found = ended.table["verification"]
    assert (found["differences"], found["keys"], found["rows"]) == ({}, [], 20)
    done = ended.table["reconciliation"]
    assert (done["repaired"], done["removed"]) == (4, 1)
    assert in_target(it, "SELECT id, v FROM t ORDER BY id") == [(n, n) for n in range(1, 21)]
    assert it.watermark().verified_state.status == "success"
    chunk = it.chunks()[-1]
    assert chunk.start == chunk.end
    again = repair(it)
    assert (again.code, again.table["reconciliation"]) == (0, None)


@pytest.mark.enough_on("mysql")
def test_with_an_id_cursor_changed_rows_are_repaired_too(pipeline: New) -> None:
    it = synced(pipeline, "hard", "id")
    in_target(it, "DELETE FROM t WHERE id = 5")
    ask_once(it, "UPDATE t SET v = -v WHERE id IN (3, 9)")
    ask_once(it, "DELETE FROM t WHERE id = 12")
    ended = repair(it)
    assert ended.code == 0, ended
    expected = [(n, -n if n in (3, 9) else n) for n in range(1, 21) if n != 12]
    assert in_target(it, "SELECT id, v FROM t ORDER BY id") == expected


@pytest.mark.enough_on("mysql")
def test_rows_that_only_the_target_has_are_reported_if_that_is_the_policy(pipeline: New) -> None:
    it = synced(pipeline, "report")
    in_target(it, *DAMAGE)
    ended = repair(it)
    assert ended.code == 5
    assert ended.table["verification"]["differences"] == {"extra": 1}
    assert [row["key"] for row in ended.table["verification"]["keys"]] == [{"id": "99"}]
    assert ended.table["reconciliation"]["repaired"] == 4
    assert in_target(it, "SELECT count(*) FROM t") == [(21,)]


@pytest.mark.enough_on("mariadb")
def test_a_row_that_is_marked_as_deleted_is_no_difference(pipeline: New) -> None:
    it = synced(pipeline, "soft")
    ask_once(it, "DELETE FROM t WHERE id = 4")
    ended = repair(it)
    assert ended.code == 0, ended
    assert in_target(it, "SELECT id FROM t WHERE _deleted_at IS NOT NULL") == [(4,)]
    found = repair(it).table["verification"]
    assert (found["differences"], found["checksum_windows"]) == ({}, found["windows"])


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("kind", ["duckdb", "postgres", "redshift"])
def test_rows_of_the_target_outside_of_what_was_synced_are_counted(
    pipeline: New, request: pytest.FixtureRequest, kind: str
) -> None:
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"}, lake="ministack" if kind == "redshift" else "local"
    )
    (it.folder / "other").mkdir()
    warehouse = replace(new_warehouse(kind, request, it.folder / "other"), lake=it.lake)
    name_target(it.config, warehouse.connection)
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, update_at DATETIME NOT NULL,"
        " KEY (update_at, id))",
    )
    ask_once(it, "INSERT INTO t VALUES (1, 1, '2025-06-01'), (2, 2, '2025-06-02')")
    assert it.call("sync", "-p", "main").code == 0
    everything = ("sync", "-p", "main", "--verify-data=all")
    assert "outside" not in it.call(*everything).out
    warehouse.query(
        "INSERT INTO {schema}.t (id, v, update_at) VALUES (98, 0, NULL), (99, 0, '2025-09-01')"
    )
    ended = it.call(*everything)
    assert ended.code == 0
    assert "2 rows of the target outside of what was synced" in ended.out, ended
    assert it.call("reconcile", "-p", "main", "--deletes", "soft").code == 0
    assert "outside" not in it.call(*everything).out


@pytest.mark.enough_on("mysql")
def test_repair_needs_a_comparison(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: id}"})
    ended = it.call("sync", "-p", "main", "--repair")
    assert (ended.code, "hint: add --verify-data" in ended.err) == (2, True)
