"""`floodmark reconcile`: what a cursor does not see is found, and the target repaired."""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec import structs

import floodmark
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.model.extraction import Receipt, Window
from floodmark.model.reconciled_state import ReconciledState
from floodmark.sync import find_differences
from floodmark.worker.job import ExtractionJob
from hints import commands_in
from pipelines import DirectEngine, Ended, Pipeline, ask_once, numbers, source_of
from scenarios import open_store
from warehouses import Warehouse, name_target, new_warehouse, quoted

New = Callable[..., Pipeline]

CURSOR = "{cursor: [update_at, id]}"
STAMP = "update_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
ONE_KEY = f"id INT PRIMARY KEY, v INT NOT NULL DEFAULT 0, {STAMP}, KEY by_change (update_at, id)"
LATER = "'2025-07-01'"
OLD = "'2025-06-01' + INTERVAL seq DIV 3 SECOND"


def create(it: Pipeline, name: str = "t", columns: str = ONE_KEY) -> None:
    ask_once(it, f"CREATE TABLE {name} ({columns})")


def fill(it: Pipeline, first: int, last: int, name: str = "t", values: str = "seq") -> None:
    """Add rows that changed long ago."""
    columns = "id, v, update_at" if values == "seq" else "code, id, v, update_at"
    ask_once(
        it,
        f"INSERT INTO {name} ({columns}) SELECT {values}, seq, {OLD} FROM {numbers(first, last)}",
    )


