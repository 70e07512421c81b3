"""Twice as many tables take twice the work, and not four times: lines that run are counted."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli.main import run
from floodmark.config.loading import load_config

CONFIG = """
lake: ./lake
connections:
  A: {{type: mysql, port: 1, user: u}}
  B: {{type: duckdb, path: w.duckdb}}
pipelines:
  p: {{source: A, target: B, tables: {{{tables}}}}}
"""


def load(_: list[str]) -> None:
    config = load_config(None, {})
    for table in config.tables:
        config.warehouse_of(table)
        config.place_of(table)


def command(*arguments: str) -> Callable[[list[str]], None]:
    def work(tables: list[str]) -> None:
        options = [option for table in tables for option in ("-t", table)]
        assert run([*arguments, *options] if arguments[-1] == "get" else [*arguments]) == 0

    return work


WORK = {
    "load": load,
    "get": command("watermark", "get"),
    "plan": command("sync", "-p", "p", "--redshift-only", "--dry-run"),
}


def lines_run(work: Callable[[list[str]], None], folder: Path, count: int) -> int:
    """How many lines of Python run, for so many tables that an older system has read."""
    tables = [f"s.t{number}" for number in range(count)]
    listed = ", ".join(f"{table}: {{cursor: [id]}}" for table in tables)
    (folder / "floodmark.yml").write_text(CONFIG.format(tables=listed))
    for table in tables:
        older = folder / "lake" / "watermarks" / f"{table}.json"
        older.parent.mkdir(parents=True, exist_ok=True)
        older.write_text(json.dumps({"last_mysql_data_timestamp": "2025-02-01T00:00:00Z"}))
    lines = 0

    def count_lines(_: Any, event: str, __: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count_lines

    before = sys.gettrace()
    sys.settrace(count_lines)
    try:
        work(tables)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("name", WORK)
def test_the_work_grows_with_the_number_of_tables(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = []
    for count in (2, 30, 60):  # the first imports what is needed
        folder = tmp_path / str(count)
        folder.mkdir()
        monkeypatch.chdir(folder)
        counts.append(lines_run(WORK[name], folder, count))
        capsys.readouterr()
    assert counts[2] < 2.1 * counts[1]
