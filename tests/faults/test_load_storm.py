"""Rounds of random changes, extractions and loads, most of which fail or die somewhere.

FLOODMARK_STORM_ROUNDS and FLOODMARK_STORM_SEED say how many rounds, and which.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import processes
from floodmark.errors import FloodmarkError, PassingConflict
from floodmark.model.position import Position
from floodmark.state import operator_changes
from floodmark.warehouse.sql_dialect import LEDGER
from floodmark.warehouse.sql_target import SqlTarget
from processes import Doom, DoomedObjectStore
from scenarios import open_store
from sources import SourceTable, Struck, check_loaded, load, source_tables
from warehouses import Warehouse

ROUNDS = int(os.environ.get("FLOODMARK_STORM_ROUNDS", "10"))
SEED = os.environ.get("FLOODMARK_STORM_SEED", "")
STEPS = ("_begin", "_lock_table", "_stage", "_execute", "_query", "_create", "_commit")
BATCHES = (1, 4000, 10**9)


def test_a_storm_leaves_the_source_in_the_target(warehouse: Warehouse) -> None:
    seed = int(SEED) if SEED else Random().randrange(10**6)
    print(f"FLOODMARK_STORM_SEED={seed}")
    storm = Storm(warehouse, Random(seed))
    for _ in range(ROUNDS):
        storm.round()
    storm.calm_down()
    print(dict(storm.events))
    assert storm.events["killed"] + storm.events["struck"] >= ROUNDS, "too weak a storm"


class Storm:
    """Four tables, and what happens to them."""

    def __init__(self, warehouse: Warehouse, random: Random) -> None:
        self._warehouse = warehouse
        self._random = random
        self._tables = source_tables()
        self.events: Counter[str] = Counter()

    def round(self) -> None:
        """Let every table change, be extracted in part, be set by an operator, and be loaded."""
        random = self._random
        for table in self._tables:
            table.change(random, inserts=random.randrange(30), updates=random.randrange(20))
            store = open_store(self._warehouse.lake.open())
            table.extract(store, chunk_rows=random.choice([7, 50]), chunks=random.randrange(1, 5))
            if table.key and random.random() < 0.3 and store.get(table.name):
                self._change_positions(table)
            random.choice([self._load, self._strike, self._strike, self._kill])(table)
        if random.random() < 0.1:
            self._lose()

    def calm_down(self) -> None:
        """Bring everything over without a fault, and look."""
        for table in self._tables:
            table.extract(open_store(self._warehouse.lake.open()), chunk_rows=50)
            load(self._warehouse, table, batch_bytes=4000, target_missing=lambda: True)
            check_loaded(self._warehouse, table)

    def _change_positions(self, table: SourceTable) -> None:
        store = open_store(self._warehouse.lake.open())
        random = self._random
        what = random.choice(["set", "reset", "reset load", "reset extract", "restore"])
        self.events[what] += 1
        if what == "set":
            # Only back: setting a position forward skips rows on purpose.
            watermark = store.get(table.name)
            assert watermark is not None
            if at := watermark.position.timestamp:
                moment = min(at, random.choice(table.rows)["update_at"])
                operator_changes.set_position(store, table.name, Position(timestamp=moment))
            return
        if what == "restore":
            head = random.choice(sorted(store.log.heads(table.name)))
            operator_changes.prepare_restore(store, table.name, head).commit()
            return
        stages: dict[str, list[Any]] = {
            "reset": ["extract", "load"],
            "reset load": ["load"],
            "reset extract": ["extract"],
        }
        operator_changes.reset(store, table.name, stages[what])

    def _lose(self) -> None:
        """Lose the target with all that is in it."""
        for name in (LEDGER, *(table.target.name for table in self._tables)):
            self._warehouse.query(f'DROP TABLE IF EXISTS {{schema}}."{name}"')
        self.events["lost"] += 1

    def _load(self, table: SourceTable) -> None:
        load(self._warehouse, table, batch_bytes=self._random.choice(BATCHES))
        self.events["loaded"] += 1

    def _strike(self, table: SourceTable) -> None:
        """Raise an error before or after some step, or say that a conflict was in the way."""
        random = self._random
        step, after = random.randrange(1, 30), random.random() < 0.5
        error = random.choice([Struck("struck"), PassingConflict("in the way")])
        try:
            load(
                self._warehouse,
                table,
                batch_bytes=random.choice(BATCHES),
                arm=lambda target: lay_trap(target, step, error, after=after),
            )
        except type(error):
            self.events["struck"] += 1
        else:
            self.events["conflict passed"] += isinstance(error, PassingConflict)

    def _kill(self, table: SourceTable) -> None:
        random = self._random
        process = processes.start(
            load_and_die,
            self._warehouse,
            table,
            random.choice(BATCHES),
            random.randrange(1, 60),
            random.choice(["before", "after"]),
        )
        process.join(timeout=60)
        assert process.exitcode in (0, -signal.SIGKILL)
        self.events["killed" if process.exitcode else "escaped"] += 1


def lay_trap(target: SqlTarget, step: int, error: FloodmarkError, *, after: bool) -> None:
    """Make the n-th step of a target fail."""
    taken = 0

    def around(work: Callable[..., Any]) -> Callable[..., Any]:
        def trapped(*arguments: Any) -> Any:
            nonlocal taken
            taken += 1
            mine = taken
            if mine == step and not after:
                raise error
            result = work(*arguments)
            if mine == step:
                raise error
            return result

        return trapped

    for name in STEPS:
        setattr(target, name, around(getattr(target, name)))


def load_and_die(
    warehouse: Warehouse, table: SourceTable, batch_bytes: int, step: int, moment: str
) -> None:
    doom = Doom(step, moment)

    def arm(target: SqlTarget) -> None:
        for name in STEPS:
            setattr(target, name, doom.around(getattr(target, name)))

    objects = DoomedObjectStore(warehouse.lake.open(), doom)
    load(warehouse, table, batch_bytes=batch_bytes, objects=objects, arm=arm)