def in_target(it: Pipeline, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        return database.execute(sql).fetchall()


def reconcile(it: Pipeline, *arguments: str, **options: Any) -> Ended:
    return it.call("reconcile", "-p", "main", "--json", *arguments, **options)


def found(ended: Ended) -> dict[str, Any]:
    """How many keys of each kind a run found, and what it did about them."""
    (table,) = ended.value["tables"]
    said = table["reconciliation"]
    counts = {name: len(said[name]) for name in ("deleted", "missing", "stale", "duplicate")}
    done = {name: said[name] for name in ("repaired", "removed", "left")}
    return {name: count for name, count in (counts | done).items() if count}


def state(it: Pipeline, name: str = "t") -> ReconciledState:
    return it.watermark(name).reconciled_state


def check_equal(it: Pipeline, name: str = "t") -> None:
    """Hold source and target against each other, row by row."""
    source = ask_once(it, f"SELECT id, v, update_at FROM {name} ORDER BY id, update_at")
    assert in_target(it, f"SELECT id, v, update_at FROM {name} ORDER BY id, update_at") == source


def follow(it: Pipeline, ended: Ended) -> Ended:
    """Run the first command that a hint names."""
    command, *_ = commands_in(ended.err)
    return it.call(*command, "--json")


@pytest.fixture
def synced(pipeline: New) -> Pipeline:
    """Thirty rows, synced."""
    it = pipeline({"t": CURSOR})
    create(it)
    fill(it, 1, 30)
    assert it.call("sync", "-p", "main").code == 0
    return it


# What is found

SCENARIOS: dict[str, tuple[str, str, Sequence[str], dict[str, int]]] = {
    "deleted": (CURSOR, ONE_KEY, ["DELETE FROM {t} WHERE id % 10 = 3"], {"deleted": 3}),
    "moved": (
        CURSOR,
        ONE_KEY,
        [f"UPDATE {{t}} SET id = id + 100, update_at = {LATER} WHERE id < 3"],
        {"deleted": 2},
    ),
    "moved_unstamped": (
        CURSOR,
        ONE_KEY,
        ["UPDATE {t} SET id = id + 100, update_at = update_at WHERE id < 3"],
        {"deleted": 2, "missing": 2},
    ),
    "replaced": (
        CURSOR,
        ONE_KEY,
        [f"REPLACE INTO {{t}} VALUES (7, -7, '2025-05-01'), (8, -8, {LATER})"],
        {"stale": 1},
    ),
    "in_key": (
        CURSOR,
        (
            f"id INT NOT NULL, v INT NOT NULL DEFAULT 0, {STAMP}, PRIMARY KEY (id, update_at),"
            " KEY by_change (update_at, id)"
        ),
        [f"UPDATE {{t}} SET v = -1, update_at = {LATER} WHERE id IN (5, 6)"],
        {"deleted": 2},
    ),
    "refilled": (
        CURSOR,
        ONE_KEY,
        [
            "TRUNCATE {t}",
            (
                "INSERT INTO {t} (id, v, update_at) SELECT seq, -seq, '2025-05-01' + INTERVAL seq"
                f" SECOND FROM {numbers(1, 28)}"
            ),
        ],
        {"deleted": 2, "stale": 28},
    ),
    "late": (
        CURSOR,
        ONE_KEY,
        ["INSERT INTO {t} (id, v, update_at) VALUES (50, 50, '2025-06-01')"],
        {"missing": 1},
    ),
    "by_id": ("{cursor: id}", ONE_KEY, ["DELETE FROM {t} WHERE id IN (2, 4)"], {"deleted": 2}),
    "unchanged": (CURSOR, ONE_KEY, [], {}),
    "only_later": (
        CURSOR,
        ONE_KEY,
        [
            f"UPDATE {{t}} SET v = -1, update_at = {LATER} WHERE id = 9",
            f"INSERT INTO {{t}} VALUES (60, 60, {LATER})",
        ],
        {},
    ),
    "by_text": (
        "{cursor: update_at}",
        (
            f"code VARCHAR(20) COLLATE utf8mb4_bin, id INT NOT NULL, v INT NOT NULL, {STAMP},"
            " PRIMARY KEY (code, id), KEY by_change (update_at)"
        ),
        [
            "DELETE FROM {t} WHERE id = 11",
            "INSERT INTO {t} VALUES ('it''s é', 70, 70, '2025-05-05')",
        ],
        {"deleted": 1, "missing": 1},
    ),
}


def test_what_a_cursor_does_not_see_is_found_and_repaired(
    pipeline: New, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    check_scenarios(pipeline, new_warehouse("duckdb", request, tmp_path), "local")


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(("kind", "lake"), [("postgres", "local"), ("redshift", "ministack")])
def test_what_a_cursor_does_not_see_in_other_targets(
    pipeline: New, request: pytest.FixtureRequest, tmp_path: Path, kind: str, lake: str
) -> None:
    check_scenarios(pipeline, new_warehouse(kind, request, tmp_path / "target"), lake)


def check_scenarios(pipeline: New, warehouse: Warehouse, lake: str) -> None:
    """Sync, do to each table what its scenario says, reconcile, and compare."""
    it = pipeline({name: cursor for name, (cursor, *_) in SCENARIOS.items()}, lake=lake)
    warehouse = replace(warehouse, lake=it.lake)
    name_target(it.config, warehouse.connection)
    for name, (_, columns, *_) in SCENARIOS.items():
        create(it, name, columns)
        fill(it, 1, 30, name, "CONCAT('é', seq % 4), seq" if name == "by_text" else "seq")
    assert it.call("sync", "-p", "main").code == 0
    positions = {name: it.watermark(name).position for name in SCENARIOS}
    for name, (_, _, statements, _) in SCENARIOS.items():
        for statement in statements:
            ask_once(it, statement.replace("{t}", name))
    ended = reconcile(it, "--deletes", "hard")
    assert ended.code == 0, [table["error"] for table in ended.value["tables"]]
    for table in ended.value["tables"]:
        name = table["table_name"].rpartition(".")[2]
        said, expected = table["reconciliation"], SCENARIOS[name][3]
        counts = {kind: len(said[kind]) for kind in ("deleted", "missing", "stale", "duplicate")}
        assert {kind: n for kind, n in counts.items() if n} == expected, name
        assert said["removed"] == expected.get("deleted", 0), name
        assert said["complete"], name
        assert it.watermark(name).position == positions[name]
        assert state(it, name).status == "success"
    # The next sync brings what changed later; then nothing differs.
    assert it.call("sync", "-p", "main").code == 0
    for name in SCENARIOS:
        select = f"SELECT id, v, update_at FROM {{}}{name} ORDER BY id, update_at"
        assert warehouse.query(select.format("{schema}.")) == ask_once(it, select.format("")), name
    again = reconcile(it, "--deletes", "hard", "--strategy", "inter-table")
    assert all(not found_in(table) for table in again.value["tables"]), again
    assert warehouse.query(f"SELECT count(*) FROM {{schema}}.{quoted('late')}") == [(31,)]


def found_in(table: Any) -> int:
    said = table["reconciliation"]
    return sum(len(said[kind]) for kind in ("deleted", "missing", "stale", "duplicate"))


def test_changes_made_in_the_target_are_repaired(synced: Pipeline) -> None:
    in_target(synced, "DELETE FROM t WHERE id = 3")
    in_target(synced, "UPDATE t SET update_at = update_at - INTERVAL 1 DAY WHERE id = 4")
    in_target(synced, "INSERT INTO t SELECT * FROM t WHERE id = 5")
    in_target(
        synced,
        "INSERT INTO t (id, v, update_at) VALUES (97, 0, NULL), (98, 0, '2037-01-01'), (99, 0,"
        " '2025-06-01')",
    )
    ended = reconcile(synced, "--deletes", "hard")
    assert ended.code == 0, ended
    kinds = {"deleted": 3, "missing": 1, "stale": 1, "duplicate": 1}
    assert found(ended) == {**kinds, "repaired": 3, "removed": 3}
    check_equal(synced)
    said = ended.table["reconciliation"]
    assert [one["key"] for one in said["deleted"]] == [[97], [98], [99]]
    assert (said["missing"], said["stale"]) == ([[3]], [[4]])
    history = synced.call("watermark", "history", "-t", f"{synced.schema}.t").out
    assert "3 deleted" in history, history
    text = synced.call("watermark", "get", "-t", f"{synced.schema}.t").out
    assert "3 deleted, 1 missing, 1 stale, 1 duplicate" in text


def test_zero_dates_in_a_key_do_not_stop_it(pipeline: New) -> None:
    it = pipeline({"t": CURSOR}, settings="extraction: {zero_dates: quarantine}")
    create(
        it,
        columns=f"day DATETIME NOT NULL, id INT NOT NULL, v INT NOT NULL, {STAMP},"
        " PRIMARY KEY (day, id), KEY by_change (update_at, id)",
    )
    add = f"INSERT INTO t SELECT {{}}, seq, seq, {OLD} FROM {numbers(1, 20)}"
    for day in ("'2025-06-01'", "0", "'2025-06-00'"):
        ask_once(it, add.format(day), sql_mode="")
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "DELETE FROM t WHERE id = 3 AND DAY(day) = 1")
    text = it.call("reconcile", "-p", "main", "--deletes", "hard", "--dry-run")
    assert "19 rows compared" in text.out, text
    assert found(reconcile(it, "--deletes", "hard")) == {"deleted": 1, "removed": 1}
    assert found(reconcile(it)) == {}
    select = "SELECT id, v, update_at FROM t {} ORDER BY id"
    source = ask_once(it, select.format("WHERE DAY(day) = 1"))
    assert in_target(it, select.format("")) == source


@pytest.mark.enough_on("mysql")
def test_times_in_the_target_that_no_source_can_have(synced: Pipeline) -> None:
    for time, first in (("20000-01-01", 4), ("0044-03-15 (BC)", 6)):
        in_target(synced, f"UPDATE t SET update_at = '{time}' WHERE id IN ({first}, {first + 1})")
    ask_once(synced, "DELETE FROM t WHERE id = 5")
    ended = reconcile(synced, "--deletes", "hard")
    assert ended.code == 0, ended
    assert found(ended) == {"deleted": 1, "stale": 3, "repaired": 3, "removed": 1}
    check_equal(synced)


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("command", [("reconcile",), ("sync", "--verify-data=all", "--repair")])
def test_a_row_of_the_target_without_a_key(synced: Pipeline, command: Sequence[str]) -> None:
    in_target(synced, "ALTER TABLE t ALTER COLUMN id DROP NOT NULL")
    in_target(synced, "INSERT INTO t (id, v, update_at) VALUES (NULL, 0, '2025-06-01 00:00:02')")
    in_target(synced, "DELETE FROM t WHERE id = 3")
    ended = synced.call(*command, "-p", "main", "--json")
    assert ended.code == 5, ended
    done = ended.table["reconciliation"]
    assert (done["unkeyed"], done["repaired"]) == (1, 1)
    if command[0] == "reconcile":
        assert "1 row in the target without a key" in ended.table["error"]
        assert "rows of t in which id is NULL" in ended.table["hint"]
        text = synced.call("reconcile", "-p", "main")
        assert "no differences, 1 row without a key in the target" in text.out
    in_target(synced, "DELETE FROM t WHERE id IS NULL")
    assert synced.call(*command, "-p", "main").code == 0
    check_equal(synced)


@pytest.mark.enough_on("mysql")
def test_a_bit_in_the_key(pipeline: New) -> None:
    it = pipeline({"t": CURSOR})
    create(
        it,
        columns=f"flag BIT(1) NOT NULL, id INT NOT NULL, v INT NOT NULL, {STAMP},"
        " PRIMARY KEY (flag, id), KEY by_change (update_at, id)",
    )
    ask_once(it, f"INSERT INTO t SELECT seq % 2, seq, seq, {OLD} FROM {numbers(1, 20)}")
    repair = ("sync", "-p", "main", "--verify-data=all", "--repair", "--json")
    assert it.call(*repair).code == 0
    in_target(it, "DELETE FROM t WHERE id IN (3, 4)")
    in_target(it, "UPDATE t SET v = -1 WHERE id = 5")
    ended = it.call(*repair)
    assert (ended.code, ended.table["reconciliation"]["repaired"]) == (0, 3), ended
    check_equal(it)


@pytest.mark.enough_on("mysql")
def test_more_rows_than_a_few_are_read_by_the_engine(pipeline: New) -> None:
    used: list[int] = []

    class Counting(DirectEngine):
        def extract(
            self, job: ExtractionJob, windows: Sequence[Window], progress: Callable[[int], None]
        ) -> list[Receipt]:
            used.append(len(windows))
            return super().extract(job, windows, progress)

    it = pipeline({"t": CURSOR})
    create(it)
    fill(it, 1, 2_100)
    assert it.call("sync", "-p", "main").code == 0
    in_target(it, "DELETE FROM t WHERE id <= 1000")
    assert found(reconcile(it, engine=Counting)) == {"missing": 1_000, "repaired": 1_000}
    assert used == []
    in_target(it, "DELETE FROM t WHERE id <= 2001")
    assert found(reconcile(it, engine=Counting)) == {"missing": 2_001, "repaired": 2_001}
    assert used == [3]
    check_equal(it)


# Rows that no sync brings


@pytest.fixture
def started_late(pipeline: New) -> Pipeline:
    """Rows are synced from 2025-06-01 00:00:05 on, and may lose their time."""
    it = pipeline({"t": CURSOR}, settings="default_start: '2025-06-01 00:00:05'")
    create(it, columns=ONE_KEY.replace("DATETIME NOT NULL", "DATETIME NULL"))
    fill(it, 1, 30)
    assert it.call("sync", "-p", "main").code == 0
    return it


def move_out(it: Pipeline) -> None:
    """Move rows to where no sync reads them."""
    ask_once(it, "UPDATE t SET v = -1, update_at = '2025-05-01' WHERE id = 20")
    ask_once(it, "UPDATE t SET v = -2, update_at = NULL WHERE id = 21")
    ask_once(it, f"UPDATE t SET v = -3, update_at = {LATER} WHERE id = 22")


@pytest.mark.follows_hint("unless 'floodmark backfill")
@pytest.mark.parametrize("verifies", [False, True])
def test_rows_that_moved_out_of_the_synced_ranges_are_stale(
    started_late: Pipeline, verifies: bool
) -> None:
    it = started_late
    move_out(it)
    moved = "SELECT id, v, update_at FROM t WHERE id IN (20, 21) ORDER BY id"
    if verifies:
        assert it.call("sync", "-p", "main", "--load-only", "--verify-data=all").code == 5
        ended = it.call("sync", "-p", "main", "--load-only", "--verify-data=all", "--repair")
        assert ended.code == 0, ended
        assert in_target(it, moved) == ask_once(it, moved)
        return
    ended = reconcile(it)
    assert (ended.code, found(ended)) == (0, {"stale": 2, "repaired": 2}), ended
    assert in_target(it, moved) == ask_once(it, moved)
    assert found(reconcile(it)) == {}
    (warning,) = ended.table["warnings"]
    assert warning.startswith("1 row moved in the source to times before 2025-06-01 00:00:05")
    (command,) = re.findall("'floodmark (backfill [^']*)'", warning)
    assert it.call(*shlex.split(command)).code == 0
    ask_once(it, "UPDATE t SET v = -4, update_at = '2025-04-01' WHERE id = 20")
    assert found(reconcile(it)) == {"stale": 1, "repaired": 1}
    assert in_target(it, moved) == ask_once(it, moved)
    assert it.call("sync", "-p", "main").code == 0
    assert in_target(it, "SELECT v FROM t WHERE id = 22") == [(-3,)]


def test_rows_that_moved_into_a_gap_are_stale(synced: Pipeline) -> None:
    later = ("--timestamp", "2025-06-02 00:00:00", "--force")
    assert synced.call("watermark", "set", "-t", str(synced.table()), *later).code == 0
    ask_once(synced, "UPDATE t SET v = -1, update_at = '2025-06-01 12:00:00' WHERE id = 20")
    assert found(reconcile(synced)) == {"stale": 1, "repaired": 1}
    check_equal(synced)
    ask_once(synced, "UPDATE t SET v = -2, update_at = '2025-06-01 13:00:00' WHERE id = 20")
    assert found(reconcile(synced)) == {"stale": 1, "repaired": 1}
    ask_once(synced, "DELETE FROM t WHERE id = 20")
    assert found(reconcile(synced, "--deletes", "hard")) == {"deleted": 1, "removed": 1}
    check_equal(synced)


@pytest.mark.enough_on("mysql")
def test_a_row_in_quarantine_that_moved_out_is_not_stale(pipeline: New) -> None:
    policy = "extraction: {zero_dates: quarantine}\ndefault_start: '2025-06-01 00:00:05'"
    it = pipeline({"t": CURSOR}, settings=policy)
    create(it)
    fill(it, 1, 30)
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "UPDATE t SET v = -1, update_at = 0 WHERE id = 20", sql_mode="")
    ended = reconcile(it)
    assert (ended.code, found(ended)) == (0, {})
    assert ended.table["reconciliation"]["quarantined"] == 1
    assert "no differences, 1 row in quarantine" in it.call("reconcile", "-p", "main").out


