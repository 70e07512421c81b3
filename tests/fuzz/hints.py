"""An operator who does what a hint says, to the letter, and knows nothing else."""

import re
import shlex
from collections.abc import Callable
from typing import Any

import yaml

from fuzz import outcome
from fuzz.script import Failure
from fuzz.tables import Table
from fuzz.world import LONG_AGO, Refusal, World
from warehouses import quoted

FOLLOWED = "# as the hint says"

_OR = re.compile(r", or (?:else )?|; (?:or )?")
_CONFLICT = re.compile(r"(\w+)\.(\w+) is (.+) in the target, but (.+) in the source's schema")
_LACKS = re.compile(r"has no column '(\w+)', which is in its '?(\w+)'?")

Do = Callable[[World, Table, Refusal, re.Match[str]], None]


def follow(world: World, refusal: Refusal, times: int) -> None:
    """Do what a hint says; the next time, its next alternative."""
    about = f"{refusal.table} {refusal.message}"
    table = next((t for t in world.tables if world.scoped(t) in about), world.tables[0])
    ways = [way for part in _OR.split(refusal.hint) if (way := _steps(part))]
    if not ways:
        raise Failure("hint not understood", f"{refusal.message}\nhint: {refusal.hint}")
    for do, match in ways[times % len(ways)]:
        world.note(f"{FOLLOWED}: {match[0]}")
        do(world, table, refusal, match)


def _steps(text: str) -> list[tuple[Do, re.Match[str]]]:
    """What a part of a hint says to do, in its order."""
    found = [(match.start(), do, match) for p, do in RECIPES for match in p.finditer(text)]
    return [(do, match) for _, do, match in sorted(found, key=lambda one: one[0])]


def _run(world: World, table: Table, refusal: Refusal, match: re.Match[str]) -> None:
    """Run a command of ours; a place that is left open gets a value from long ago."""
    _, verb, *rest = shlex.split(match[1].replace("…", shlex.quote(LONG_AGO)).rstrip(" ,;."))
    if "-t" in rest:
        at = rest.index("-t")
        name = rest[at + 1]
        table = next((t for t in world.tables if world.scoped(t) == name), table)
        del rest[at : at + 2]
    match verb:
        case "set":
            value = "0" if rest[0] == "--id" and rest[1] == LONG_AGO else rest[1]
            outcome.set_position(world, table, rest[0], value, *rest[2:], "--force")
        case "reset":
            outcome.reset(world, table, *rest, "--force")
        case "restore":
            outcome.restore(world, table, *rest, "--force")
        case "validate":
            ended = world.call("watermark", "validate", "-t", world.scoped(table), *rest)
            for hint in re.findall(r"hint: (.*)", ended.out + ended.err):
                for do, found in _steps(hint):
                    if found[0] != match[0]:
                        do(world, table, refusal, found)
        case _:
            world.call("watermark", verb, "-t", world.scoped(table), *rest)


def _drop(world: World, table: Table, refusal: Refusal, match: re.Match[str]) -> None:
    world.target_sql(f"DROP TABLE {{schema}}.{quoted(match[1])}")


def _drop_its(world: World, table: Table, refusal: Refusal, match: re.Match[str]) -> None:
    world.target_sql(f"DROP TABLE {{schema}}.{quoted(table.target_name)}")


def _empty(world: World, table: Table, refusal: Refusal, match: re.Match[str]) -> None:
    world.target_sql(f"DELETE FROM {{schema}}.{quoted(match[1])}")


def _by_hand(world: World, table: Table, refusal: Refusal, match: re.Match[str]) -> None:
    """Change the target's column to what the message says the source has."""
    if (conflict := _CONFLICT.search(refusal.message)) is None:
        return
    name, column, held, wanted = conflict.groups()
    target = f"ALTER TABLE {{schema}}.{quoted(name)}"
    if wanted == "nothing":
        world.target_sql(f"{target} DROP COLUMN {quoted(column)}")
    elif held == "nothing":
        world.target_sql(f"{target} ADD COLUMN {quoted(column)} {wanted}")
    else:
        change = (
            f"ALTER COLUMN {quoted(column)} TYPE {wanted} USING CAST({quoted(column)} AS {wanted})"
        )
        world.target_sql(f"{target} {change}")


def _other_target(world: World, table: Table, refusal: Refusal, match: re.Match[str]) -> None:
    outcome.configure(world, table, {"target_name": f"{table.target_name}_new"})


def _other_name(world: World, table: Table, refusal: Refusal, match: re.Match[str]) -> None:
    """Write the name that was meant into the setting that names a column that is not there."""
    if (lacks := _LACKS.search(refusal.message)) is None:
        return
    wrong, setting = lacks.groups()
    _replace(world, table, setting, wrong, [match[1]])


def _leave_out(world: World, table: Table, refusal: Refusal, match: re.Match[str]) -> None:
    """Take a name of a column that is not there out of a setting."""
    if (lacks := _LACKS.search(refusal.message)) is not None:
        _replace(world, table, lacks[2], lacks[1], [])


def _replace(world: World, table: Table, setting: str, wrong: str, right: list[str]) -> None:
    now: Any = table.settings.get(setting, [])
    names = [now] if isinstance(now, str) else now
    found = [n for name in names for n in (right if name.lower() == wrong.lower() else [name])]
    outcome.configure(world, table, {setting: found})


def _setting(world: World, table: Table, refusal: Refusal, match: re.Match[str]) -> None:
    """Write into the configuration what the hint quotes."""
    outcome.configure(world, table, yaml.safe_load(match[1]))


def _again(world: World, table: Table, refusal: Refusal, match: re.Match[str]) -> None:
    """The next sync comes anyway."""


RECIPES: list[tuple[re.Pattern[str], Do]] = [
    (re.compile(r"(?<=')(?:floodmark )?(watermark [^']+)(?=')"), _run),
    (re.compile(r"(?<!')floodmark (watermark [^',;]+)"), _run),
    (re.compile(r"\bdrop (\S+) in the target"), _drop),
    (re.compile(r"\bdrop its table in the target"), _drop_its),
    (re.compile(r"\bempty (\S+) in the target"), _empty),
    (re.compile(r"change the target's table by hand"), _by_hand),
    (re.compile(r"with 'target_name'|another 'target_name'"), _other_target),
    (re.compile(r"did you mean '(\w+)'"), _other_name),
    (re.compile(r"remove it from"), _leave_out),
    (re.compile(r"'((?:cursor|target_name|exclude|hash): [^']+)'"), _setting),
    (re.compile(r"run (?:it|the command) again|[Tt]ry again|wait (?:for|until)|--limit"), _again),
]
