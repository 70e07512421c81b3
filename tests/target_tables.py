"""Tables with a key and without, synced into a DuckDB file."""

from collections.abc import Callable
from pathlib import Path

import duckdb

from pipelines import Pipeline, ask_once, numbers

KEYED = "CREATE TABLE {} (id INT PRIMARY KEY, update_at DATETIME NOT NULL)"
KEYLESS = "CREATE TABLE {} (id INT, update_at DATETIME NOT NULL)"
CURSOR = {KEYED: "cursor: [update_at, id]", KEYLESS: "cursor: update_at"}

Make = Callable[..., Pipeline]


def insert(it: Pipeline, table: str, first: int, last: int) -> None:
    ask_once(
        it,
        f"INSERT INTO {table} SELECT seq, '2025-06-01' + INTERVAL seq SECOND"
        f" FROM {numbers(first, last)}",
    )


def held(it: Pipeline, table: str) -> list[int]:
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        return sorted(row[0] for row in database.execute(f'SELECT id FROM "{table}"').fetchall())


def drop(it: Pipeline, table: str) -> None:
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        database.execute(f'DROP TABLE "{table}"')


def edit(it: Pipeline, *changes: tuple[str, str]) -> None:
    file = Path(it.config)
    text = file.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
