"""New columns whose values in older rows differ: NULL at first, reported until they are read."""

import re

import pytest

from pipelines import Ended
from synced_table import STAMP, NewTable, Synced

TABLE = f"id INT PRIMARY KEY, big INT, note VARCHAR(20), {STAMP}, KEY (update_at, id)"
ADD = ["ALTER TABLE t ADD COLUMN x INT", "UPDATE t SET x = id"]
COMMAND = re.compile(r"'floodmark (backfill [^']*)' fills")

pytestmark = pytest.mark.enough_on("mariadb")


def new(new_table: NewTable, target: str = "duckdb", rows: int = 6, **options: str) -> Synced:
    synced = new_table(target, columns=TABLE, **options)
    synced.add(1, rows, day=1)
    synced.change("UPDATE t SET note = CONCAT('n', id)")
    assert synced.sync().code == 0
    return synced


def said(ended: Ended) -> str:
    return " ".join((ended.out + ended.err).split())


def reports(synced: Synced) -> list[bool]:
    """Whether each of the commands that report unfilled columns does so."""
    name = str(synced.it.table())
    shown = [
        synced.it.call("status", "--json"),
        synced.it.call("doctor"),
        synced.it.call("watermark", "get", "-t", name),
        synced.sync("--load-only", "--verify-data"),
    ]
    return [bool(COMMAND.search(said(ended))) for ended in shown]


def command(ended: Ended) -> list[str]:
    found = COMMAND.search(said(ended))
    assert found, ended
    return found[1].split()


@pytest.mark.follows_hint("' fills …")
@pytest.mark.parametrize("target", ["duckdb", "postgres", "redshift"])
def test_a_renamed_column_is_null_in_older_rows_until_a_backfill(
    new_table: NewTable, target: str
) -> None:
    synced = new(new_table, target)
    synced.change("ALTER TABLE t CHANGE note remark VARCHAR(20)")
    synced.add(7, 7, day=2)
    synced.change("UPDATE t SET remark = 'new' WHERE id = 7")
    ended = synced.sync()
    assert ended.code == 0, ended
    assert "remark (perhaps note under a new name" in said(ended)
    assert "rows up to 2025-06-01 00:00:00, id 6 were read without it" in said(ended)
    fill = command(ended)
    held = synced.warehouse.query("SELECT id, remark FROM {schema}.t WHERE id > 5 ORDER BY id")
    assert [tuple(row) for row in held] == [(6, None), (7, "new")]
    synced.add(8, 8, day=3)
    again = synced.sync()
    assert (again.code, COMMAND.search(said(again))) == (0, None), again  # said once
    assert reports(synced) == [True] * 4
    for _ in range(2):
        compared = synced.sync("--load-only", "--verify-data")
        assert (compared.code, "6 with different values" in compared.out) == (5, True), compared
        assert command(compared) == fill
    done = synced.it.call(*fill)
    assert done.code == 0, done
    assert reports(synced) == [False] * 4
    assert synced.sync("--load-only", "--verify-data").code == 0
    synced.check_equal()


def test_a_backfill_reads_a_column_that_the_target_does_not_have(new_table: NewTable) -> None:
    synced = new(new_table)
    synced.change(ADD[0], "UPDATE t SET x = id, update_at = update_at")
    name = str(synced.it.table())
    ended = synced.it.call("backfill", "-t", name, "--from", "2025-06-01")
    assert (ended.code, COMMAND.search(said(ended))) == (0, None), ended
    assert reports(synced) == [False] * 4
    synced.check_equal()
    synced.add(7, 7, day=2)
    assert synced.settle() == 0
    synced.check_equal()


def test_a_column_is_filled_part_by_part(new_table: NewTable) -> None:
    synced = new(new_table, rows=3)
    synced.add(4, 6, day=3)
    assert synced.sync().code == 0
    synced.change(*ADD)
    name = str(synced.it.table())
    ended = synced.it.call("backfill", "-t", name, "--to", "2025-06-02")
    assert ended.code == 0, ended
    fill = command(ended)
    assert "--from 2025-06-02" in " ".join(fill)
    assert synced.sync("--verify-data").code == 5
    held = synced.warehouse.query("SELECT id, x FROM t ORDER BY id")
    assert held == [(1, 1), (2, 2), (3, 3), (4, None), (5, None), (6, None)]
    synced.add(7, 7, day=4)
    assert synced.sync().code == 0
    assert synced.it.call(*fill).code == 0
    assert reports(synced) == [False] * 4
    synced.check_equal()


def test_a_reconciliation_begins_a_column(new_table: NewTable) -> None:
    synced = new(new_table)
    synced.change(*ADD, "DELETE FROM t WHERE id = 2")
    synced.warehouse.query("DELETE FROM t WHERE id = 3")
    ended = synced.it.call("reconcile", "-p", "main", "--deletes", "hard")
    assert ended.code == 0, ended
    fill = command(ended)
    assert synced.warehouse.query("SELECT id, x FROM t WHERE id < 5 ORDER BY id") == [
        (1, None),
        (3, 3),
        (4, None),
    ]
    synced.add(7, 7, day=2)
    again = synced.sync()
    assert (again.code, COMMAND.search(said(again))) == (0, None), again
    assert reports(synced) == [True] * 4
    assert synced.it.call(*fill).code == 0
    assert reports(synced) == [False] * 4
    synced.check_equal()


