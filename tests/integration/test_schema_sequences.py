"""Random sequences of ALTERs, with syncs, loads and repairs in between, end equal.

A sync that stops says how to go on, and following that ends equal too: never in a dead end.
"""

import random
from decimal import Decimal, InvalidOperation
from typing import Any

import pymysql
import pytest

import synced_table
from floodmark.errors import ExitCode
from pipelines import Ended
from synced_table import STAMP, NewTable, Synced

TABLE = f"id INT PRIMARY KEY, a INT, b VARCHAR(20), {STAMP}, KEY (update_at, id)"
NUMBERS = ["SMALLINT", "INT", "BIGINT", "DECIMAL(10,2)", "DECIMAL(14,4)", "DOUBLE"]
TEXTS = ["VARCHAR(20)", "VARCHAR(40)", "TEXT", "VARBINARY(30)"]
TIMES = ["DATE", "DATETIME"]
STAGES = [(), ("--backup-only",), ("--backup-only",), ("--redshift-only",), None]
MOST_HINTS = 8
REPAIRS = 0.4


class Application:
    """Changes a table and its rows, as a seed decides."""

    def __init__(self, synced: Synced, seed: int) -> None:
        self.synced = synced
        self.random = random.Random(seed)
        self.columns = {"a": "INT", "b": "VARCHAR(20)"}
        self.rows = 0
        self.day = 0
        self.story: list[str] = []

    def alter(self) -> None:
        pick, columns = self.random.choice, self.columns
        free = [name for name in "abcd" if name not in columns]
        name = pick(list(columns)) if columns else ""
        what = pick(["add", "add", "drop", "rename", "swap", "type", "type", "update"])
        if what == "add" and free:
            self._add(pick(free))
        elif what == "drop" and name and self._run(f"ALTER TABLE t DROP COLUMN {name}"):
            del columns[name]
        elif what == "rename" and name and free:
            new = pick(free)
            if self._run(f"ALTER TABLE t CHANGE {name} {new} {columns[name]}"):
                columns[new] = columns.pop(name)
        elif what == "swap" and len(columns) > 1:
            other = pick([each for each in columns if each != name])
            swap = f"CHANGE {name} {other} {columns[name]}, CHANGE {other} {name} {columns[other]}"
            if self._run(f"ALTER TABLE t {swap}"):
                columns[name], columns[other] = columns[other], columns[name]
        elif what == "type" and name:
            kind = pick(NUMBERS + TEXTS + TIMES)
            if self._run(f"ALTER TABLE t MODIFY {name} {kind}"):
                columns[name] = kind
        elif what == "update" and name:
            self._run(
                f"UPDATE t SET {name} = NULL, update_at = {self._next_day()} WHERE id % 3 = 1"
            )

    def _add(self, name: str) -> None:
        kind = self.random.choice(NUMBERS + TEXTS + TIMES)
        default = "" if kind in (*TIMES, "TEXT") else self.random.choice(["", " DEFAULT 7"])
        place = self.random.choice(["", " FIRST"])
        if self._run(f"ALTER TABLE t ADD COLUMN {name} {kind}{default}{place}"):
            self.columns[name] = kind

    def insert(self) -> None:
        day = self._next_day()
        for _ in range(2):
            self.rows += 1
            values = {"id": str(self.rows), "update_at": day}
            for name, kind in self.columns.items():
                number = str(self.random.randrange(100))
                values[name] = "'2024-02-29'" if kind in TIMES else number
            names = ", ".join(values)
            assert self._run(f"INSERT INTO t ({names}) VALUES ({', '.join(values.values())})")

    def _next_day(self) -> str:
        self.day += 1
        return f"'2025-06-01' + INTERVAL {self.day} DAY"

    def _run(self, statement: str) -> bool:
        """Run a statement; some conversions are refused even in the tolerant mode."""
        self.story.append(statement)
        try:
            self.synced.change("SET sql_mode = ''", statement)
        except pymysql.MySQLError:
            self.story.append("  refused by the server")
            return False
        return True

    def sync(self, *arguments: str, hints: int = MOST_HINTS) -> None:
        """Sync, and follow hints; with none, leave the table as it stopped."""
        self._settle("sync", "-p", "main", *arguments, hints=hints)

    def reconcile(self) -> None:
        """Repair what the story deleted on one side."""
        command = ("reconcile", "-p", "main", "--deletes", "hard", "--allow-deletes", "1000")
        self._settle(*command, hints=MOST_HINTS)

    def repair(self) -> None:
        """Reconcile or backfill, perhaps after rows were deleted on one side."""
        pick, name = self.random.choice, str(self.synced.it.table())
        if pick([True, False]):
            self._run(f"DELETE FROM t WHERE id % 7 = {self.random.randrange(7)}")
        if pick([True, False]) and self.synced.held():
            self.synced.warehouse.query("DELETE FROM {schema}.t WHERE id % 5 = 1")
        what = pick(
            [
                ["reconcile", "-t", name, "--deletes", "hard", "--allow-deletes", "1000"],
                ["backfill", "-t", name, "--to", f"2025-06-{self.random.randrange(2, 9):02d}"],
                ["backfill", "-t", name, "--from", "2025-06-03"],
            ]
        )
        self._settle(*what, hints=pick([0, MOST_HINTS]))

    def _settle(self, *command: str, hints: int) -> None:
        """Call a command until it succeeds, and follow hints; with none, leave it as it stopped."""
        for _ in range(hints or 1):
            ended = self._call(*command)
            if not hints or ended.code == ExitCode.USAGE:  # a range that is not synced yet
                return
            if ended.code == 0:
                if not (fill := self.synced.unfilled()):
                    return
                ended = self._call(*fill[0])
            if ended.code != 0:
                self.synced.follow(ended)
        raise AssertionError("hints lead nowhere")

    def _call(self, *command: str) -> Ended:
        ended = self.synced.it.call(*command)
        self.story.append(f"{' '.join(command)}: {ended.code} {ended.out} {ended.err}")
        return ended


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("target", ["duckdb", "postgres", "redshift"])
@pytest.mark.parametrize("seed", [1, 2])
def test_any_sequence_of_changes_ends_equal(
    new_table: NewTable, target: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synced_table, "text", by_value)
    application = Application(new_table(target, TABLE), seed)
    application.insert()
    try:
        for _ in range(7):
            application.alter()
            application.insert()
            if (stages := application.random.choice(STAGES)) is not None:
                application.sync(*stages, hints=application.random.choice([0, MOST_HINTS]))
            if application.random.random() < REPAIRS:
                application.repair()
        application.sync()
        application.reconcile()
        application.synced.check_equal()
    except BaseException:
        print("\n".join(application.story))
        raise


def by_value(value: Any, plain: Any = synced_table.text) -> str | None:
    """A value whatever its type: a number may be in a text column, and a zero date is NULL."""
    shown = plain(value)
    if shown is None or shown.startswith("0000-00-00"):
        return None
    try:
        return f"{Decimal(shown).normalize():f}"
    except InvalidOperation:
        return str(shown)
