"""The only outcomes that are allowed: equal to the source, or a hint that leads there.

Commands are run here, and the tables learn what an operator gave up by them.
"""

import time
from collections import Counter
from random import Random
from typing import Any

from fuzz import hints
from fuzz.comparison import differences, missing
from fuzz.script import Failure
from fuzz.tables import Table
from fuzz.world import Refusal, World

ROUNDS = 12
TICKS = (0.01, 0.3, 1.3)  # the last is longer than any tick of a stamp


def settle(world: World) -> None:
    """End what is open, then sync and follow hints until source and target are equal.

    Each table gets one more row: a change of its schema comes with the next row that is read.
    """
    for table in world.tables:
        world.end_transaction(table)
        if table.away:
            world.sql(f"RENAME TABLE {table.name}_away TO {table.name}")
            table.away = False
        table.insert(world.session, Random(table.last), 1)
    seen: Counter[Refusal] = Counter()
    ticks = iter(TICKS)
    for _ in range(ROUNDS):
        refusals = world.sync()
        for refusal in refusals:
            hints.follow(world, refusal, seen[refusal])
            seen[refusal] += 1
        if refusals:
            continue
        for command in world.unfilled():
            world.call(*command)
        unlike = [one for table in world.tables for one in differences(world, table)]
        if not unlike:
            return
        tick = next(ticks, None)
        if tick is None:
            raise Failure("wrong target", "\n".join(unlike[:12]))
        time.sleep(tick)
    raise Failure("no way out", "\n".join(f"{one.message}\nhint: {one.hint}" for one in seen))


def set_position(world: World, table: Table, flag: str, value: str, *more: str) -> None:
    """Set a position; rows behind it that are not there yet are given up, if it is accepted."""
    lacking = missing(world, table)
    arguments = ("watermark", "set", "-t", world.scoped(table), flag, value, *more)
    if world.command(*arguments).code == 0:
        column = table.cursor_column
        by_id = column in ("id", "n")
        if by_id == (flag == "--id") and column != "none":
            behind = table.present(world.session, f"`{column}` <= '{value}'")
            table.set_past(behind, lacking)


def reset(world: World, table: Table, *arguments: str) -> None:
    """Send a table back; what stage 1 reads again is no longer given up."""
    ended = world.command("watermark", "reset", "-t", world.scoped(table), *arguments)
    if ended.code == 0 and not {"--redshift-only", "--load-only"} & set(arguments):
        table.skipped.clear()


def restore(world: World, table: Table, *arguments: str) -> None:
    """Go back to an earlier state; what was given up then is given up again."""
    ended = world.command("watermark", "restore", "-t", world.scoped(table), *arguments)
    if ended.code == 0:
        table.skipped |= table.once_skipped


def configure(world: World, table: Table, settings: dict[str, Any]) -> None:
    """Change what the configuration says of a table."""
    table.settings |= settings
    world.note(f"{table.name}: {table.settings}; extraction: {world.extraction}")
    world.configure()
