"""What the warehouse should hold, and how what it holds differs."""

import hashlib
from collections import Counter
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from fuzz.tables import Table
from fuzz.world import START, World
from pipelines import ask


def source_rows(world: World, table: Table) -> list[dict[str, Any]]:
    """The rows that the warehouse should hold, with values as it should show them."""
    names = [column.name for column in table.columns(world.session)]
    hashed, excluded = table.settings.get("hash", ()), table.settings.get("exclude", ())
    rows = ask(world.session, f"SELECT {', '.join(f'`{n}`' for n in names)} FROM {table.name}")
    return [
        {
            name.lower(): canonical(_digest(value) if name in hashed else value)
            for name, value in zip(names, row, strict=True)
            if name not in excluded
        }
        for row in rows
    ]


def target_rows(world: World, table: Table) -> list[dict[str, Any]]:
    """The rows that the warehouse holds."""
    return [
        {name: canonical(value) for name, value in row.items()}
        for row in world.target_rows(table.target_name)
    ]


def missing(world: World, table: Table) -> set[int]:
    """The rows of the source whose present version the target lacks."""

    def versions(rows: list[dict[str, Any]]) -> set[Any]:
        return {(row["n"], row.get("updated_at")) for row in rows if "n" in row}

    lacking = versions(source_rows(world, table)) - versions(target_rows(world, table))
    return {int(n) for n, _ in lacking}


def differences(world: World, table: Table) -> list[str]:
    """How target and source differ, but for rows that an operator gave up.

    What the target holds besides the source's columns, such as one that was dropped, is left
    alone; so are rows that were deleted where the cursor does not see that.
    """
    given_up: set[str] = set()
    gone: set[str] = set()
    if not table.whole:
        given_up = set(map(str, table.skipped | (table.old if world.start != START else set())))
        gone = set(map(str, table.deleted))
    expected = {row["n"]: row for row in source_rows(world, table)}
    target = target_rows(world, table)
    times = Counter(row.get("n") for row in target)
    found = [f"row {n} is missing" for n in expected if n not in times and n not in given_up]
    for n in times.keys() - given_up:
        if n not in expected and n not in gone:
            found.append(f"row {n} is not in the source")
        if times[n] > 1 and n not in gone:
            found.append(f"row {n} is there {times[n]} times")
    for row in target:
        n = row.get("n")
        if n in expected and n not in given_up:
            found += [
                f"row {n}: {name} is {row.get(name, 'no column')}, not {value}"
                for name, value in expected[n].items()
                if not same(row.get(name, "no column"), value)
            ]
    return [f"{table.name} ({table.target_name}): {one}" for one in sorted(found)]


def canonical(value: Any) -> Any:
    """A value in a form that is the same for source and target."""
    match value:
        case None:
            return None
        case bool() | int() | float() | Decimal():
            number = Decimal(str(int(value) if isinstance(value, bool) else value))
            return f"{number.normalize():f}"
        case datetime():
            utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return utc.isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case bytes() | memoryview():
            return bytes(value).hex()
    return f"'{value}'"


def same(held: Any, wanted: Any) -> bool:
    """Whether the target holds a value; text will do where no other type holds all of its past."""
    if held == wanted or not isinstance(held, str) or not isinstance(wanted, str):
        return bool(held == wanted)
    for read in (Decimal, datetime.fromisoformat):
        with suppress(ArithmeticError, ValueError):
            if canonical(read(held.strip("'"))) == wanted:
                return True
    return False


def _digest(value: Any) -> Any:
    return None if value is None else hashlib.sha256(str(value).encode()).hexdigest()
