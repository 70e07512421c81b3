"""`floodmark takeover`: tables that another tool has filled are not loaded again."""

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

import floodmark
from floodmark.sync import takeover as taking
from hints import commands_in
from pipelines import Ended, Pipeline, ask_once, numbers
from warehouses import name_target, new_warehouse

pytestmark = pytest.mark.enough_on("mariadb")  # other tests read windows on both servers

New = Callable[..., Pipeline]

CURSOR = "{cursor: [update_at, id]}"
SOURCE = (
    "id INT PRIMARY KEY, v INT NOT NULL, name VARCHAR(20), update_at DATETIME NOT NULL,"
    " KEY by_change (update_at, id)"
)
OLDER = "id BIGINT, v BIGINT, name VARCHAR, update_at TIMESTAMP, _etl_loaded_at TIMESTAMP"


def fill(it: Pipeline, name: str = "t") -> None:
    """Sixty rows, an hour apart."""
    ask_once(it, f"CREATE TABLE {name} ({SOURCE})")
    ask_once(
        it,
        f"INSERT INTO {name} SELECT seq, seq, CONCAT('n', seq), '2025-06-01' + INTERVAL seq HOUR"
        f" FROM {numbers(1, 60)}",
    )


def load_otherwise(it: Pipeline, last: int, name: str = "t", columns: str = OLDER) -> None:
    """Fill the target as another tool would: wider types, a column of its own, no key."""
    in_target(it, f"CREATE TABLE {name} ({columns})")
    in_target(
        it,
        f"INSERT INTO {name} SELECT i, i, 'n' || i, TIMESTAMP '2025-06-01' + to_hours(i), now()"
        f" FROM range(1, {last + 1}) r(i)",
    )