# What happens to deleted rows


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("--deletes hard' removes them from the target")
def test_deletes_are_only_reported_unless_asked_for(synced: Pipeline) -> None:
    ask_once(synced, "DELETE FROM t WHERE id IN (1, 2)")
    ask_once(synced, "INSERT INTO t VALUES (40, 40, '2025-06-01')")
    ended = reconcile(synced)
    assert ended.code == 5
    assert found(ended) == {"deleted": 2, "missing": 1, "repaired": 1, "left": 2}
    assert "differ: 2 rows deleted in the source, and only reported" in ended.table["error"]
    assert in_target(synced, "SELECT count(*) FROM t") == [(31,)]
    assert (state(synced).status, state(synced).left) == ("failed", 2)
    assert state(synced).last_finished is not None
    text = synced.call("reconcile", "-t", f"{synced.schema}.t")  # as long as they are there
    assert text.code == 5
    assert "29 rows compared in" in text.out
    assert "2 deleted in the source" in text.out
    assert "deleted: id = 1" in text.out
    listed = synced.call("watermark", "list").out
    assert "differs" in listed, listed
    assert follow(synced, text).code == 0
    check_equal(synced)
    assert (state(synced).status, state(synced).left, state(synced).error) == ("success", 0, None)


@pytest.mark.enough_on("mysql")
def test_a_deleted_row_is_marked_until_it_comes_back(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id], reconcile: {deletes: soft, deleted_at: gone}}"})
    create(it)
    fill(it, 1, 10)
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "DELETE FROM t WHERE id IN (3, 4)")
    ended = reconcile(it)
    assert (ended.code, found(ended)) == (0, {"deleted": 2, "removed": 2}), ended
    marked = "SELECT id FROM t WHERE gone IS NOT NULL ORDER BY id"
    assert in_target(it, marked) == [(3,), (4,)]
    assert found(reconcile(it)) == {}  # what is marked is not found again
    ask_once(it, f"INSERT INTO t VALUES (3, -3, {LATER})")
    assert it.call("sync", "-p", "main").code == 0
    assert in_target(it, marked) == [(4,)]
    ask_once(it, "INSERT INTO t VALUES (4, -4, '2025-06-01')")  # behind the position
    assert found(reconcile(it)) == {"missing": 1, "repaired": 1}
    assert in_target(it, marked) == []
    check_equal(it)


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("under 'reconcile:' again", "set another 'deleted_at' under")
def test_a_column_that_cannot_mark_deleted_rows_is_refused(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id], reconcile: {deletes: soft, deleted_at: V}}"})
    create(it)
    fill(it, 1, 10)
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "DELETE FROM t WHERE id = 3")
    ended = it.call("reconcile", "-p", "main")
    assert ended.code == 2
    assert "deleted rows cannot be marked in 'V'" in ended.out
    config = Path(it.config)
    config.write_text(config.read_text().replace("deleted_at: V", "deleted_at: gone"))
    assert it.call("reconcile", "-p", "main").code == 0
    config.write_text(config.read_text().replace("deleted_at: gone", "deleted_at: other"))
    ended = it.call("reconcile", "-p", "main")
    assert ended.code == 2
    assert "set 'deleted_at: gone' under 'reconcile:' again" in ended.err
    config.write_text(config.read_text().replace("deleted_at: other", "deleted_at: gone"))
    assert it.call("reconcile", "-p", "main").code == 0


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("repairs the target")
@pytest.mark.parametrize("deletes", ["hard", "report"])
def test_a_dry_run_changes_nothing(synced: Pipeline, deletes: str) -> None:
    ask_once(synced, "DELETE FROM t WHERE id IN (1, 2)")
    in_target(synced, "DELETE FROM t WHERE id = 7")
    before, files = synced.watermark(), synced.files()
    ended = reconcile(synced, "--dry-run", "--deletes", deletes)
    assert (ended.code, found(ended)) == (5, {"deleted": 2, "missing": 1})
    assert (synced.watermark(), synced.files()) == (before, files)
    assert follow(synced, ended).code == (0 if deletes == "hard" else 5)
    left = range(3 if deletes == "hard" else 1, 8)
    assert in_target(synced, "SELECT id FROM t WHERE id < 8 ORDER BY id") == [(n,) for n in left]