def test_values_of_an_earlier_column_of_that_name_are_removed(new_table: NewTable) -> None:
    synced = new(new_table)
    synced.change("ALTER TABLE t DROP COLUMN note")
    synced.add(7, 7, day=2)
    assert synced.settle() == 0
    synced.change("ALTER TABLE t ADD COLUMN note VARCHAR(20)", "UPDATE t SET note = id")
    synced.add(8, 8, day=3)
    ended = synced.sync()
    assert ended.code == 0, ended
    assert synced.warehouse.query("SELECT DISTINCT note FROM t") == [(None,)]
    assert synced.fill() == 1
    synced.check_equal()


def test_rows_before_the_start_are_not_read(new_table: NewTable) -> None:
    synced = new_table(columns=TABLE, run_settings="default_start: 2025-06-02")
    synced.add(1, 2, day=1)
    synced.add(3, 4, day=2)
    assert synced.sync().code == 0
    synced.change(*ADD)
    synced.add(5, 5, day=3)
    ended = synced.sync()
    assert ended.code == 0, ended
    assert "--from 2025-06-02T00:00:00 --to 2025-06-02T00:00:00" in " ".join(command(ended))
    assert synced.fill() == 1
    held = synced.warehouse.query("SELECT id, x FROM t ORDER BY id")
    assert held == [(3, 3), (4, 4), (5, None)]
    assert reports(synced) == [False] * 4


@pytest.mark.parametrize("settings", ["{cursor: id}", "{cursor: update_at}"])
def test_other_cursors(new_table: NewTable, settings: str) -> None:
    synced = new(new_table, settings=settings)
    synced.change(*ADD)
    synced.add(7, 8, day=2)
    assert synced.settle() == 1
    assert reports(synced) == [False] * 4
    synced.check_equal()


def test_a_text_key(new_table: NewTable) -> None:
    columns = f"id VARCHAR(9) PRIMARY KEY, big INT, {STAMP}, KEY (update_at, id)"
    synced = new_table(columns=columns)
    synced.add(1, 3, day=1)
    assert synced.sync().code == 0
    synced.change(*ADD)
    synced.add(7, 8, day=1)  # at the same time as those before
    assert synced.settle() == 1
    assert reports(synced) == [False] * 4
    synced.check_equal()


def test_a_first_load_on_its_way(new_table: NewTable) -> None:
    settings = "extraction: {window_rows: 2, windows_per_chunk: 1, walk_from_rows: 1}"
    synced = new_table(columns=TABLE, run_settings=settings)
    synced.add(1, 9, day=1)
    assert synced.sync("--limit", "4").code == 0
    assert synced.it.watermark().position.walk is not None
    synced.change(*ADD)
    synced.add(20, 21, day=2)
    assert synced.sync("--limit", "3").code == 0
    assert synced.it.watermark().mysql_state.unfilled
    assert synced.settle() == 1
    assert reports(synced) == [False] * 4
    synced.check_equal()


def test_all_rows_are_gone_that_lacked_a_value(new_table: NewTable) -> None:
    synced = new(new_table)
    synced.change(*ADD)
    synced.add(7, 8, day=2)
    assert synced.sync().code == 0
    synced.change("DELETE FROM t WHERE id < 7")
    assert synced.fill() == 1
    assert reports(synced)[:3] == [False] * 3


def test_a_lost_warehouse_has_the_same_values(new_table: NewTable) -> None:
    synced = new(new_table)
    synced.change(*ADD)
    synced.add(7, 8, day=2)
    assert synced.sync().code == 0
    synced.lose()
    assert synced.sync("--redshift-only").code == 0
    assert synced.sync("--load-only", "--verify-data").code == 5
    assert synced.fill() == 1
    synced.lose()
    assert synced.sync("--redshift-only").code == 0
    synced.check_equal()


@pytest.mark.parametrize("steps", ["reset", "restore", "set", "load", "move"])
def test_what_an_operator_changes_keeps_it_in_view(new_table: NewTable, steps: str) -> None:
    synced = new(new_table)
    synced.change(*ADD)
    synced.add(7, 8, day=2)
    assert synced.sync().code == 0
    name = str(synced.it.table())
    arguments = {
        "reset": ["reset", "--extract-only"],
        "restore": ["restore", "--from", "1-1"],
        "set": ["set", "--timestamp", "2025-05-01"],
        "load": ["reset", "--load-only"],
        "move": ["set", "--timestamp", "2025-06-02"],
    }[steps]
    ended = synced.it.call("watermark", arguments[0], "-t", name, *arguments[1:], "--force")
    assert ended.code == 0, ended
    synced.add(9, 9, day=3)
    assert synced.settle() == int(steps in ("restore", "load", "move"))
    assert reports(synced) == [False] * 4
    synced.check_equal()


def test_a_column_that_is_dropped_again_is_not_reported(new_table: NewTable) -> None:
    synced = new(new_table)
    synced.change(*ADD)
    synced.add(7, 8, day=2)
    assert synced.sync().code == 0
    synced.change("ALTER TABLE t DROP COLUMN x")
    synced.add(9, 9, day=3)
    assert synced.sync().code == 0
    assert reports(synced) == [False] * 4
    synced.check_equal()
