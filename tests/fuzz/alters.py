"""Schema changes of every kind, as random statements."""

from collections.abc import Callable
from random import Random

from fuzz.tables import Column, Table
from fuzz.world import World

TYPES = {
    "int": ("BIGINT", "SMALLINT", "DECIMAL(12,2)", "VARCHAR(20)", "DOUBLE", "INT UNSIGNED"),
    "bigint": ("INT", "DECIMAL(20,0)", "VARCHAR(30)"),
    "smallint": ("INT", "BIGINT"),
    "varchar": ("VARCHAR(40)", "VARCHAR(20)", "VARCHAR(10)", "TEXT", "INT", "VARCHAR(200)"),
    "text": ("VARCHAR(40)",),
    "decimal": ("DECIMAL(12,2)", "DECIMAL(12,4)", "DECIMAL(8,1)", "DOUBLE", "INT"),
    "double": ("DECIMAL(12,4)", "INT"),
    "datetime": ("DATETIME(6)", "TIMESTAMP(3)", "DATE", "VARCHAR(30)"),
    "timestamp": ("DATETIME(3)", "TIMESTAMP(6)"),
    "date": ("DATETIME(3)", "VARCHAR(20)"),
}
NULLABLE = ("INT NULL", "VARCHAR(20) NULL", "DATETIME(3) NULL")
FILLED = (
    "INT DEFAULT 7",
    "INT NOT NULL DEFAULT 7",
    "INT NOT NULL",
    "VARCHAR(20) NOT NULL DEFAULT 'it''s'",
    "DECIMAL(8,2) NOT NULL DEFAULT 1.50",
    "DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)",
)
PLACES = ("", " FIRST", " AFTER n")
KEYS = {
    "id": ("(id)", "(id, n)", "(n)", "(n, id)"),
    "region": ("(region, number)", "(number, region)", "(number)", "(region, number, n)"),
    "code": ("(code)", "(code, n)", "(n)"),
    "n": ("(n)",),
}


def add_column(random: Random, table: Table, columns: list[Column]) -> str:
    """Add a column that is NULL in the rows that are there."""
    return f"ADD COLUMN {table.new_name()} {random.choice(NULLABLE)}{random.choice(PLACES)}"


def add_filled(random: Random, table: Table, columns: list[Column]) -> str:
    """Add a column that has a value in the rows that are there."""
    return f"ADD COLUMN {table.new_name()} {random.choice(FILLED)}{random.choice(PLACES)}"


def add_again(random: Random, table: Table, columns: list[Column]) -> str:
    """Replace a column by an empty one of the same name and type."""
    column = random.choice(columns)
    return f"DROP COLUMN `{column.name}`, ADD COLUMN `{column.name}` {column.whole} NULL"


def drop_column(random: Random, table: Table, columns: list[Column]) -> str:
    """Drop a column."""
    return f"DROP COLUMN `{random.choice(columns).name}`"


def rename_column(random: Random, table: Table, columns: list[Column]) -> str:
    """Give a column a name that is new."""
    return f"RENAME COLUMN `{random.choice(columns).name}` TO {table.new_name()}"


def swap_columns(random: Random, table: Table, columns: list[Column]) -> str:
    """Let two columns of different types change their names; others look as before."""
    one = random.choice(columns)
    others = [column for column in columns if column.whole != one.whole] or [one]
    names = one.name, random.choice(others).name
    return ", ".join(f"RENAME COLUMN `{a}` TO `{b}`" for a, b in (names, names[::-1]))


def change_type(random: Random, table: Table, columns: list[Column]) -> str:
    """Widen, narrow or change a type."""
    column = random.choice(columns)
    kind = random.choice(TYPES.get(column.kind, ("VARCHAR(40)",)))
    return f"MODIFY `{column.name}` {kind} {column.null}"


def round_times(random: Random, table: Table, columns: list[Column]) -> str:
    """Keep fewer digits of a second."""
    times = [column for column in columns if column.kind == "datetime"] or columns
    return f"MODIFY `{(chosen := random.choice(times)).name}` DATETIME {chosen.null}"


