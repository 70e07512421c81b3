"""What applications and their developers do to a table."""

from random import Random

from fuzz.tables import Table
from fuzz.world import World, connect
from scenarios import open_store


def insert(world: World, table: Table, random: Random) -> None:
    """Add rows."""
    if not table.away:
        added = table.insert(world.session, random, random.randint(1, 12))
        world.note(f"mysql> INSERT INTO {table.name} -- rows {sorted(added)}")


def insert_old(world: World, table: Table, random: Random) -> None:
    """Add rows stamped long ago, to a table that was never read."""
    store = open_store(world.pipeline.lake.open())
    if not table.away and store.get(world.pipeline.table(table.name), write_back=False) is None:
        added = table.insert(world.session, random, 3, old=True)
        table.old |= added
        world.note(f"mysql> INSERT INTO {table.name} -- rows {sorted(added)} of 2024")


def update(world: World, table: Table, random: Random) -> None:
    """Change rows, if the cursor sees that."""
    if not table.away and table.sees_updates(world.session):
        table.update(world.session, random, random.randint(1, 5))
        world.note(f"mysql> UPDATE {table.name} …")


def delete(world: World, table: Table, random: Random) -> None:
    """Delete a row."""
    free = [] if table.away else sorted(table.present(world.session) - table.pending)
    if free and world.sql(f"DELETE FROM {table.name} WHERE n = {(n := random.choice(free))}"):
        table.deleted.add(n)


def truncate(world: World, table: Table, random: Random) -> None:
    """Delete all rows, of a table whose cursor does not count them."""
    if table.cursor_column != "id":
        truncate_anyway(world, table, random)


def truncate_anyway(world: World, table: Table, random: Random) -> None:
    """Delete all rows, and begin to count again."""
    if not table.away:
        world.end_transaction(table)
        table.deleted |= table.present(world.session)
        world.sql(f"TRUNCATE TABLE {table.name}")


def begin(world: World, table: Table, random: Random) -> None:
    """Add rows in a transaction that stays open for a while."""
    if table.away or table.name in world.open:
        return
    session = connect(world.pipeline)
    session.autocommit(False)
    world.open[table.name] = session
    table.pending |= table.insert(session, random, random.randint(1, 3))
    world.note(f"mysql> BEGIN; INSERT INTO {table.name} -- rows {sorted(table.pending)}")


def commit(world: World, table: Table, random: Random) -> None:
    """End such a transaction."""
    world.end_transaction(table)


def rename_table(world: World, table: Table, random: Random) -> None:
    """Rename the table, or bring it back."""
    world.end_transaction(table)
    names = (f"{table.name}_away", table.name) if table.away else (table.name, f"{table.name}_away")
    world.sql("RENAME TABLE {} TO {}".format(*names))
    table.away = not table.away