@pytest.mark.enough_on("mysql")
def test_a_dry_run_says_what_allows_many_deletes(synced: Pipeline) -> None:
    config = Path(synced.config)
    config.write_text(config.read_text().replace("id]}", "id], reconcile: {max_deletes: 1}}"))
    ask_once(synced, "DELETE FROM t WHERE id IN (1, 2)")
    ended = reconcile(synced, "--dry-run", "--deletes", "hard")
    (warning,) = ended.table["warnings"]
    assert warning.endswith("'max_deletes' allows 1; '--allow-deletes 2' allows them")
    assert reconcile(synced, "--deletes", "hard", "--allow-deletes", "2").code == 0
    check_equal(synced)


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("drop that column there, or set another 'deleted_at'")
def test_a_column_of_the_target_that_cannot_mark_deleted_rows(synced: Pipeline) -> None:
    """It is refused before anything is committed: a manifest would wait for that column."""
    in_target(synced, "ALTER TABLE t ADD COLUMN _DELETED_AT INT")
    ask_once(synced, "DELETE FROM t WHERE id = 3")
    before = synced.watermark()
    ended = reconcile(synced, "--deletes", "soft")
    assert ended.code == 2, ended
    assert "cannot be marked in '_deleted_at': it is INTEGER in the target" in ended.table["error"]
    assert synced.watermark() == before
    in_target(synced, "ALTER TABLE t DROP COLUMN _DELETED_AT")
    assert reconcile(synced, "--deletes", "soft").code == 0
    assert in_target(synced, "SELECT id FROM t WHERE _deleted_at IS NOT NULL") == [(3,)]


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("in the target, or set 'schema_changes: follow' for the table")
@pytest.mark.parametrize("kind", ["duckdb", "postgres", "redshift"])
def test_a_frozen_table_gets_no_column_for_marks(
    pipeline: New, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    policy = "schema_changes: freeze, reconcile: {deletes: soft}"
    tables = {"t": f"{{cursor: [update_at, id], {policy}}}"}
    it = pipeline(tables, lake="ministack" if kind == "redshift" else "local")
    warehouse = replace(new_warehouse(kind, request, tmp_path), lake=it.lake)
    name_target(it.config, warehouse.connection)
    create(it)
    fill(it, 1, 30)
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "DELETE FROM t WHERE id = 3")
    before = it.watermark()
    ended = reconcile(it)
    assert ended.code == 2, ended
    assert "the target has no column _deleted_at, and" in ended.table["error"]
    assert it.watermark().head == before.head
    (column,) = re.findall("add (_deleted_at .*) to t in the target", ended.table["hint"])
    warehouse.query(f"ALTER TABLE {{schema}}.t ADD COLUMN {column}")
    assert found(reconcile(it)) == {"deleted": 1, "removed": 1}
    marked = warehouse.query("SELECT id FROM {schema}.t WHERE _deleted_at IS NOT NULL")
    assert marked == [(3,)]