def change_null(random: Random, table: Table, columns: list[Column]) -> str:
    """Allow NULL, or no longer."""
    column = random.choice(columns)
    return f"MODIFY `{column.name}` {column.whole} {'NOT NULL' if column.nullable else 'NULL'}"


def change_default(random: Random, table: Table, columns: list[Column]) -> str:
    """Give a number another default."""
    return f"ALTER COLUMN w SET DEFAULT {random.randrange(9)}"


def reorder(random: Random, table: Table, columns: list[Column]) -> str:
    """Put a column in another place."""
    column = random.choice(columns)
    return (
        f"MODIFY `{column.name}` {column.whole} {column.null} {random.choice(['FIRST', 'AFTER n'])}"
    )


def change_key(random: Random, table: Table, columns: list[Column]) -> str:
    """Give it another primary key."""
    first = {"composite": "region", "text": "code", "keyless": "n", "heap": "n"}
    keys = KEYS[first.get(table.shape, "id")]
    drop = "" if table.shape in ("keyless", "heap") else "DROP PRIMARY KEY, "
    return f"{drop}ADD PRIMARY KEY {random.choice(keys)}"


def drop_key(random: Random, table: Table, columns: list[Column]) -> str:
    """Take its primary key away."""
    return "DROP PRIMARY KEY"


def change_indexes(random: Random, table: Table, columns: list[Column]) -> str:
    """Add or drop an index."""
    return random.choice(
        [
            "ADD UNIQUE KEY only_n (n)",
            "DROP KEY only_n",
            "DROP KEY by_change",
            "ADD KEY by_change (updated_at)",
            "DROP KEY by_birth",
            "ADD KEY both_ways (updated_at, n)",
        ]
    )


def change_clock(random: Random, table: Table, columns: list[Column]) -> str:
    """Make the cursor another kind of time, or of another precision."""
    kind = random.choice(
        ["TIMESTAMP(3)", "DATETIME(3)", "TIMESTAMP(6)", "TIMESTAMP", "DATETIME(6)"]
    )
    now = f"CURRENT_TIMESTAMP{kind[kind.find('(') :] if '(' in kind else ''}"
    if random.random() < 0.5:
        return f"MODIFY created_at {kind} NOT NULL DEFAULT {now}"
    return f"MODIFY updated_at {kind} NOT NULL DEFAULT {now} ON UPDATE {now}"


def change_charset(random: Random, table: Table, columns: list[Column]) -> str:
    """Keep text in another character set or collation."""
    return "CONVERT TO CHARACTER SET " + random.choice(
        ["latin1", "utf8mb4", "utf8mb4 COLLATE utf8mb4_bin", "utf8mb4 COLLATE utf8mb4_unicode_ci"]
    )


def rebuild(random: Random, table: Table, columns: list[Column]) -> str:
    """Change nothing that can be seen."""
    return random.choice(["FORCE", "COMMENT = 'new'", "ROW_FORMAT = DYNAMIC"])


ALTERS: dict[str, Callable[[Random, Table, list[Column]], str]] = {
    "add-column": add_column,
    "add-filled": add_filled,
    "add-again": add_again,
    "drop-column": drop_column,
    "rename-column": rename_column,
    "swap-columns": swap_columns,
    "type": change_type,
    "round-times": round_times,
    "null": change_null,
    "default": change_default,
    "reorder": reorder,
    "key": change_key,
    "drop-key": drop_key,
    "indexes": change_indexes,
    "clock": change_clock,
    "charset": change_charset,
    "rebuild": rebuild,
}


def alter(kind: str) -> Callable[[World, Table, Random], None]:
    """An action that changes a table's schema."""

    def act(world: World, table: Table, random: Random) -> None:
        columns = table.payload(world.session)
        if table.away or not columns:
            return
        world.end_transaction(table)  # its lock would hold the statement off
        world.sql(f"ALTER TABLE {table.name} {ALTERS[kind](random, table, columns)}")

    return act
