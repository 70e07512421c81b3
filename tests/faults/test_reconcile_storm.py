"""Writers that do whatever a cursor does not see, and runs that are killed: in the end, equal.

FLOODMARK_STORM_ROUNDS and FLOODMARK_STORM_SEED set how many rounds, and which.
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any
from unittest.mock import patch

import pymysql
import pytest

import processes
from floodmark.api import runner
from floodmark.config.models import LakeSettings, RetrySettings
from floodmark.model.position import START
from floodmark.planning import segments
from floodmark.storage.objects import ObjectStore
from floodmark.storage.opening import open_lake
from floodmark.sync import find_differences
from floodmark.warehouse.duckdb import DuckdbTarget
from floodmark.warehouse.postgres.target import PostgresTarget
from floodmark.warehouse.redshift.target import RedshiftTarget
from pipelines import Ended, Pipeline, ask, ask_once, session
from processes import Doom, DoomedWrites
from scenarios import open_store
from warehouses import Warehouse, name_target

New = Callable[..., Pipeline]

ROUNDS = int(os.environ.get("FLOODMARK_STORM_ROUNDS", "3"))
SEED = os.environ.get("FLOODMARK_STORM_SEED", "")
STEPS = ("_begin", "_stage", "_execute", "_commit")
STAMP = (
    "update_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)"
)
POLICY = "reconcile: {deletes: hard, max_deletes: 100%}"
SOFT = "reconcile: {deletes: soft, max_deletes: 100%, budget: {segments: 3}}"
TABLES = {
    "changes": f"{{cursor: [update_at, id], {POLICY}}}",
    "marked": f"{{cursor: [update_at, id], {SOFT}}}",
    "pairs": f"{{cursor: update_at, {POLICY}}}",
    "codes": f"{{cursor: update_at, {POLICY}}}",
    "numbers": f"{{cursor: id, {POLICY}}}",
}
KEYS = {"codes": "code", "pairs": "id, code"}
WITHOUT_BUDGET = ("reconcile", "-p", "main", "--budget", "10m")
BACKFILL = ("backfill", "--from", "2025-05-31", "--to", "2025-06-02")
START_OF_TIME, END_OF_BACKFILL = datetime.min.replace(tzinfo=UTC), datetime(2025, 6, 2, tzinfo=UTC)
SYNC = ("sync", "-p", "main")
RUNS = (
    SYNC,
    ("reconcile", "-p", "main"),
    ("sync", "-p", "main", "--reconcile"),
    ("sync", "-p", "main", "--verify-data=all", "--repair"),
    BACKFILL,
)


def create(it: Pipeline) -> None:
    for name in ("changes", "marked"):
        ask_once(
            it,
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT NOT NULL, {STAMP},"
            " KEY (update_at, id))",
        )
    ask_once(
        it,
        "CREATE TABLE pairs (id INT, code VARCHAR(30) COLLATE utf8mb4_bin, v INT NOT NULL,"
        f" {STAMP}, PRIMARY KEY (id, code), KEY c (update_at))",
    )
    ask_once(
        it,
        "CREATE TABLE codes (code VARCHAR(30) COLLATE utf8mb4_bin PRIMARY KEY, v INT NOT NULL,"
        f" {STAMP}, KEY c (update_at))",
    )
    ask_once(it, "CREATE TABLE numbers (id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL)")


class Writer:
    """Inserts, updates, deletes, moves keys, replaces, and writes old stamps."""

    def __init__(self, it: Pipeline, random: Random) -> None:
        self._it = it
        self._random = random
        self._value = 0
        self._stop = threading.Event()

    def write(self, statements: int) -> None:
        """Run some statements, each of its own."""
        with session(self._it) as connection:
            for _ in range(statements):
                with suppress(pymysql.err.IntegrityError):  # the key is taken
                    ask(connection, self._statement())

    def keep_writing(self) -> None:
        """Write until told to stop."""
        while not self._stop.wait(0.02):
            self.write(3)

    def stop(self) -> None:
        """Have the thread end."""
        self._stop.set()

    def _statement(self) -> str:
        random, v = self._random, self._value
        self._value += 1
        one, other = random.randrange(60), random.randrange(60)
        if random.random() < 0.2:
            return random.choice(
                [
                    f"INSERT INTO numbers (v) VALUES ({v})",
                    f"DELETE FROM numbers WHERE id = {one}",
                    f"REPLACE INTO numbers (id, v) SELECT id, v FROM numbers WHERE id = {other}",
                ]
            )
        table, key, new = random.choice(
            [
                ("changes", f"{one}", f"{other}"),
                ("marked", f"{one}", f"{other}"),
                ("codes", f"'é {one}'", f"'É {other}'"),
                ("pairs", f"({one}, 'é {one % 3}')", f"({one}, 'É {other % 3}')"),
            ]
        )
        columns = KEYS.get(table, "id")
        # Never the same stamp twice: two versions of one time cannot be told apart.
        old = f"'2025-06-01' + INTERVAL {v} MICROSECOND"
        values = key.strip("()")
        where = f"({columns}) = {key}"
        moved = ", ".join(
            f"{name} = {value}"
            for name, value in zip(
                columns.split(", "), str(new).strip("()").split(", "), strict=True
            )
        )
        return random.choice(
            [
                f"INSERT INTO {table} ({columns}, v) VALUES ({values}, {v})",
                f"INSERT INTO {table} VALUES ({values}, {v}, {old})",
                f"UPDATE {table} SET v = {v} WHERE {where}",
                f"UPDATE {table} SET v = {v}, update_at = {old} WHERE {where}",
                f"DELETE FROM {table} WHERE {where}",
                f"UPDATE {table} SET {moved} WHERE {where}",
                f"UPDATE {table} SET {moved}, update_at = update_at WHERE {where}",
                f"REPLACE INTO {table} ({columns}, v) VALUES ({values}, {v})",
                f"REPLACE INTO {table} VALUES ({values}, {v}, {old})",
            ]
        )


def run_and_die(it: Pipeline, command: tuple[str, ...], step: int, moment: str) -> None:
    """Runs in a process of its own, and is killed at a step, if it gets that far."""
    doom = Doom(step, moment)

    def doomed_lake(lake: LakeSettings, retries: RetrySettings) -> ObjectStore:
        return DoomedWrites(open_lake(lake, retries), doom)

    for kind in (DuckdbTarget, PostgresTarget, RedshiftTarget):
        for name in STEPS:
            setattr(kind, name, doom.around(getattr(kind, name)))
    with patch.object(runner, "open_lake", doomed_lake):
        ended = run(it, command)
    # Rows that are deleted during a verification differ.
    assert ended.code in ((0, 5) if "--repair" in command else (0,)), ended


def run(it: Pipeline, command: tuple[str, ...]) -> Ended:
    """Run a command with small segments, so that a budget ends a run somewhere in the table."""
    if command == BACKFILL:
        names = [f"{it.schema}.{name}" for name in TABLES if has_times(it, name)]
        command = (*command, *(part for name in names for part in ("-t", name))) if names else SYNC
    with (
        patch.object(segments, "_SEGMENT_ROWS", 8),
        patch.object(find_differences, "batches", lambda found: ([one] for one in found)),
    ):
        return it.call(*command)


def has_times(it: Pipeline, name: str) -> bool:
    """Whether a table is synced by a time to the end of the backfill, so that it can be read."""
    found = open_store(it.lake.open()).get(it.table(name), write_back=False)
    position = found.position if found else START
    return position.walk is None and (position.timestamp or START_OF_TIME) > END_OF_BACKFILL


def equal(it: Pipeline, warehouse: Warehouse, name: str) -> bool:
    """Hold a table against its source, row by row."""
    stamp = "" if name == "numbers" else ", update_at"
    select = f"SELECT {KEYS.get(name, 'id')}, v{stamp} FROM {{}}{name}"
    found = [chunk.reconciled for chunk in it.chunks(name) if chunk.reconciled]
    # The first deleted rows add the column to the target.
    mark = next((one.deleted_at for one in found if one.deletes and one.deleted_at), None)
    alive = f" WHERE {mark} IS NULL" if mark else ""
    target = [naive(row) for row in warehouse.query(select.format("{schema}.") + alive)]
    return Counter(target) == Counter(ask_once(it, select.format("")))


def naive(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row with its time in UTC, as a session in UTC reads it from the source."""
    return tuple(v.replace(tzinfo=None) if hasattr(v, "tzinfo") else v for v in row)


