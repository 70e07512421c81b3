"""Accidents: kills, lost files, and restored older copies."""

import shutil
from pathlib import Path
from random import Random

from floodmark.config.models import DuckdbConnection
from floodmark.model import lake_layout
from fuzz.kills import killed_sync
from fuzz.tables import Table
from fuzz.world import World
from warehouses import quoted


def kill(world: World, table: Table, random: Random) -> None:
    """Kill a sync on its way."""
    step, moment = random.randint(1, 25), random.choice(["before", "after"])
    died = killed_sync(world.pipeline, step, moment)
    world.note(f"$ floodmark sync -p main -- {'killed' if died else 'ended'} {moment} step {step}")


def lose_target(world: World, table: Table, random: Random) -> None:
    """Lose the warehouse, a table of it, or its ledger."""
    name = random.choice(["", "", table.target_name, "floodmark_ledger"])
    if not name:
        world.lose_target()
    elif world.target_columns(name):
        world.target_sql(f"DROP TABLE {{schema}}.{quoted(name)}")


def lose_copies(world: World, table: Table, random: Random) -> None:
    """Lose, cut short, or put back an older copy of a watermark."""
    objects, name = world.pipeline.lake.open(), world.pipeline.table(table.name)
    primary = lake_layout.primary(name)
    copies = [
        info.key
        for folder in (lake_layout.DAILY, lake_layout.SESSIONS)
        for info in objects.list_objects(folder)
        if table.name in info.key
    ]
    if primary not in {info.key for info in objects.list_objects(lake_layout.PRIMARIES)}:
        return
    match random.choice(["primary", "half", "older", "copies", "all"]):
        case "primary":
            lost = [primary]
        case "copies":
            lost = copies
        case "all":
            lost = [primary, *copies]
        case "half":
            lost = []
            data = objects.get(primary).data
            objects.put(primary, data[: len(data) // 2])
            world.note(f"lake> {primary} is cut short")
        case _:
            lost = []
            if copies:
                older = random.choice(copies)
                objects.put(primary, objects.get(older).data)
                world.note(f"lake> {primary} is replaced by {older}")
    for key in lost:
        objects.delete(key)
        world.note(f"lake> {key} is lost")


def keep_lake(world: World, table: Table, random: Random) -> None:
    """Copy the lake, as a backup does."""
    lake = Path(str(world.pipeline.lake.folder))
    if lake.exists():
        shutil.rmtree(f"{lake}-kept", ignore_errors=True)
        shutil.copytree(lake, f"{lake}-kept")
        world.note("lake> is copied")


def older_lake(world: World, table: Table, random: Random) -> None:
    """Put an older lake back."""
    lake = Path(str(world.pipeline.lake.folder))
    if Path(f"{lake}-kept").exists():
        shutil.rmtree(lake)
        shutil.copytree(f"{lake}-kept", lake)
        world.note("lake> the copy is put back")


def older_warehouse(world: World, table: Table, random: Random) -> None:
    """Keep the warehouse as it is, or put back what was kept."""
    connection = world.warehouse.connection
    if not isinstance(connection, DuckdbConnection):
        return
    path, kept = Path(connection.path), Path(f"{connection.path}.kept")
    if kept.exists() and random.random() < 0.6:
        shutil.copy(kept, path)
        world.note("target> an older copy is put back")
    elif path.exists():
        shutil.copy(path, kept)
        world.note("target> is copied")
