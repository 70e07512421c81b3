"""Deletes and repaired rows in the log: loaded, shown, replayed, compared and cleaned."""

from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from floodmark import open_project
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.read_lake import find_rows
from hints import commands_in
from lake_logs import commit_deletes
from pipelines import Pipeline, ask_once
from scenarios import open_store

pytestmark = pytest.mark.enough_on("mariadb")  # it is about the log and the target

Make = Callable[..., Pipeline]


@pytest.fixture
def synced(pipeline: Make) -> Pipeline:
    """Five rows, synced; the last two are then deleted in the source."""
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL)")
    ask_once(it, f"INSERT INTO t VALUES {', '.join(f'({n}, 20250601 + {n})' for n in range(1, 6))}")
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "DELETE FROM t WHERE id > 3")
    return it


def held(it: Pipeline) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        return database.execute("SELECT * FROM t ORDER BY id").fetchall()


def store_of(it: Pipeline) -> WatermarkStore:
    return open_store(it.lake.open())


def gone(it: Pipeline) -> list[dict[str, Any]]:
    """The rows that only the target has, as a reconciliation finds them."""
    names = [column.name for column in it.chunks()[0].columns]
    return [dict(zip(names, row, strict=False)) for row in held(it) if row[0] > 3]


@pytest.mark.parametrize("deleted_at", [None, "_deleted_at"], ids=["hard", "soft"])
def test_deletes_from_the_log_to_the_target(synced: Pipeline, deleted_at: str | None) -> None:
    it, table = synced, str(synced.table())
    before = it.watermark().mysql_state
    assert it.call("sync", "-p", "main", "--verify-data=all").code == 5
    commit_deletes(store_of(it), it.table(), gone(it), deleted_at)
    done = it.call("sync", "-p", "main", "--json")
    assert (done.table["deleted_rows"], done.table["loaded_rows"]) == (2, 0)
    expected = held(it)
    assert [row[0] for row in expected if deleted_at is None or row[-1] is None] == [1, 2, 3]
    after = it.watermark()
    assert after.redshift_state.deleted_rows == 2
    assert after.mysql_state.total_rows == before.total_rows
    assert after.mysql_state.position == before.position
    # A marked row is no row of the target.
    assert it.call("sync", "-p", "main", "--verify-data=all").code == 0
    assert it.call("watermark", "validate", "-t", table).code == 0
    shown = it.call("watermark", "history", "-t", table).out
    assert "reconciled: 2 deleted" in shown
    assert "Rows Deleted: 2" in it.call("watermark", "get", "-t", table).out
    # A replay, and one into a new target.
    assert it.call("watermark", "reset", "-t", table, "--load-only", "--force").code == 0
    done = it.call("sync", "-p", "main")
    assert (done.code, held(it)) == (0, expected)
    assert "2 rows deleted" in done.out + done.err
    (it.folder / "warehouse.duckdb").unlink()
    assert it.call("sync", "-p", "main").code == 0
    assert held(it) == expected
    # The file of deleted keys is cleaned as data files are.
    (found,) = it.lake.open().list_objects(lake_layout.DELETES)
    listed = it.call("s3clean", "list", "-t", table, "--json").value
    assert found.key in str(listed)


def test_deletes_that_the_target_lost_are_loaded_again(synced: Pipeline) -> None:
    """An older copy of the warehouse comes back: its ledger lacks a manifest without rows."""
    it = synced
    file = it.folder / "warehouse.duckdb"
    copy = file.read_bytes()
    commit_deletes(store_of(it), it.table(), gone(it), None)
    assert it.call("sync", "-p", "main").code == 0
    file.write_bytes(copy)
    assert len(held(it)) == 5
    assert it.call("sync", "-p", "main", "--redshift-only").code == 0
    assert len(held(it)) == 3


def test_a_source_column_cannot_have_the_name_of_the_mark(synced: Pipeline) -> None:
    it = synced
    commit_deletes(store_of(it), it.table(), gone(it), "_deleted_at")
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "ALTER TABLE t ADD COLUMN _Deleted_At DATETIME")
    ask_once(it, "INSERT INTO t VALUES (9, 20250701, NULL)")
    done = it.call("sync", "-p", "main")
    assert done.code != 0
    assert "reserves the column name _Deleted_At" in done.out + done.err
    assert len(it.chunks()) == 2


@pytest.mark.follows_hint("'floodmark watermark history -t …' lists them")
@pytest.mark.parametrize("text", ["8-8", "newest"])
def test_a_manifest_that_is_not_there(synced: Pipeline, text: str) -> None:
    with open_project(synced.config) as project:
        with pytest.raises(UsageError, match=text) as caught:
            project.read(str(synced.table()), as_of=text)
        (command,) = commands_in(str(caught.value.hint))
        shown = synced.call(*command)
        assert shown.code == 0
        assert "1-1" in shown.out
        assert find_rows(project.new_run().store, synced.table(), ManifestId(1, 1)).files


@pytest.mark.follows_hint("then sync, reads the table into the lake again")
def test_a_file_that_was_removed(synced: Pipeline) -> None:
    it = synced
    assert it.call("s3clean", "clean", "-t", str(it.table()), "--force").code == 0
    with open_project(it.config) as project:
        with pytest.raises(FloodmarkError, match="no longer in the lake") as caught:
            project.read(str(it.table()))
        (command,) = commands_in(str(caught.value.hint))
        assert it.call(*command, "--force").code == 0
        assert it.call("sync", "-p", "main").code == 0
        assert find_rows(project.new_run().store, it.table(), None).files
