"""Random operators, schema changes and accidents: equal in the end, or a hint that leads there.

FLOODMARK_STORM_ROUNDS says how many seeds, FLOODMARK_STORM_SEED the first of them, and
FLOODMARK_FUZZ_STEPS how many steps each has. A failure prints its script, shortened;
FLOODMARK_FUZZ_SCRIPT runs one again. With FLOODMARK_FUZZ_ALL=1 what is known to fail takes part.
"""

import os
from itertools import count
from pathlib import Path
from random import Random

import pytest

from floodmark.embedded.mariadb import PrivateMariaDB
from fuzz.actions import ACTIONS, KNOWN
from fuzz.hints import FOLLOWED
from fuzz.outcome import settle
from fuzz.script import Failure, Script, new_script, shortened
from fuzz.tables import SHAPES
from fuzz.world import World, new_world
from scenarios import Lake
from servers.postgres import PrivatePostgres
from warehouses import Warehouse, new_duckdb, new_postgres

SEEDS = int(os.environ.get("FLOODMARK_STORM_ROUNDS", "3"))
# The short run has always the same seeds, the long one new ones.
NEW = str(Random().randrange(10**6)) if "FLOODMARK_STORM_ROUNDS" in os.environ else "1"
FIRST = int(os.environ.get("FLOODMARK_STORM_SEED", NEW))
STEPS = int(os.environ.get("FLOODMARK_FUZZ_STEPS", "25"))
SCRIPT = os.environ.get("FLOODMARK_FUZZ_SCRIPT", "")
SHRINK_SECONDS = float(os.environ.get("FLOODMARK_FUZZ_SHRINK", "60"))
EVERYTHING = os.environ.get("FLOODMARK_FUZZ_ALL") == "1"
TARGETS = ("duckdb", "duckdb", "duckdb", "postgres")


class Runs:
    """Runs scripts, each in a world of its own."""

    def __init__(self, server: PrivateMariaDB, postgres: PrivatePostgres, folder: Path) -> None:
        self._server = server
        self._postgres = postgres
        self._folder = folder
        self._numbers = count()

    def run(self, script: Script) -> tuple[Failure | None, list[str]]:
        """Run a script to its end, and return what went wrong, and what was done."""
        folder = self._folder / str(next(self._numbers))
        with new_world(
            self._server, self._warehouse(script, folder), folder, script.shapes
        ) as world:
            try:
                for step in script.steps:
                    world.note(f"\n--- {step}")
                    act, _ = ACTIONS[step.action]
                    act(world, world.tables[step.table], Random(step.number))
                world.note("\n--- the end")
                settle(world)
                world.note(summary(world))
            except Failure as failure:
                return failure, world.log
            return None, world.log

    def check(self, script: Script) -> None:
        """Run a script; if it fails, shorten it and show every step."""
        failure, log = self.run(script)
        if failure is None:
            print(log[-1])
            return

        def fails(less: Script) -> str | None:
            found, _ = self.run(less)
            return found.kind if found else None

        short = shortened(script, fails, failure.kind, seconds=SHRINK_SECONDS)
        last, log = self.run(short)
        print("\n".join(log))
        print(f"\nFLOODMARK_FUZZ_SCRIPT='{short}'")
        pytest.fail(str(last or failure))

    def _warehouse(self, script: Script, folder: Path) -> Warehouse:
        folder.mkdir()
        lake = Lake(folder=str(folder / "lake"))
        return (
            new_postgres(self._postgres, lake)
            if script.target == "postgres"
            else new_duckdb(folder, lake)
        )


def summary(world: World) -> str:
    """How much a run has shown."""
    rows = sum(len(table.present(world.session)) for table in world.tables)
    given_up = sum(len(table.skipped) for table in world.tables if not table.whole)
    followed = sum(line.startswith(FOLLOWED) for line in world.log)
    return f"{rows} rows, {given_up} of them given up, {followed} hints followed"


@pytest.fixture
def runs(server: PrivateMariaDB, postgres: PrivatePostgres, tmp_path: Path) -> Runs:
    return Runs(server, postgres, tmp_path)


@pytest.mark.skipif(bool(SCRIPT), reason="FLOODMARK_FUZZ_SCRIPT names the script to run")
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_operators_end_with_the_source_in_the_target(runs: Runs, seed: int) -> None:
    weights = {
        name: weight for name, (_, weight) in ACTIONS.items() if EVERYTHING or name not in KNOWN
    }
    script = new_script(
        seed, target=TARGETS[seed % 4], shapes=list(SHAPES), actions=weights, steps=STEPS
    )
    print(f"FLOODMARK_STORM_SEED={seed}\nFLOODMARK_FUZZ_SCRIPT='{script}'")
    runs.check(script)


@pytest.mark.skipif(not SCRIPT, reason="needs FLOODMARK_FUZZ_SCRIPT")
def test_script(runs: Runs) -> None:
    runs.check(Script.parse(SCRIPT))


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("action", KNOWN)
def test_what_is_known_to_fail_still_does(runs: Runs, action: str) -> None:
    why, script = KNOWN[action]
    failure, log = runs.run(Script.parse(script))
    print("\n".join(log))
    assert failure is not None, f"{action} is fixed, take it out of KNOWN: {why}"
