"""`schema_changes`: follow, freeze or stop; and what `doctor` and `--dry-run` say beforehand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines import Ended, Pipeline, ask_once
from synced_table import STAMP, NewTable, Synced
from warehouses import name_target

TABLE = f"id INT PRIMARY KEY, big INT NOT NULL, note VARCHAR(20), {STAMP}, KEY (update_at, id)"
CHANGE = (
    "ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7, CHANGE note remark VARCHAR(20),"
    " MODIFY big BIGINT NOT NULL"
)


def with_policy(policy: str) -> str:
    return f"{{cursor: [update_at, id], schema_changes: {policy}}}"


def configure(synced: Synced, settings: str) -> None:
    replace(synced.it, tables={"t": settings}).write_config()
    name_target(synced.it.config, synced.warehouse.connection)


def dry_run(synced: Synced) -> Any:
    (plan,) = synced.it.call("sync", "-p", "main", "--dry-run", "--json").value
    return plan


def one_line(ended: Ended) -> str:
    return " ".join((ended.out + ended.err).split())


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("for the table, sync, and set it back to 'stop'")
def test_stop_reads_nothing_until_the_change_is_accepted(new_table: NewTable) -> None:
    synced = new_table(columns=TABLE, settings=with_policy("stop"))
    synced.add(1, 3, day=1)
    assert synced.settle() == 0
    synced.change(CHANGE, "UPDATE t SET remark = id")
    assert synced.sync().code == 0  # nothing to read
    synced.add(4, 5, day=2)
    before = synced.it.watermark().position
    ended = synced.sync()
    assert (ended.code, synced.it.watermark().position) == (1, before)
    said = one_line(ended)
    assert "x (int NOT NULL) is new" in said
    assert "remark (varchar(20)) is new, perhaps note under a new name" in said
    assert "note (varchar(20)) is gone, perhaps renamed to remark" in said
    assert "big was int NOT NULL and is now bigint NOT NULL" in said
    assert "hint: to accept that, set 'schema_changes: follow' for the table, sync" in said
    configure(synced, with_policy("follow"))
    synced.settle()
    configure(synced, with_policy("stop"))
    synced.add(6, 7, day=3)
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("set 'schema_changes: follow' for the table, and sync")
@pytest.mark.parametrize("target", ["postgres", "redshift"])
def test_freeze_never_alters_the_table(new_table: NewTable, target: str) -> None:
    synced = new_table(target, TABLE, with_policy("freeze"))
    synced.add(1, 3, day=1)
    assert synced.settle() == 0
    held = synced.held()
    synced.change("ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7 FIRST, DROP COLUMN note")
    synced.change("UPDATE t SET x = id")
    synced.add(4, 5, day=2)
    ended = synced.sync("--verify-data")
    assert (ended.code, synced.held()) == (0, held), ended
    assert "new columns are left out, as 'schema_changes' is 'freeze': x" in one_line(ended)
    synced.change("ALTER TABLE t MODIFY big BIGINT NOT NULL")
    synced.add(6, 7, day=3)
    before = synced.it.watermark().position
    ended = synced.sync()
    assert (ended.code, synced.it.watermark().position, synced.held()) == (1, before, held)
    said = one_line(ended)
    assert "t.big is integer in the target, but bigint" in said.lower()
    assert ("run ALTER TABLE" in said) == (target != "redshift")
    if target == "redshift":
        configure(synced, with_policy("follow"))
    else:
        synced.follow(ended)
        assert synced.settle() == 0
        assert synced.held() == held
        configure(synced, with_policy("follow"))
    synced.add(8, 8, day=4)
    synced.settle()
    synced.check_equal()


@pytest.mark.enough_on("mysql")
def test_policy_of_the_pipeline(new_table: NewTable) -> None:
    synced = new_table(columns=TABLE)
    synced.add(1, 3, day=1)
    assert synced.settle() == 0
    synced.edit("    target: warehouse", "    target: warehouse\n    schema_changes: stop")
    synced.change("ALTER TABLE t DROP COLUMN note")
    synced.add(4, 5, day=2)
    assert "'schema_changes' is 'stop'" in one_line(synced.sync())
    configure(synced, with_policy("follow"))
    synced.edit("    target: warehouse", "    target: warehouse\n    schema_changes: stop")
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("target", ["duckdb", "redshift"])
def test_all_differences_are_shown_before_anything_is_read(
    new_table: NewTable, target: str
) -> None:
    synced = new_table(target, TABLE)
    synced.add(1, 3, day=1)
    assert synced.settle() == 0
    synced.warehouse.query("ALTER TABLE {schema}.t ADD COLUMN mine VARCHAR(9)")
    assert "schema" not in dry_run(synced)
    synced.change(CHANGE.replace("BIGINT", "VARCHAR(30)"))
    found = {difference["column"]: difference for difference in dry_run(synced)["schema"]}
    assert set(found) == {"x", "remark", "note", "big"}
    assert (found["x"]["source"], found["x"]["target"]) == ("int", "nothing")
    assert found["note"]["source"] is None
    assert [name for name, d in found.items() if d["stops"]] == ["big"]
    assert "reset -t" in found["big"]["hint"]
    assert found["x"]["will"] == "the column is added; rows that were read before get its value"
    assert "the column is added; rows that were read before have NULL" in found["remark"]["will"]
    assert found["big"]["will"] == "the table stops"
    text = one_line(synced.it.call("sync", "-p", "main", "--dry-run"))
    assert "4 columns differ:" in text
    assert "perhaps it was renamed to remark" in text
    checks = synced.it.call("doctor", "--json").value
    columns = [check for check in checks if " in the source" in check["finding"]]
    states = {check["finding"].split()[0]: check["state"] for check in columns}
    assert states == {"x": "note", "remark": "note", "note": "note", "big": "failed"}
    assert len(synced.it.manifests()) == 1


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    ("change", "column", "will"),
    [
        (
            "ADD COLUMN x INT AS (big * 2) STORED",
            "x",
            "the column is added; rows that were read before have NULL in it until a backfill",
        ),
        ("MODIFY note VARCHAR(9)", "note", "all values stay the same"),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, big)", "PRIMARY KEY", "the table stops"),
        ("MODIFY note VARCHAR(3)", "note", "the table stops, as rows that were read before"),
        (
            "CHANGE note w VARCHAR(20), CHANGE w note VARCHAR(20)",
            "note",
            "the table stops, as its name may have been swapped",
        ),
    ],
)
def test_what_is_shown_is_what_the_sync_does(
    new_table: NewTable, change: str, column: str, will: str
) -> None:
    synced = new_table(columns=f"{TABLE}, w VARCHAR(20)")
    synced.add(1, 3, day=1)
    synced.change("UPDATE t SET note = CONCAT(id, 'abc'), w = CONCAT(id, 'w')")
    assert synced.settle() == 0
    synced.change("SET sql_mode = ''", f"ALTER TABLE t {change}")
    found = {difference["column"]: difference for difference in dry_run(synced)["schema"]}
    assert found[column]["will"].startswith(will), found
    synced.add(4, 4, day=2)
    ended = synced.sync()
    assert ended.code == int(found[column]["stops"])
    if found[column]["stops"]:
        assert found[column]["hint"] in one_line(ended)
    else:
        assert synced.fill() == int("backfill" in will)
        synced.check_equal()


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    ("change", "stops"),
    [
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, big)", True),
        ("MODIFY id VARCHAR(9)", True),
        ("MODIFY id BIGINT", False),
    ],
)
def test_a_reset_hides_no_other_key(new_table: NewTable, change: str, stops: bool) -> None:
    """Rows with the earlier key are in the target, whatever is read again."""
    synced = new_table(columns=TABLE)
    synced.add(1, 3, day=1)
    assert synced.settle() == 0
    synced.change(f"ALTER TABLE t {change}")
    reset = ("watermark", "reset", "-t", f"{synced.it.schema}.t", "--force")
    assert synced.it.call(*reset, "--extract-only").code == 0
    found = {difference["column"]: difference for difference in dry_run(synced).get("schema", [])}
    assert ("PRIMARY KEY" in found and found["PRIMARY KEY"]["stops"]) is stops, found
    checks = synced.it.call("doctor", "--json").value
    states = {check["finding"].split(" is ")[0]: check["state"] for check in checks}
    assert (states.get("PRIMARY KEY") == "failed") is stops
    ended = synced.sync()
    assert ended.code == int(stops), ended
    if stops:
        assert found["PRIMARY KEY"]["hint"] in one_line(ended)
        assert synced.it.call(*reset).code == 0
        synced.warehouse.query("DROP TABLE t")
        assert dry_run(synced).get("schema", []) == []
        assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("write its new name into 'cursor:'")
def test_a_table_that_cannot_be_planned_hides_no_other(pipeline: Callable[..., Pipeline]) -> None:
    it = pipeline({"first": with_policy("stop"), "other": with_policy("stop")})
    for name in it.tables:
        ask_once(it, f"CREATE TABLE {name} ({TABLE})")
        ask_once(it, f"INSERT INTO {name} VALUES (1, 1, 'n', '2025-06-01')")
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "ALTER TABLE first RENAME COLUMN update_at TO changed_at")
    ask_once(it, "ALTER TABLE other ADD COLUMN x INT")
    planned = it.call("sync", "-p", "main", "--dry-run")
    assert planned.code == 0
    text = one_line(planned)
    assert "first has no column 'update_at', which is in its cursor hint: if it was renamed" in text
    assert (
        "other: x is int in the source, not there when last read, nothing in the target: the"
        in text
    )
    assert it.call("sync", "-t", f"{it.schema}.first", "--dry-run").code == 2  # the only one
    config = Path(it.config)
    config.write_text(config.read_text().replace("update_at", "changed_at", 1))
    planned = it.call("sync", "-p", "main", "--dry-run", "--json")
    assert "no column" not in planned.out
