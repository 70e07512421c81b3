"""A table without rows exists in the warehouse after its first sync."""

from typing import Any

import pytest

from floodmark.api import loading
from synced_table import CURSOR, STAMP, NewTable, Synced

COLUMNS = f"id INT PRIMARY KEY, big BIGINT, note VARCHAR(9), {STAMP}, KEY (update_at, id)"


def columns_of(synced: Synced) -> list[str]:
    return [name.lower() for name in synced.held()]


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("target", ["duckdb", "postgres", "redshift"])
def test_an_empty_table_is_created_and_filled_later(new_table: NewTable, target: str) -> None:
    synced = new_table(target, COLUMNS)
    assert synced.sync("--backup-only").code == 0
    assert "created t" in synced.sync().err
    assert columns_of(synced) == ["id", "big", "note", "update_at"]
    assert len(synced.it.manifests()) == 1
    synced.lose()
    ended = synced.sync("--redshift-only")
    assert (ended.code, columns_of(synced)) == (0, ["id", "big", "note", "update_at"]), ended
    synced.change("ALTER TABLE t DROP COLUMN note, ADD COLUMN x INT NOT NULL DEFAULT 7")
    synced.add(1, 3, day=1)
    assert synced.settle() == 0
    synced.check_equal()
    synced.it.check_tracking()
    assert synced.it.call("watermark", "validate").code == 0


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("settings", [CURSOR, "{cursor: id}", "{cursor: none}"])
def test_nothing_new_needs_no_target(
    new_table: NewTable, settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = new_table(columns=COLUMNS, settings=settings)
    assert synced.sync().code == 0
    manifests = len(synced.it.manifests())
    if settings != "{cursor: none}":  # which is read again each time
        monkeypatch.setattr(loading, "open_target", _never)
        assert synced.sync().code == 0
        assert len(synced.it.manifests()) == manifests == 1
        monkeypatch.undo()
    synced.add(1, 3, day=1)
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.enough_on("mysql")
def test_rows_before_the_start_leave_an_empty_table(new_table: NewTable) -> None:
    synced = new_table(columns=COLUMNS)
    synced.change("INSERT INTO t VALUES (1, 1, 'a', '2024-01-01')")
    ended = synced.sync()
    assert (ended.code, "1 row" in ended.err, columns_of(synced)[0]) == (0, True, "id"), ended
    assert synced.it.watermark().mysql_state.before_start is not None


@pytest.mark.enough_on("mysql")
def test_an_empty_table_may_get_another_key(new_table: NewTable) -> None:
    columns = f"id INT NOT NULL, big BIGINT, {STAMP}, KEY (update_at)"
    synced = new_table(columns=columns, settings="{cursor: update_at}")
    assert synced.sync().code == 0
    synced.change("ALTER TABLE t ADD PRIMARY KEY (id)")
    synced.add(1, 3, day=1)
    assert synced.settle() == 0
    synced.change("UPDATE t SET big = 9, update_at = '2025-06-05'")
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.enough_on("mysql")
def test_an_empty_table_that_another_target_lacks(new_table: NewTable) -> None:
    synced = new_table(columns=COLUMNS)
    assert synced.sync().code == 0
    synced.remove_file()
    assert synced.sync().code == 0
    assert columns_of(synced) == ["id", "big", "note", "update_at"]
    synced.warehouse.query("DROP TABLE t")  # and its ledger has an entry
    assert synced.sync("--redshift-only").code == 0
    assert columns_of(synced) == ["id", "big", "note", "update_at"]


def _never(*_arguments: Any, **_options: Any) -> Any:
    raise AssertionError("the target was opened")
