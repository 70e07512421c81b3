"""Follow the hints that the program prints, and check that they help.

A test that follows a hint has the marker `follows_hint` with a part of the hint's text; the unit
test `test_hints.py` fails for a hint that no test follows.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pytest

from floodmark.model import lake_layout
from floodmark.storage.local import LocalObjectStore
from hints import commands_in
from pipelines import Ended, Pipeline, ask_once
from scenarios import open_store

New = Callable[..., Pipeline]
KEYED = "id INT AUTO_INCREMENT PRIMARY KEY"
VALIDATE = ("watermark", "validate", "--data")
pytestmark = pytest.mark.enough_on("mysql")


def make(pipeline: New, wanted: str = "{cursor: update_at}", key: str = KEYED) -> Pipeline:
    it = pipeline({"t": wanted}, settings="default_start: 2020-01-01")
    ask_once(it, f"CREATE TABLE t ({key}, v VARCHAR(20), update_at DATETIME NOT NULL)")
    add(it, 1)
    assert sync(it).code == 0
    return it


def add(it: Pipeline, day: int) -> None:
    """Add two rows of a day."""
    rows = f"(DEFAULT, 'a{day}', '2024-01-{day:02}'), (DEFAULT, 'b{day}', '2024-01-{day:02} 12:00')"
    ask_once(it, f"INSERT INTO t VALUES {rows}")


def sync(it: Pipeline, *arguments: str) -> Ended:
    return it.call("sync", "-p", "main", *arguments)


def target(it: Pipeline, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        return database.execute(sql).fetchall()


def follow(it: Pipeline, ended: Ended, *, most: int = 9) -> list[list[str]]:
    """Run the commands that an output names; whatever asks is answered by --force."""
    commands = commands_in(ended.out + "\n" + ended.err)[:most]
    assert commands, ended
    for command in commands:
        force = ["--force"] if command[:2] in (["watermark", "set"], ["watermark", "reset"]) else []
        done = it.call(*command, *force)
        assert done.code == 0, (command, done)
    return commands


def assert_equal(it: Pipeline) -> None:
    """Sync once more: source and target hold the same rows, and all that is tracked agrees."""
    ended = sync(it, "--verify-data=all")
    assert ended.code == 0, ended
    columns = "id, v, update_at"
    held = Counter(target(it, f"SELECT {columns} FROM t"))
    assert held == Counter(ask_once(it, f"SELECT {columns} FROM t"))
    assert it.call("watermark", "validate").code == 0


@pytest.mark.follows_hint("--load-only', then sync, loads all again")
def test_target_table_that_is_gone(pipeline: New) -> None:
    it = make(pipeline)
    target(it, "DROP TABLE t")
    add(it, 2)
    ended = sync(it)
    assert ended.code == 1
    follow(it, ended)
    assert_equal(it)


@pytest.mark.follows_hint("--load-only', then sync, loads it again")
def test_target_table_that_is_gone_when_it_is_verified(pipeline: New) -> None:
    it = make(pipeline)
    target(it, "DROP TABLE t")
    ended = sync(it, "--verify-data")
    assert ended.code == 5
    follow(it, ended)
    assert_equal(it)


@pytest.mark.follows_hint("floodmark watermark reset -t … --load-only, then sync")
def test_target_table_that_validate_misses(pipeline: New) -> None:
    it = make(pipeline)
    target(it, "DROP TABLE t")
    ended = it.call("watermark", "validate")
    assert ended.code == 5
    assert "--repair" not in ended.err
    follow(it, ended)
    assert_equal(it)


@pytest.mark.follows_hint(
    "… floodmark watermark reset -t …", "…, then floodmark watermark set -t … --timestamp '…'"
)
@pytest.mark.follows_hint("'floodmark watermark validate' shows how to read its rows again")
@pytest.mark.follows_hint("'floodmark watermark validate' compares manifests and files")
@pytest.mark.parametrize("wanted", ["{cursor: update_at}", "{cursor: id}"])
@pytest.mark.parametrize("harm", ["removed", "cut short"])
def test_data_file_that_is_lost_before_it_is_loaded(pipeline: New, wanted: str, harm: str) -> None:
    """Repairing the watermark does not bring its rows back, so no hint suggests it."""
    it = make(pipeline, wanted)
    add(it, 2)
    before = it.files()
    assert sync(it, "--backup-only").code == 0
    (file,) = it.files() - before
    it.lake.open().delete(file)
    if harm == "cut short":
        it.lake.open().put(file, b"PAR1")
    ended = sync(it, "--redshift-only")
    assert ended.code == 1
    assert "'floodmark watermark validate'" in ended.err
    shown = it.call("watermark", "validate")
    assert shown.code == 5
    assert "--repair" not in shown.out + shown.err
    follow(it, shown)
    assert_equal(it)


@pytest.mark.follows_hint("'floodmark watermark validate --repair' repairs the tracking")
def test_warehouse_that_is_gone(pipeline: New) -> None:
    it = make(pipeline)
    (it.folder / "warehouse.duckdb").unlink()
    ended = it.call("watermark", "validate")
    assert ended.code == 5
    assert follow(it, ended) == [["watermark", "validate", "--repair"]]
    assert_equal(it)


@pytest.mark.follows_hint("drop … in the target, then 'floodmark watermark reset -t … --force'")
def test_another_primary_key(pipeline: New) -> None:
    it = make(pipeline)
    ask_once(it, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, update_at)")
    add(it, 2)
    ended = sync(it)
    assert ended.code == 1
    assert "hint: drop t in the target" in " ".join(ended.err.split())
    target(it, "DROP TABLE t")
    follow(it, ended)
    assert_equal(it)


@pytest.mark.follows_hint(
    "empty … in the target, then 'floodmark watermark reset -t … --load-only'"
)
def test_ledger_of_a_keyless_table_that_is_gone(pipeline: New) -> None:
    it = make(pipeline, key="id INT AUTO_INCREMENT, KEY (id)")
    target(it, "DELETE FROM floodmark_ledger")
    add(it, 2)
    ended = sync(it)
    assert ended.code == 1
    assert "hint: empty t in the target" in " ".join(ended.err.split())
    target(it, "DELETE FROM t")
    follow(it, ended)
    assert_equal(it)


@pytest.mark.follows_hint("empties its table in the target and reads it")
def test_another_cursor_of_a_keyless_table(pipeline: New) -> None:
    it = make(pipeline, key="id INT AUTO_INCREMENT, KEY (id)")
    text = Path(it.config).read_text()
    Path(it.config).write_text(text.replace("{cursor: update_at}", "{cursor: id}"))
    add(it, 2)
    ended = sync(it)
    assert ended.code == 1
    follow(it, ended, most=1)
    assert_equal(it)


@pytest.mark.follows_hint("new rows get ids from … on and are not seen")
def test_table_that_was_emptied(pipeline: New) -> None:
    it = make(pipeline, "{cursor: id}")
    add(it, 2)
    assert sync(it).code == 0
    ask_once(it, "TRUNCATE t")
    add(it, 3)
    ended = sync(it)
    follow(it, ended, most=1)
    assert sync(it).code == 0
    assert sorted(target(it, "SELECT v FROM t WHERE id <= 2")) == [("a3",), ("b3",)]


@pytest.mark.follows_hint(
    "reads them again; 'floodmark s3clean clean -t …' removes the older files"
)
def test_column_that_is_hashed_by_now(pipeline: New) -> None:
    it = make(pipeline)
    text = Path(it.config).read_text()
    Path(it.config).write_text(text.replace("{cursor: update_at}", "{hash: [v]}"))
    add(it, 2)
    ended = sync(it)
    reset, clean = commands_in(ended.err)
    before = it.files()
    assert it.call(*reset, "--force").code == 0
    assert sync(it).code == 0
    assert {len(v) for (v,) in target(it, "SELECT v FROM t")} == {64}
    assert it.call(*clean, "--force").code == 0
    assert not before & it.files()


@pytest.mark.follows_hint("--repair' loads them again")
@pytest.mark.parametrize("look", [("sync", "-p", "main", "--verify-data=all"), VALIDATE])
def test_rows_that_the_target_lost(pipeline: New, look: tuple[str, ...]) -> None:
    it = make(pipeline)
    target(it, "DELETE FROM t WHERE id = 1")
    ended = it.call(*look)
    assert ended.code == 5
    command = re.search(r"'floodmark (sync [^']+)'", " ".join(ended.err.split()))
    assert command
    assert it.call(*shlex.split(command[1])).code == 0
    assert_equal(it)


@pytest.mark.follows_hint("empty its table in the target, then")
@pytest.mark.parametrize("look", [("sync", "-p", "main", "--verify-data=all"), VALIDATE])
def test_rows_without_a_key_that_the_target_lost(pipeline: New, look: tuple[str, ...]) -> None:
    it = make(pipeline, key="id INT")
    target(it, "DELETE FROM t")
    ended = it.call(*look)
    assert ended.code == 5
    assert "empty its table" in ended.err, ended
    target(it, "DELETE FROM t")
    (command,) = commands_in(ended.err)
    assert it.call(*command).code == 0
    assert_equal(it)


@pytest.mark.follows_hint("see floodmark watermark history -t …")
@pytest.mark.parametrize("wrong", ["yesterday", "9-9"])
def test_state_that_is_not_there(pipeline: New, wrong: str) -> None:
    it = make(pipeline)
    name = str(it.table())
    ended = it.call("watermark", "restore", "-t", name, "--from", wrong, "--force")
    assert ended.code == 2
    (command,) = commands_in(ended.err)
    shown = it.call(*command)
    assert "1-1" in shown.out
    assert it.call("watermark", "restore", "-t", name, "--from", "1-1", "--force").code == 0
    assert_equal(it)


@pytest.mark.follows_hint("it must be the output of 'floodmark watermark get -t T --json'")
def test_file_that_is_no_watermark(pipeline: New) -> None:
    it = make(pipeline)
    name, file = str(it.table()), it.folder / "watermark.json"
    restore = ["watermark", "restore", "-t", name, "--file", str(file), "--force"]
    file.write_text("{}")
    ended = it.call(*restore)
    assert ended.code == 2
    assert "floodmark watermark get -t T --json" in " ".join(ended.err.split())
    file.write_text(it.call("watermark", "get", "-t", name, "--json").out)
    assert it.call(*restore).code == 0
    assert_equal(it)


@pytest.mark.follows_hint("floodmark watermark set PRESET --force")
def test_system_watermark_that_is_damaged(pipeline: New) -> None:
    it = make(pipeline)
    assert it.call("watermark", "set", "1week", "--force").code == 0
    it.lake.open().put(lake_layout.SYSTEM, b"{")
    ended = sync(it)
    assert ended.code == 1
    (command,) = commands_in(ended.err)
    command[command.index("PRESET")] = "1month"
    assert it.call(*command).code == 0
    assert_equal(it)


@pytest.mark.follows_hint("--load-only --force', then sync, loads all again in order")
def test_rows_that_would_be_loaded_after_their_new_column(pipeline: New) -> None:
    it = make(pipeline)
    add(it, 2)
    assert sync(it).code == 0
    ask_once(it, "ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7")
    ask_once(it, "INSERT INTO t VALUES (DEFAULT, 'c', '2024-01-03', 8)")
    assert sync(it).code == 0
    target(it, "DELETE FROM floodmark_ledger WHERE sequence = 2")
    ask_once(it, "INSERT INTO t VALUES (DEFAULT, 'd', '2024-01-04', 9)")
    ended = sync(it)
    assert ended.code == 1
    assert "would be loaded after 1-3" in " ".join(ended.out.split())
    follow(it, ended)
    assert_equal(it)
    assert sorted(target(it, "SELECT x FROM t")) == sorted(ask_once(it, "SELECT x FROM t"))


@pytest.mark.follows_hint("or release it with 'floodmark doctor -t … --break-lease'")
def test_lease_of_a_run_that_is_dead(pipeline: New) -> None:
    it = make(pipeline)
    add(it, 2)
    with open_store(it.lake.open()).lease(it.table()):
        ended = sync(it)
        assert ended.code != 0
        assert "is held by session" in ended.out + ended.err
        follow(it, ended)
        assert_equal(it)


@pytest.mark.follows_hint("'floodmark doctor' to check that the lake enforces conditional writes")
def test_lake_that_began_to_ignore_conditions(pipeline: New) -> None:
    it = make(pipeline)
    add(it, 2)

    def careless(objects: LocalObjectStore, key: str, data: bytes) -> str:
        """Another run writes the same manifest right after us."""
        etag = objects.put(key, data)
        return objects.put(key, b"theirs") if key.startswith(lake_layout.MANIFESTS) else etag

    with patch.object(LocalObjectStore, "put_if_absent", careless):
        ended = sync(it)
        assert ended.code == 1
        assert "returned another manifest" in " ".join(ended.out.split())
        assert follow_doctor(it, ended).startswith(f"{it.lake.open()} ignores If-None-Match")


def follow_doctor(it: Pipeline, ended: Ended) -> str:
    """Run the doctor as a hint says, and return what it finds wrong with the lake."""
    assert "'floodmark doctor'" in ended.err
    checks = it.call("doctor", "--json").value
    (found,) = (c["finding"] for c in checks if (c["subject"], c["state"]) == ("lake", "failed"))
    return str(found)


@pytest.mark.follows_hint("'floodmark doctor' tries every connection")
def test_warehouse_that_cannot_be_reached(pipeline: New) -> None:
    it = make(pipeline)
    text = Path(it.config).read_text()
    nowhere = "{type: postgres, port: 1, database: none, user: nobody}"
    Path(it.config).write_text(text.replace("{type: duckdb, path: ./warehouse.duckdb}", nowhere))
    add(it, 2)
    ended = sync(it)
    assert ended.code == 1
    assert "'floodmark doctor' tries every connection" in " ".join(ended.err.split())
    assert "target warehouse: cannot connect" in " ".join(it.call("doctor").out.split())