@pytest.mark.enough_on("mysql")
def test_a_trigger_that_keeps_deleted_rows(pipeline: New, request: pytest.FixtureRequest) -> None:
    it = pipeline({"t": CURSOR})
    warehouse = replace(new_warehouse("postgres", request, it.folder / "other"), lake=it.lake)
    name_target(it.config, warehouse.connection)
    create(it)
    fill(it, 1, 30)
    assert it.call("sync", "-p", "main").code == 0
    warehouse.query(
        "CREATE FUNCTION {schema}.keep() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RETURN NULL; END'"
    )
    warehouse.query(
        "CREATE TRIGGER keep BEFORE DELETE ON {schema}.t FOR EACH ROW"
        " EXECUTE FUNCTION {schema}.keep()"
    )
    ask_once(it, "DELETE FROM t WHERE id IN (3, 4)")
    ended = reconcile(it, "--deletes", "hard")
    (warning,) = ended.table["warnings"]
    assert warning.startswith("2 deleted rows stayed in the target: a trigger")
    warehouse.query("DROP TRIGGER keep ON {schema}.t")
    assert reconcile(it, "--deletes", "hard").table["warnings"] == []
    assert warehouse.query("SELECT count(*) FROM {schema}.t") == [(28,)]


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("version", ["update_at - INTERVAL 1 SECOND", "NULL"])
def test_deleted_rows_do_not_come_back_from_the_lake(
    synced: Pipeline, deletes: str, version: str
) -> None:
    """The target had an older version than the lake when they were found."""
    in_target(synced, f"UPDATE t SET update_at = {version} WHERE id IN (8, 9)")
    ask_once(synced, "DELETE FROM t WHERE id IN (8, 9)")
    assert found(reconcile(synced, "--deletes", deletes)) == {"deleted": 2, "removed": 2}
    ask_once(synced, f"INSERT INTO t VALUES (9, -9, {LATER})")
    assert synced.call("sync", "-p", "main").code == 0
    alive = "" if deletes == "hard" else "_deleted_at IS NULL AND "
    ids = f"SELECT id, v FROM t WHERE {alive}id < 10 ORDER BY id"
    left = in_target(synced, ids)
    assert left == [*((n, n) for n in range(1, 8)), (9, -9)]
    again = ("watermark", "reset", "-t", str(synced.table()), "--load-only", "--force")
    assert synced.call(*again).code == 0
    assert synced.call("sync", "-p", "main").code == 0
    assert in_target(synced, ids) == left