def in_target(it: Pipeline, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        return database.execute(sql).fetchall()


def takeover(it: Pipeline, *arguments: str) -> Ended:
    return it.call("takeover", "-p", "main", "--json", *arguments)


def check_equal(it: Pipeline) -> None:
    source = ask_once(it, "SELECT id, v, name, update_at FROM t ORDER BY id")
    assert in_target(it, "SELECT id, v, name, update_at FROM t ORDER BY id") == source


@pytest.fixture
def filled(pipeline: New) -> Pipeline:
    """A table of sixty rows, of which another tool has loaded fifty."""
    it = pipeline({"t": CURSOR})
    fill(it)
    load_otherwise(it, 50)
    return it


def test_syncs_continue_and_inherited_rows_are_repaired(filled: Pipeline) -> None:
    in_target(filled, "DELETE FROM t WHERE id = 7")  # missing
    in_target(filled, "INSERT INTO t SELECT * FROM t WHERE id = 8")  # duplicate
    in_target(filled, "UPDATE t SET v = 0, update_at = '2025-05-01' WHERE id = 9")  # stale
    planned = takeover(filled, "--dry-run")
    assert planned.code == 0, planned.err
    assert not planned.table["takeover"]["taken"]
    assert (filled.manifests(), len(in_target(filled, "SHOW TABLES"))) == ([], 1)
    ended = takeover(filled)
    assert ended.code == 0, ended.err
    found = ended.table["reconciliation"]
    assert (found["missing"], found["duplicate"], found["stale"]) == ([[7]], [[8]], [[9]])
    position = filled.watermark().position
    assert str(position.opening) == "2025-06-03 01:00:00"  # of row 50, an hour earlier
    (entry,) = in_target(
        filled, "SELECT table_name, target_table FROM floodmark_ledger WHERE sequence = 1"
    )
    assert entry == (f"PROD:{filled.schema}.t", "t")
    assert in_target(filled, "SELECT COUNT(*), COUNT(DISTINCT id) FROM t") == [(50, 50)]
    # Nothing was read but what differed.
    assert sum(chunk.rows for chunk in filled.chunks()) == 3
    synced = filled.call("sync", "-p", "main", "--json", "--verify-data=all")
    assert synced.code == 0, synced.err
    assert synced.table["rows"] == 12  # ten new ones, and two within the margin
    assert synced.table["before_start"] is None
    check_equal(filled)
    assert filled.call("watermark", "validate", "-t", f"{filled.schema}.t").code == 0
    history = filled.call("watermark", "history", "-t", f"{filled.schema}.t")
    assert "takeover: rows up to" in history.out
    again = takeover(filled)
    assert (again.code, again.table["takeover"]["skipped"]) == (0, "it was taken over before")


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("follows", ["default_start", "backfill"])
def test_rows_before_the_start_are_counted(filled: Pipeline, follows: str) -> None:
    for number in (91, 92, 93):
        ask_once(filled, f"INSERT INTO t VALUES ({number}, 0, 'old', '2024-06-01')")
        in_target(filled, f"INSERT INTO t SELECT {number}, 0, 'old', '2024-06-01', now()")
    ask_once(filled, "UPDATE t SET v = -1 WHERE id = 92")
    in_target(filled, "DELETE FROM t WHERE id = 93")
    for arguments in (("--dry-run",), ()):
        if follows == "default_start" and not arguments:
            filled.write_config("default_start: all")
            assert takeover(filled).table["reconciliation"]["missing"] == [[93]]
            return
        ended = takeover(filled, *arguments)
        (warning,) = ended.table["warnings"]
        assert warning.startswith("3 rows before 2025-01-01 00:00:00 are neither compared nor")
        assert "set 'default_start: all'" in warning
    assert filled.watermark().mysql_state.before_start
    (command,) = re.findall("'floodmark (backfill [^']*)'", warning)
    assert filled.call(*shlex.split(command)).code == 0
    assert not filled.watermark().mysql_state.before_start
    assert filled.call("sync", "-p", "main").code == 0
    check_equal(filled)


@pytest.mark.enough_on("mysql")
def test_rows_that_the_other_tool_has_marked(pipeline: New) -> None:
    """They are deleted already, and no reason to stop."""
    it = pipeline({"t": "{cursor: [update_at, id], reconcile: {deletes: soft, max_deletes: 1}}"})
    fill(it)
    load_otherwise(it, 50)
    in_target(it, "ALTER TABLE t ADD COLUMN _deleted_at TIMESTAMP")
    in_target(it, "UPDATE t SET _deleted_at = '2025-07-01' WHERE id < 10")
    ask_once(it, "DELETE FROM t WHERE id < 9 OR id = 20")
    ended = takeover(it)
    assert ended.code == 0, ended
    found = ended.table["reconciliation"]
    assert [one["key"] for one in found["deleted"]] == [[20]]
    assert found["missing"] == [[9]]  # marked, and still in the source
    marked = "SELECT COUNT(*) FROM t WHERE _deleted_at = '2025-07-01'"
    assert in_target(it, marked) == [(8,)]
    assert it.watermark().mysql_state.deleted_at == "_deleted_at"
    assert it.call("sync", "-p", "main", "--reconcile", "--verify-data=all").code == 0
    assert in_target(it, "SELECT COUNT(*) FROM t WHERE _deleted_at IS NULL") == [(51,)]


@pytest.mark.enough_on("mysql")
def test_a_time_that_no_source_can_have(filled: Pipeline) -> None:
    in_target(filled, "UPDATE t SET update_at = '20000-01-01' WHERE id = 9")
    ended = takeover(filled)
    assert ended.code == 1, ended
    assert "the target has rows up to 9999-12-31" in ended.table["error"]


def test_rows_that_the_source_has_deleted(filled: Pipeline) -> None:
    ask_once(filled, "DELETE FROM t WHERE id = 5")
    ended = takeover(filled)
    assert (ended.code, ended.table["status"]) == (5, "differs")
    assert [one["key"] for one in ended.table["reconciliation"]["deleted"]] == [[5]]
    command, *_ = commands_in(ended.err)
    assert filled.call(*command).code == 0
    assert filled.call("sync", "-p", "main").code == 0
    check_equal(filled)


@pytest.mark.parametrize("crash", ["commit", "load", "reconcile"])
def test_a_crash_after_each_step(
    filled: Pipeline, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    in_target(filled, "DELETE FROM t WHERE id = 7")

    def die(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if crash == "commit":
            patched.setattr(taking, "load_after", die)
        elif crash == "load":
            patched.setattr("floodmark.api.takeover.reconcile_after", die)
        else:
            patched.setattr("floodmark.sync.reconcile._Run._record", die)
        assert takeover(filled).code == 130
    assert len([chunk for chunk in filled.chunks() if chunk.inherited]) == 1
    ended = takeover(filled)
    assert ended.code == 0, ended.err
    assert ended.table["takeover"]["taken"]
    assert filled.call("sync", "-p", "main").code == 0
    check_equal(filled)
    assert len([chunk for chunk in filled.chunks() if chunk.inherited]) == 1


def test_all_mismatches_are_shown_and_nothing_is_changed(pipeline: New) -> None:
    it = pipeline({"t": CURSOR, "u": CURSOR, "w": CURSOR, "x": CURSOR})
    for name in it.tables:
        fill(it, name)
    load_otherwise(it, 50)
    narrow = OLDER.replace("v BIGINT", "v DATE").replace("name VARCHAR", "name DATE")
    in_target(it, f"CREATE TABLE u ({narrow}, must INT NOT NULL)")
    in_target(it, f"CREATE TABLE w ({OLDER.replace('id BIGINT,', '')})")
    ended = takeover(it)
    assert ended.code == 3
    t, u, w, x = ended.value["tables"]
    assert (t["status"], t["takeover"]["taken"]) == ("success", False)
    assert all(part in u["error"] for part in ("u.v is", "u.name is", "u.must is")), u["error"]
    assert "w.id is nothing in the target" in w["error"]
    assert "another 'target_name'" in w["hint"]
    assert x["takeover"]["skipped"] == "the target has no table x"
    assert in_target(it, "SHOW TABLES") == [("t",), ("u",), ("w",)]
    assert it.manifests("t") == []
    partly = takeover(it, "--skip-mismatches")
    assert partly.code == 3
    assert partly.value["tables"][0]["takeover"]["taken"]
    assert it.call("sync", "-t", f"{it.schema}.t", "-t", f"{it.schema}.x").code == 0
    check_equal(it)


@pytest.mark.follows_hint("for the table, or add the column to the target")
def test_a_column_that_the_target_lacks(filled: Pipeline) -> None:
    in_target(filled, "ALTER TABLE t DROP COLUMN name")
    refused = takeover(filled)
    assert refused.code == 1
    assert "t.name is nothing in the target" in refused.table["error"]
    assert "'exclude: [name]'" in refused.table["hint"]
    assert filled.manifests() == []
    config = Path(filled.config)
    config.write_text(
        config.read_text().replace("[update_at, id]", "[update_at, id], exclude: [name]")
    )
    assert takeover(filled).code == 0
    assert filled.call("sync", "-p", "main", "--verify-data=all").code == 0
    assert in_target(filled, "SELECT COUNT(*) FROM t") == [(60,)]


def test_what_cannot_be_taken_over(pipeline: New) -> None:
    it = pipeline({"t": CURSOR, "u": "{cursor: id}", "w": CURSOR, "x": CURSOR})
    for name in it.tables:
        fill(it, name)
    for name in ("t", "u", "w"):
        load_otherwise(it, 50, name)
    ask_once(it, "ALTER TABLE w DROP PRIMARY KEY")
    in_target(it, "UPDATE t SET update_at = '2095-01-01' WHERE id = 50")
    in_target(it, "UPDATE u SET id = 1000 WHERE id = 50")
    in_target(it, f"CREATE TABLE x ({OLDER.replace('id BIGINT', 'id VARCHAR')})")
    t, u, w, x = takeover(it).value["tables"]
    assert "x.id is VARCHAR in the target, so its values cannot be compared" in x["error"]
    assert "rows up to 2095-01-01" in t["error"]
    assert "ids up to 1000, and the source up to 60" in u["error"]
    assert "no primary key" in w["error"]


@pytest.mark.follows_hint("set 'cursor: none' for it, and every sync replaces all of it")
@pytest.mark.parametrize("what", ["table", "view"])
def test_without_a_key_nothing_is_added_twice(filled: Pipeline, what: str) -> None:
    ask_once(filled, "ALTER TABLE t DROP PRIMARY KEY")
    if what == "view":
        ask_once(filled, "RENAME TABLE t TO base")
        ask_once(filled, "CREATE VIEW t AS SELECT * FROM base")
    refused = takeover(filled)
    assert (refused.code, filled.manifests()) == (2, [])
    assert "t has no primary key" in refused.table["error"]
    assert "set 'cursor: none' for it" in refused.table["hint"]
    config = Path(filled.config)
    config.write_text(config.read_text().replace("[update_at, id]", "none"))
    assert takeover(filled).table["takeover"]["skipped"].startswith("it has no cursor")
    assert filled.call("sync", "-p", "main", "--verify-data=all").code == 0
    check_equal(filled)


def test_an_id_cursor_and_a_start(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: id}"})
    fill(it)
    load_otherwise(it, 50)
    in_target(it, "DELETE FROM t WHERE id = 7")
    ended = takeover(it)
    assert ended.code == 0, ended.err
    assert it.watermark().position.id == 50
    assert it.call("sync", "-p", "main").code == 0
    check_equal(it)


def test_rows_before_the_start_are_left_alone(pipeline: New) -> None:
    it = pipeline({"t": CURSOR}, settings="default_start: 2025-06-02 00:00:00\n")
    fill(it)
    load_otherwise(it, 50)
    in_target(it, "DELETE FROM t WHERE id < 24")  # the other tool began there, too
    assert takeover(it).code == 0
    assert it.call("sync", "-p", "main").code == 0
    assert in_target(it, "SELECT COUNT(*), MIN(id) FROM t") == [(37, 24)]


@pytest.mark.follows_hint("', then sync, reads all of it")
def test_a_lost_table_cannot_come_from_the_lake(filled: Pipeline) -> None:
    assert takeover(filled).code == 0
    with (
        floodmark.open_project(filled.config) as project,
        pytest.raises(floodmark.FloodmarkError, match="taken over from another tool"),
    ):
        project.read(f"{filled.schema}.t")
    in_target(filled, "DROP TABLE t")
    ended = filled.call("sync", "-p", "main")
    assert ended.code == 1
    assert "the lake does not have all rows" in " ".join((ended.out + ended.err).split())
    command, *_ = commands_in(ended.out + ended.err)
    assert filled.call(*command).code == 0
    assert filled.call("sync", "-p", "main").code == 0
    check_equal(filled)
    assert takeover(filled).table["takeover"]["skipped"] == "it has a watermark already"


@pytest.mark.parametrize(("kind", "lake"), [("postgres", "local"), ("redshift", "ministack")])
def test_other_targets(
    pipeline: New, request: pytest.FixtureRequest, tmp_path: Path, kind: str, lake: str
) -> None:
    it = pipeline({"t": CURSOR}, lake=lake)
    fill(it)
    warehouse = replace(new_warehouse(kind, request, tmp_path / "target"), lake=it.lake)
    name_target(it.config, warehouse.connection)
    rows = ", ".join(f"({i}, {i}, 'n{i}', {hours_after(i)})" for i in range(1, 51) if i != 7)
    with warehouse.open() as target:
        target._make_schema()
        table = target._name("t")
        for statement in (
            (
                f"CREATE TABLE {table} (id bigint, v bigint, name varchar(1000),"
                " update_at timestamp, loaded varchar(10) DEFAULT 'no')"
            ),
            f"INSERT INTO {table} (id, v, name, update_at) VALUES {rows}",
            f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 8",
        ):
            target._execute(statement)
    ended = takeover(it)
    assert ended.code == 0, (ended.out, ended.err)
    found = ended.table["reconciliation"]
    assert (found["missing"], found["duplicate"]) == ([[7]], [[8]])
    synced = it.call("sync", "-p", "main", "--json", "--verify-data=all")
    assert synced.code == 0, synced.err
    with warehouse.open() as target:
        counts = target._query(f"SELECT COUNT(*), COUNT(DISTINCT id) FROM {table}")
    assert [tuple(row) for row in counts] == [(60, 60)]


def hours_after(number: int) -> str:
    moment = datetime(2025, 6, 1) + timedelta(hours=number)  # noqa: DTZ001
    return f"'{moment}'"
