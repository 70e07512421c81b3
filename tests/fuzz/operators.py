"""What operators do: syncs, watermarks and settings."""

from random import Random

from fuzz import outcome
from fuzz.tables import SHAPES, Table
from fuzz.world import LATER_START, START, World
from pipelines import ask
from scenarios import open_store


def sync(world: World, table: Table, random: Random) -> None:
    """Sync in one of many ways; it may be refused."""
    ways = (
        ("--limit", str(random.randint(1, 15))),
        ("--backup-only",),
        ("--redshift-only",),
        ("--strategy", random.choice(["sequential", "inter-table"])),
        ("--backup-only", "--limit", "3"),
        (),
        (),
    )
    world.sync(*random.choice(ways))


def set_position(world: World, table: Table, random: Random) -> None:
    """Set a position to that of some row, forward or back."""
    if table.away:
        return
    column = table.cursor_column if table.cursor_column != "none" else "updated_at"
    name = column if random.random() < 0.9 else random.choice(["n", "updated_at"])
    values = ask(world.session, f"SELECT `{name}` FROM {table.name} ORDER BY 1")
    if not values:
        return
    (chosen,) = random.choice(values)
    flag = "--id" if isinstance(chosen, int) else "--timestamp"
    outcome.set_position(world, table, flag, str(chosen))


def reset(world: World, table: Table, random: Random) -> None:
    """Send both stages or one back to the start."""
    stage = random.choice([(), ("--mysql-only",), ("--redshift-only",)])
    outcome.reset(world, table, *stage)


def restore(world: World, table: Table, random: Random) -> None:
    """Go back to any earlier state."""
    store = open_store(world.pipeline.lake.open())
    heads = list(store.log.heads(world.pipeline.table(table.name)))
    if heads:
        outcome.restore(world, table, "--from", str(random.choice(heads)))


def save(world: World, table: Table, random: Random) -> None:
    """Keep what `watermark get --json` prints."""
    ended = world.call("watermark", "get", "-t", world.scoped(table), "--json")
    if ended.code == 0:
        path = world.pipeline.folder / f"saved-{len(world.saved)}.json"
        path.write_text(ended.out)
        world.saved.append((table.name, path))


def restore_file(world: World, table: Table, random: Random) -> None:
    """Go back to a state that was kept in a file."""
    if files := [path for name, path in world.saved if name == table.name]:
        outcome.restore(world, table, "--file", str(random.choice(files)))


def change_cursor(world: World, table: Table, random: Random) -> None:
    """Name another cursor."""
    cursor = random.choice([one for one in SHAPES[table.shape].cursors if one])
    outcome.configure(world, table, {"cursor": cursor})


def change_target_name(world: World, table: Table, random: Random) -> None:
    """Name another table in the target, or its own again."""
    names = [one.target_name for one in world.tables]
    wanted = random.choice([f"{table.name}_a", f"{table.name}_b", table.name])
    if wanted not in names:
        outcome.configure(world, table, {"target_name": wanted})


def swap_target_names(world: World, table: Table, random: Random) -> None:
    """Let two tables change places in the target."""
    first, second = world.tables
    one, other = first.target_name, second.target_name
    first.settings["target_name"] = other
    outcome.configure(world, second, {"target_name": one})


def exclude(world: World, table: Table, random: Random) -> None:
    """Leave out one more column."""
    left_out = table.settings.get("exclude", [])
    names = [c.name for c in table.payload(world.session) if c.name not in left_out]
    if names:
        outcome.configure(world, table, {"exclude": [*left_out, random.choice(names)]})


def include(world: World, table: Table, random: Random) -> None:
    """Leave out no column any more."""
    outcome.configure(world, table, {"exclude": []})


def hash_column(world: World, table: Table, random: Random) -> None:
    """Hash a column or no longer, and reset the table, as the documentation of `hash` asks."""
    left_out = table.settings.get("exclude", [])
    names = [
        c.name
        for c in table.payload(world.session)
        if c.kind == "varchar" and c.name not in left_out
    ]
    outcome.configure(world, table, {"hash": random.choice([[], names[:1]])})
    outcome.reset(world, table)


def change_sizes(world: World, table: Table, random: Random) -> None:
    """Cut windows, chunks and batches in another way."""
    world.extraction = {
        "window_rows": random.choice([1, 3, 50]),
        "windows_per_chunk": random.choice([1, 4]),
        "walk_from_rows": random.choice([5, 10**6]),
    }
    outcome.configure(world, table, {})


def change_start(world: World, table: Table, random: Random) -> None:
    """Begin later; what is older is given up from then on."""
    world.start = LATER_START
    world.note(f"default_start: {START} → {world.start}")
    outcome.configure(world, table, {})


def validate(world: World, table: Table, random: Random) -> None:
    """Look, and repair the tracking."""
    world.call("watermark", "validate", *random.choice([(), ("--repair",)]))


def settle(world: World, table: Table, random: Random) -> None:
    """Sync until all is there."""
    outcome.settle(world)