@pytest.mark.enough_on("mysql")
def test_a_dry_run_after_a_reset_of_the_load(synced: Pipeline) -> None:
    again = ("watermark", "reset", "-t", str(synced.table()), "--load-only", "--force")
    assert synced.call(*again).code == 0
    ended = reconcile(synced, "--dry-run")
    assert (ended.code, found(ended)) == (0, {})
    assert ended.table["reconciliation"]["skipped"] == "nothing is loaded yet"


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("--verify-data=all --repair' compares all columns")
def test_a_table_without_versions_that_was_filled_again(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: id}"})
    create(it)
    fill(it, 1, 30)
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "TRUNCATE t")
    ask_once(it, f"INSERT INTO t SELECT seq, -seq, {OLD} FROM {numbers(1, 30)}")
    ended = reconcile(it)
    (warning,) = ended.table["warnings"]
    assert "filled again with the same keys" in warning
    (command,) = re.findall("'floodmark (sync [^']*)'", warning)
    assert it.call(*shlex.split(command)).code == 0
    check_equal(it)


# The guard


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an interval have one segment, and not some hundred thousand rows."""
    monkeypatch.setattr(find_differences, "batches", lambda found: ([one] for one in found))


@pytest.mark.follows_hint("and that the table was not emptied by")
def test_an_emptied_table_does_not_empty_the_target(synced: Pipeline) -> None:
    ask_once(synced, "DELETE FROM t")
    before, rows = len(synced.manifests()), in_target(synced, "SELECT count(*) FROM t")
    dry = synced.call("reconcile", "-p", "main", "--deletes", "hard", "--dry-run")
    assert "30 of 30 rows would be deleted, and 'max_deletes' allows 0" in dry.err
    ended = synced.call("reconcile", "-p", "main", "--deletes", "hard")
    assert ended.code == 5
    assert "30 of 30 rows would be deleted, and 'max_deletes' allows 0" in ended.out
    assert "The first keys: id = 1; id = 2" in ended.out
    assert (len(synced.manifests()), in_target(synced, "SELECT count(*) FROM t")) == (before, rows)
    assert state(synced).status == "failed"
    assert "stopped" in synced.call("watermark", "list").out
    refused = reconcile(synced, "--deletes", "hard", "--allow-deletes", "29")
    assert refused.code == 5
    assert follow(synced, ended).code == 0
    assert in_target(synced, "SELECT count(*) FROM t") == [(0,)]
    assert state(synced).status == "success"


@pytest.mark.enough_on("mysql")
def test_deletes_count_over_a_whole_pass(pipeline: New, small_segments: None) -> None:
    policy = "{deletes: hard, max_deletes: 4, budget: {segments: 1}}"
    it = pipeline({"t": f"{{cursor: [update_at, id], reconcile: {policy}}}"})
    create(it)
    fill(it, 1, 600)
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "DELETE FROM t WHERE id IN (1, 2, 3, 598, 599, 600)")
    ended = reconcile(it)
    assert (ended.code, found(ended)) == (0, {"deleted": 3, "removed": 3}), ended
    said = ended.table["reconciliation"]
    assert (said["complete"], said["segments"]) == (False, 1)
    first = state(it)
    assert first.place is not None
    assert (first.status, first.deleted, first.last_finished) == ("in_progress", 3, None)
    assert "in progress" in it.call("watermark", "list").out
    while (ended := reconcile(it)).code == 0:
        assert not ended.table["reconciliation"]["complete"]
    assert ended.code == 5
    assert "6 of 597 rows would be deleted" in ended.table["error"]
    place = state(it).place
    assert follow(it, ended).code == 0
    assert state(it).place != place
    while state(it).pass_started:
        assert reconcile(it).code == 0
    assert (state(it).deleted, state(it).rows, state(it).status) == (6, 594, "success")
    check_equal(it)


@pytest.mark.enough_on("mysql")
def test_a_range_without_rows_is_not_an_emptied_table(pipeline: New) -> None:
    it = pipeline({"t": CURSOR})
    create(it)
    fill(it, 1, 600)
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "DELETE FROM t WHERE id BETWEEN 100 AND 110")
    first, last = "2025-06-01 00:00:34", "2025-06-01 00:00:35"  # 102 to 107
    ended = reconcile(it, "--deletes", "hard", "--from", first, "--to", last)
    assert (ended.code, found(ended)) == (0, {"deleted": 6, "removed": 6}), ended


@pytest.mark.enough_on("mysql")
def test_the_oldest_rows_are_deleted_within_a_budget(pipeline: New, small_segments: None) -> None:
    """The first segment has no row left, and most of the marked rows count no more."""
    policy = "{deletes: soft, budget: {segments: 1}}"
    it = pipeline({"t": f"{{cursor: [update_at, id], reconcile: {policy}}}"})
    create(it)
    fill(it, 1, 600)
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "DELETE FROM t WHERE id <= 200")
    while not (ended := reconcile(it)).table["reconciliation"]["complete"]:
        assert ended.code == 0, ended
    assert in_target(it, "SELECT count(*) FROM t WHERE _deleted_at IS NULL") == [(400,)]
    config = Path(it.config)
    config.write_text(config.read_text().replace("soft,", "soft, max_deletes: 10%,"))
    ask_once(it, "DELETE FROM t WHERE id <= 241")
    while (ended := reconcile(it)).code == 0:
        assert not ended.table["reconciliation"]["complete"]
    assert "of 400 rows would be deleted, and 'max_deletes' allows 40" in ended.table["error"]
    ask_once(it, "DELETE FROM t")
    assert reconcile(it).code == 5


@pytest.mark.enough_on("mysql")
def test_a_source_that_cannot_show_everything_holds_the_table_back(
    synced: Pipeline, server: PrivateMariaDB
) -> None:
    ask_once(synced, "DELETE FROM t WHERE id < 5")
    server.execute("CREATE USER IF NOT EXISTS 'blind'@'127.0.0.1' IDENTIFIED BY 'blind'")
    server.execute(f"GRANT SELECT ON {synced.schema}.* TO 'blind'@'127.0.0.1'")
    before = synced.watermark()
    blind = {**source_of(server), "user": "blind", "password": "blind"}
    ended = (
        replace(synced, source=blind)
        .write_config()
        .call("reconcile", "-p", "main", "--deletes", "hard")
    )
    assert ended.code == 0
    assert "held back" in ended.out
    assert "PROCESS" in ended.out
    assert (synced.watermark(), in_target(synced, "SELECT count(*) FROM t")) == (before, [(30,)])


@pytest.mark.enough_on("mysql")
def test_a_source_that_may_lack_rows_deletes_none_after_the_position(
    synced: Pipeline, server: PrivateMariaDB
) -> None:
    """It cannot show that a row which was read elsewhere, and later, is gone."""
    server.execute("CREATE USER IF NOT EXISTS 'blind'@'127.0.0.1' IDENTIFIED BY 'blind'")
    server.execute(f"GRANT SELECT ON {synced.schema}.* TO 'blind'@'127.0.0.1'")
    in_target(synced, "INSERT INTO t (id, v, update_at) VALUES (97, 0, '2025-09-01')")
    blind = {**source_of(server), "user": "blind", "password": "blind"}
    lagging = replace(synced, source=blind, settings="extraction: {lag_seconds: 60}").write_config()
    ended = reconcile(lagging, "--deletes", "hard")
    assert (ended.code, found(ended)) == (0, {}), ended
    ended = reconcile(synced.write_config(), "--deletes", "hard")
    assert found(ended) == {"deleted": 1, "removed": 1}


def test_another_server_is_not_believed(synced: Pipeline, request: pytest.FixtureRequest) -> None:
    """It has the same table, and none of its rows."""
    other = request.getfixturevalue("mysql" if "mariadb" in request.node.name else "mariadb")
    other.execute(f"CREATE DATABASE {synced.schema}")
    wrong = replace(synced, source=source_of(other)).write_config()
    try:
        create(wrong)
        ended = wrong.call("reconcile", "-p", "main", "--deletes", "hard", "--allow-deletes", "99")
    finally:
        other.execute(f"DROP DATABASE {synced.schema}")
    assert ended.code == 1, ended
    assert "its rows end before the position" in ended.out
    assert in_target(synced, "SELECT count(*) FROM t") == [(30,)]


@pytest.mark.only_on("mysql")
@pytest.mark.follows_hint("first records what it has now")
def test_a_server_that_lost_transactions_is_not_believed(synced: Pipeline) -> None:
    """The log says that it had executed more, as after a restore from a backup."""
    had = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
    store, last = open_store(synced.lake.open()), synced.chunks()[-1]
    more = structs.replace(last, start=last.end, files=(), gtids=had)
    store.commit(synced.table(), lambda _: more)
    ask_once(synced, "DELETE FROM t WHERE id < 5")
    ended = synced.call("reconcile", "-p", "main", "--deletes", "hard")
    assert ended.code == 1
    assert "has not executed all transactions that were read before" in ended.out
    assert f"'floodmark sync -t {synced.table()}' first records" in ended.err
    fill(synced, 31, 40)
    assert synced.call("sync", "-t", str(synced.table())).code == 0
    assert found(reconcile(synced, "--deletes", "hard")) == {"deleted": 4, "removed": 4}


# Other tables, ranges, schedules, operators


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("compares it row by row")
def test_tables_that_cannot_be_reconciled_say_so(pipeline: New) -> None:
    it = pipeline({"keyless": "{cursor: update_at}", "whole": "{cursor: none}", "bare": CURSOR})
    create(it, "keyless", f"id INT NOT NULL, v INT NOT NULL, {STAMP}, KEY (update_at)")
    create(it, "whole")
    create(it, "bare")
    for name in ("keyless", "whole"):
        fill(it, 1, 10, name)
    assert it.call("sync", "-p", "main").code == 0
    for name in ("keyless", "whole"):
        ask_once(it, f"DELETE FROM {name} WHERE id < 4")
    ended = it.call("reconcile", "-p", "main", "--deletes", "hard")
    assert ended.code == 3  # the other tables are done
    assert "keyless: has no primary key" in ended.out
    assert "whole: not reconciled: every sync reads the whole table" in ended.out
    assert "bare: not reconciled: nothing is loaded yet" in ended.out
    keyless = f"{it.schema}.keyless"
    assert it.call("reconcile", "-t", keyless).code == 2
    assert it.call("sync", "-t", keyless, "--verify-data=all").code == 5
    for command in commands_in(ended.err):
        assert it.call(*command).code == 0, command
    assert it.call("sync", "-p", "main").code == 0
    for name in ("keyless", "whole"):
        assert in_target(it, f"SELECT count(*) FROM {name}") == [(7,)]


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    ("cursor", "first", "last"),
    [(CURSOR, "2025-06-01 00:00:04", "2025-06-01 00:00:06"), ("{cursor: id}", "12", "20")],
)
def test_a_range_alone(pipeline: New, cursor: str, first: str, last: str) -> None:
    it = pipeline({"t": cursor})
    create(it)
    fill(it, 1, 30)
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "DELETE FROM t WHERE id IN (11, 12, 20, 21)")
    ended = reconcile(it, "--deletes", "hard", "--from", first, "--to", last)
    assert (ended.code, found(ended)) == (0, {"deleted": 2, "removed": 2}), ended
    assert [one["key"] for one in ended.table["reconciliation"]["deleted"]] == [[12], [20]]
    assert (state(it).last_finished, state(it).total_deleted) == (None, 2)
    assert reconcile(it, "--from", last, "--to", first).code == 2
    assert reconcile(it, "--from", "soon").code == 2
    assert found(reconcile(it, "--deletes", "hard")) == {"deleted": 2, "removed": 2}


def days_ago(it: Pipeline, days: int) -> None:
    """Let the last pass have finished some days ago."""

    def earlier(state: ReconciledState) -> ReconciledState:
        assert state.last_finished is not None
        then = state.last_finished - timedelta(days=days)
        return structs.replace(state, last_finished=then, last_run_time=then)

    open_store(it.lake.open()).update(
        it.table(), lambda w: structs.replace(w, reconciled_state=earlier(w.reconciled_state))
    )


@pytest.mark.enough_on("mysql")
def test_a_schedule(pipeline: New) -> None:
    policy = "{every: 2d, deletes: hard}"
    it = pipeline({"t": f"{{cursor: [update_at, id], reconcile: {policy}}}"})
    create(it)
    fill(it, 1, 30)
    ended = it.call("sync", "-p", "main", "--json")
    assert ended.table["reconciliation"]["complete"]
    ask_once(it, "DELETE FROM t WHERE id < 4")
    with floodmark.open_project(it.config) as project:  # as in rounds
        for days, deleted in ((0, 0), (1, 0), (2, 3), (0, 0)):
            days_ago(it, days)
            (table,) = project.sync().raise_for_failures().tables
            assert (table.reconciliation is not None) == bool(deleted)
            if table.reconciliation is not None:
                assert table.reconciliation.removed == deleted
    check_equal(it)
    ask_once(it, "DELETE FROM t WHERE id < 6")
    assert it.call("sync", "-p", "main", "--backup-only").code == 0
    text = it.call("sync", "-p", "main", "--reconcile")
    assert text.code == 0
    assert "25 rows compared in" in text.out
    assert "2 deleted in the source, 2 deleted" in text.out
    check_equal(it)


@pytest.mark.enough_on("mysql")
def test_a_schedule_leaves_out_what_cannot_be_reconciled(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: update_at, reconcile: {every: 1d}}"})
    create(it, "t", f"id INT NOT NULL, v INT NOT NULL, {STAMP}, KEY (update_at)")
    fill(it, 1, 10)
    ended = it.call("sync", "-p", "main")
    assert ended.code == 0
    assert "has no primary key" in ended.out
    assert "not reconciled" not in it.call("sync", "-p", "main").out  # until tomorrow


@pytest.mark.enough_on("mysql")
def test_what_operators_and_metrics_see(synced: Pipeline, tmp_path: Path) -> None:
    table = f"{synced.schema}.t"
    assert "never" in synced.call("watermark", "list").out
    ask_once(synced, "DELETE FROM t WHERE id = 1")
    assert reconcile(synced, "--deletes", "hard").code == 0
    assert "just now" in synced.call("watermark", "list").out
    text = synced.call("watermark", "get", "-t", table).out
    assert "Last Full Pass: " in text
    assert "In All Passes: 1 deleted, 0 repaired" in text
    metrics = tmp_path / "floodmark.prom"
    assert synced.call("sync", "-p", "main", "--metrics-file", str(metrics)).code == 0
    name = f'{{table="{synced.table()}"}}'
    finished = state(synced).last_finished
    assert finished is not None
    samples = dict(line.rsplit(" ", 1) for line in metrics.read_text().splitlines())
    assert float(samples[f"floodmark_reconciled_timestamp_seconds{name}"]) == finished.timestamp()
    assert samples[f"floodmark_reconciled_deletes_total{name}"] == "1"
    assert samples[f"floodmark_reconciled_left_rows{name}"] == "0"
    reset = synced.call("watermark", "reset", "-t", table, "--load-only", "--force")
    assert (reset.code, state(synced)) == (0, ReconciledState())
    assert synced.call("sync", "-p", "main").code == 0
    assert in_target(synced, "SELECT count(*) FROM t") == [(29,)]  # the log has the delete


@pytest.mark.enough_on("mysql")
def test_a_lost_watermark_starts_the_pass_again(synced: Pipeline, small_segments: None) -> None:
    fill(synced, 31, 400)
    assert synced.call("sync", "-p", "main").code == 0
    ask_once(synced, "DELETE FROM t WHERE id IN (2, 399)")
    first = reconcile(synced, "--deletes", "hard", "--budget", "1")
    assert (first.code, found(first)) == (0, {"deleted": 1, "removed": 1})
    assert state(synced).place is not None
    objects = synced.lake.open()
    for info in list(objects.list_objects("watermarks/")):
        objects.delete(info.key)
    assert (state(synced).place, state(synced).pass_started) == (None, None)
    ended = reconcile(synced, "--deletes", "hard")
    assert (ended.code, found(ended)) == (0, {"deleted": 1, "removed": 1})
    assert (state(synced).status, state(synced).rows) == ("success", 398)
    check_equal(synced)


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("shows what it would do")
def test_options_that_contradict_each_other(synced: Pipeline) -> None:
    assert synced.call("reconcile").code == 2
    ended = synced.call("reconcile", "-p", "main", "--allow-deletes", "3")
    assert ended.code == 2
    assert "its deleted rows are only reported" in ended.out
    assert reconcile(synced, "--budget", "soon").code == 2
    for option in (["--backup-only"], ["--load-only"], ["--dry-run"], ["--limit", "3"]):
        ended = synced.call("sync", "-p", "main", "--reconcile", *option)
        assert ended.code == 2, option
    assert "'floodmark reconcile --dry-run' shows" in ended.err
    assert reconcile(synced, "--dry-run").code == 0
    ended = reconcile(synced, "--budget", "30s", "--strategy", "inter-table")
    assert (ended.code, ended.table["reconciliation"]["complete"]) == (0, True)
    with floodmark.open_project(synced.config) as project:
        with pytest.raises(floodmark.UsageError):
            project.reconcile(deletes="all")  # type: ignore[arg-type]
        with pytest.raises(floodmark.UsageError):
            project.reconcile(segments=0)
