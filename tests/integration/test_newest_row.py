"""Which of two rows of one key counts: the newer one, or after an operator's move the later one."""

import dataclasses
from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from pipelines import Pipeline, ask_once

New = Callable[..., Pipeline]


def loaded(it: Pipeline, columns: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(it.folder / "warehouse.duckdb"), read_only=True) as database:
        return sorted(database.sql(f"SELECT {columns} FROM t").fetchall())


def in_source(it: Pipeline, columns: str) -> list[tuple[Any, ...]]:
    return sorted(ask_once(it, f"SELECT {columns} FROM t"))


def sync(it: Pipeline, *arguments: str) -> None:
    ended = it.call("sync", "-p", "main", *arguments)
    assert ended.code == 0, ended


def test_a_number_that_grows_with_each_change_says_which_row_is_newer(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: seq}"})
    ask_once(it, "CREATE TABLE t (code CHAR(2) PRIMARY KEY, x INT, seq BIGINT NOT NULL UNIQUE)")
    ask_once(it, "INSERT INTO t VALUES ('a', 0, 1), ('b', 0, 2), ('c', 0, 3)")
    sync(it, "--backup-only")
    ask_once(it, "UPDATE t SET x = 1, seq = seq + 10")
    sync(it, "--backup-only")
    sync(it, "--redshift-only")
    assert loaded(it, "code, x, seq") == in_source(it, "code, x, seq")
    (it.folder / "warehouse.duckdb").unlink()
    sync(it, "--redshift-only")
    assert loaded(it, "code, x, seq") == in_source(it, "code, x, seq")


@pytest.mark.parametrize(
    "command",
    [
        ["reset"],
        ["reset", "--extract-only"],
        ["set", "--timestamp", "2025-01-02"],
        ["restore", "--from", "1-1"],
    ],
    ids=lambda command: command[-1],
)
def test_reread_rows_replace_seemingly_newer_ones(pipeline: New, command: list[str]) -> None:
    """A source was put back from a backup: its rows are older, and they are what there is."""
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, x INT, update_at DATETIME NOT NULL)")
    ask_once(it, "INSERT INTO t VALUES (1, 0, '2025-01-01'), (2, 0, '2025-05-01')")
    sync(it, "--limit", "1")
    sync(it)
    ask_once(it, "UPDATE t SET x = 1, update_at = '2025-03-01' WHERE id = 2")
    assert it.call("watermark", *command, "-t", str(it.table()), "--force").code == 0
    sync(it)
    assert loaded(it, "id, x, update_at") == in_source(it, "id, x, update_at")
    (it.folder / "warehouse.duckdb").unlink()
    sync(it, "--redshift-only")
    assert loaded(it, "id, x, update_at") == in_source(it, "id, x, update_at")


def test_another_cursor_counts_from_its_first_row_on(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, x INT, update_at DATETIME NOT NULL,"
        " made_at DATETIME NOT NULL)",
    )
    ask_once(it, "INSERT INTO t VALUES (1, 0, '2025-05-01', '2025-06-01')")
    sync(it)
    ask_once(it, "UPDATE t SET x = 1, made_at = '2025-02-01'")
    it = dataclasses.replace(it, tables={"t": "{cursor: [made_at, id]}"}).write_config()
    reset = ["watermark", "reset", "-t", str(it.table()), "--extract-only", "--force"]
    assert it.call(*reset).code == 0
    sync(it)
    assert loaded(it, "id, x, made_at") == in_source(it, "id, x, made_at")
