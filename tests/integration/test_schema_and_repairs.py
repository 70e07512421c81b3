"""A reconciliation or a backfill checks the columns as a sync does, and hides no change from it."""

from dataclasses import replace

import pytest

from pipelines import Ended
from synced_table import STAMP, NewTable, Synced
from warehouses import name_target

pytestmark = pytest.mark.enough_on("mariadb")

TABLE = (
    f"id INT PRIMARY KEY, big BIGINT NOT NULL DEFAULT 0, a INT, b INT, name VARCHAR(20),"
    f" price DECIMAL(10,4), {STAMP}, KEY (update_at, id)"
)
ROWS = (
    "UPDATE t SET a = id, b = -id, name = CONCAT(id, 'name'), price = id + 0.1234,"
    " update_at = update_at"
)
SWAP = "ALTER TABLE t CHANGE a b INT, CHANGE b a INT"
REPAIRS = ["deleted", "missing", "backfill"]


def fill(synced: Synced) -> None:
    """Nine rows, synced."""
    synced.add(1, 9, day=1)
    synced.change(ROWS)
    ended = synced.sync()
    assert ended.code == 0, ended


def repair(synced: Synced, how: str) -> Ended:
    """Let rows of the target be repaired, some of them or one."""
    name = str(synced.it.table())
    if how == "backfill":
        return synced.it.call("backfill", "-t", name, "--from", "2025-05-31")
    if how == "deleted":
        synced.change("DELETE FROM t WHERE id = 2")
    if how == "missing":
        synced.warehouse.query("DELETE FROM {schema}.t WHERE id = 3")
    return synced.it.call("reconcile", "-t", name, "--deletes", "hard")


def said(ended: Ended) -> str:
    return " ".join((ended.out + ended.err).split())


def settings(synced: Synced, text: str) -> None:
    replace(synced.it, tables={"t": text}).write_config()
    name_target(synced.it.config, synced.warehouse.connection)


@pytest.mark.parametrize("how", REPAIRS)
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (SWAP, "has changed places with another int"),
        ("ALTER TABLE t MODIFY name VARCHAR(2)", "name was varchar(20)"),
        ("ALTER TABLE t MODIFY price DECIMAL(10,2)", "price was decimal(10,4)"),
    ],
    ids=["swapped", "cut", "rounded"],
)
def test_values_that_a_change_replaced_are_never_taken_as_read(
    new_table: NewTable, how: str, change: str, found: str
) -> None:
    synced = new_table(columns=TABLE)
    fill(synced)
    before = synced.held(), len(synced.it.manifests())
    synced.change("SET sql_mode = ''", change)
    ended = repair(synced, how)
    assert (ended.code, found in said(ended)) == (1, True), ended
    assert (synced.held(), len(synced.it.manifests())) == before
    synced.follow(ended)
    synced.add(20, 21, day=2)
    synced.settle()
    assert repair(synced, "deleted").code == 0
    synced.check_equal()


def test_a_swap_between_two_reconciliations_is_found(new_table: NewTable) -> None:
    synced = new_table(columns=TABLE)
    fill(synced)
    assert repair(synced, "deleted").code == 0
    synced.change(SWAP)
    synced.add(20, 21, day=2)
    ended = synced.sync()
    assert (ended.code, "changed places" in said(ended)) == (1, True), ended


@pytest.mark.parametrize("how", REPAIRS)
def test_a_repair_warns_of_clear_text(new_table: NewTable, how: str) -> None:
    synced = new_table(columns=TABLE)
    fill(synced)
    settings(synced, "{cursor: [update_at, id], hash: [name]}")
    ended = repair(synced, how)
    assert ended.code == 0, ended
    assert "name will be hashed from now on" in said(ended)
    assert "in clear text in the lake and in the target" in said(ended)


@pytest.mark.parametrize("how", REPAIRS)
def test_a_repair_stops_at_a_change_that_must_be_accepted(new_table: NewTable, how: str) -> None:
    synced = new_table(columns=TABLE, settings="{cursor: [update_at, id], schema_changes: stop}")
    fill(synced)
    synced.change("ALTER TABLE t MODIFY a BIGINT")
    before = len(synced.it.manifests())
    ended = repair(synced, how)
    assert (ended.code, "'schema_changes' is 'stop'" in said(ended)) == (1, True), ended
    kind = "SELECT data_type FROM information_schema.columns WHERE column_name = 'a'"
    assert (synced.warehouse.query(kind), len(synced.it.manifests())) == ([("INTEGER",)], before)
    synced.add(20, 21, day=2)
    assert "'schema_changes' is 'stop'" in said(synced.sync())


@pytest.mark.parametrize("how", REPAIRS)
def test_a_repair_commits_nothing_that_a_frozen_table_cannot_hold(
    new_table: NewTable, how: str
) -> None:
    synced = new_table(columns=TABLE, settings="{cursor: [update_at, id], schema_changes: freeze}")
    fill(synced)
    synced.change("ALTER TABLE t MODIFY a BIGINT", "ALTER TABLE t ADD COLUMN x INT DEFAULT 1")
    before = len(synced.it.manifests())
    ended = repair(synced, how)
    assert (ended.code, "t.a is INTEGER in the target" in said(ended)) == (1, True), ended
    assert len(synced.it.manifests()) == before
    synced.follow(ended)
    held = synced.held()
    assert repair(synced, how).code == 0
    assert synced.held() == held
    assert "x" not in held


@pytest.mark.parametrize("how", REPAIRS)
def test_a_repair_sets_the_default_of_a_new_column(new_table: NewTable, how: str) -> None:
    synced = new_table(columns=TABLE)
    fill(synced)
    synced.change("ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7")
    ended = repair(synced, how)
    assert ended.code == 0, ended
    assert synced.it.chunks()[-1].fills == {"x": "7"}
    synced.check_equal()
    synced.add(20, 21, day=2)
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.parametrize("how", ["missing", "backfill"])
def test_a_column_that_was_dropped_in_the_target_is_not_added_again(
    new_table: NewTable, how: str
) -> None:
    synced = new_table(columns=TABLE)
    fill(synced)
    synced.warehouse.query("ALTER TABLE {schema}.t DROP COLUMN name")
    ended = repair(synced, how)
    assert (ended.code, "has no column name in the target any more" in said(ended)) == (1, True)
    synced.follow(ended)
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.parametrize("how", REPAIRS)
@pytest.mark.parametrize(
    "moved", [("set", "--timestamp", "2025-06-01"), ("restore", "--from", "1-1")]
)
def test_a_repair_after_an_operator_moved_the_position(
    new_table: NewTable, how: str, moved: tuple[str, ...]
) -> None:
    synced = new_table(columns=TABLE)
    fill(synced)
    synced.change(SWAP)
    verb, *arguments = moved
    name = str(synced.it.table())
    assert synced.it.call("watermark", verb, "-t", name, *arguments, "--force").code == 0
    ended = repair(synced, how)
    assert (ended.code, "changed places" in said(ended)) == (1, True), ended