@pytest.mark.enough_on("mysql")
def test_a_storm_of_everything_that_a_cursor_does_not_see(
    pipeline: New, warehouse: Warehouse, request: pytest.FixtureRequest
) -> None:
    seed = int(SEED) if SEED else Random().randrange(10**6)
    print(f"FLOODMARK_STORM_SEED={seed}")
    random = Random(seed)
    it = pipeline(TABLES, lake="ministack" if "redshift" in request.node.name else "local")
    warehouse = replace(warehouse, lake=it.lake)
    name_target(it.config, warehouse.connection)
    create(it)
    writer = Writer(it, random)
    writer.write(100)
    events: Counter[str] = Counter()
    for _ in range(ROUNDS):
        writer.write(30)
        beside = Writer(it, Random(random.random()))
        beside._value = 10**6 * (sum(events.values()) + 1)
        thread = threading.Thread(target=beside.keep_writing)
        thread.start()
        command, moment = random.choice(RUNS), random.choice(["before", "after"])
        process = processes.start(run_and_die, it, command, random.randrange(4, 150), moment)
        process.join(120)
        beside.stop()
        thread.join()
        assert process.exitcode in (0, -signal.SIGKILL), command
        events["killed" if process.exitcode else "survived"] += 1
    deadline = time.monotonic() + 60
    while True:
        for command in (SYNC, WITHOUT_BUDGET):
            ended = run(it, command)
            assert ended.code == 0, ended
        unlike = [name for name in TABLES if not equal(it, warehouse, name)]
        if not unlike:
            break
        assert time.monotonic() < deadline, f"they stay different: {unlike}"
        time.sleep(0.3)  # rows of this second are read in the next one
    print(dict(events))
    for name in TABLES:
        assert it.findings(name).differences == ()
        assert it.watermark(name).reconciled_state.status == "success"
