"""One table that is synced to a warehouse while its schema changes."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from floodmark.config.models import DuckdbConnection
from pipelines import Ended, Pipeline, ask, ask_once, session
from warehouses import Warehouse, quoted

CURSOR = "{cursor: [update_at, id]}"
STAMP = "update_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP"
COLUMNS = (
    "id INT AUTO_INCREMENT PRIMARY KEY, big BIGINT NOT NULL, note VARCHAR(20), day DATE,"
    f" amount DECIMAL(10,2), {STAMP}, KEY by_change (update_at, id)"
)


@dataclass(frozen=True)
class Synced:
    """A table that is synced to a warehouse, and can lose it."""

    it: Pipeline
    warehouse: Warehouse

    def sync(self, *arguments: str) -> Ended:
        return self.it.call("sync", "-p", "main", *arguments)

    def change(self, *statements: str) -> None:
        with session(self.it) as connection:
            for statement in statements:
                ask(connection, statement)

    def add(self, first: int, last: int, *, day: int) -> None:
        """Add rows of a day, with values in the columns that all tests have."""
        values = ", ".join(f"({n}, {n}, '2025-06-0{day} 00:00:00')" for n in range(first, last + 1))
        self.change(f"INSERT INTO t (id, big, update_at) VALUES {values}")

    def settle(self, *arguments: str) -> int:
        """Sync until that succeeds, by what the hints say; return how many were followed."""
        for followed in range(4):
            ended = self.sync(*arguments)
            if ended.code == 0:
                return followed + self.fill()
            self.follow(ended)
        raise AssertionError(ended)

    def fill(self) -> int:
        """Fill new columns in older rows; return 1 if some were not."""
        commands = self.unfilled()
        for command in commands:
            done = self.it.call(*command)
            assert done.code == 0, done
        return min(1, len(commands))

    def unfilled(self) -> list[list[str]]:
        """The commands that fill new columns in older rows, as `status` has them."""
        (table,) = self.it.call("status", "--json").value
        found = re.findall(r"'floodmark (backfill [^']*)'", " ".join(table["warnings"]))
        return [command.split() for command in found]

    def follow(self, ended: Ended) -> None:
        hint = " ".join(ended.err.split()).partition("hint: ")[2]
        assert hint, ended
        if re.search("drop (t|its table) in the target", hint):
            self.warehouse.query("DROP TABLE {schema}.t")
        statements = re.findall(r"run (ALTER TABLE .*?) in the target", hint)
        for statement in statements:
            self.warehouse.query(statement)
        commands = re.findall(r"'floodmark ([^']*)'", hint)
        assert commands or statements, ended
        for command in commands:
            done = self.it.call(*command.split())
            assert done.code == 0, done

    def lose(self) -> None:
        for table in ("t", "floodmark_ledger"):
            self.warehouse.query(f"DROP TABLE {{schema}}.{table}")

    def check_equal(self) -> None:
        names = [row[0] for row in ask_once(self.it, "SHOW COLUMNS FROM t")]
        source = ask_once(self.it, "SELECT * FROM t")
        held = {name.lower(): name for name in self.held()}
        wanted = ", ".join(quoted(held[name.lower()]) for name in names)
        target = self.warehouse.query(f"SELECT {wanted} FROM {{schema}}.t")
        assert shown(target) == shown(source)
        ended = self.sync("--load-only", "--verify-data=all")
        assert ended.code == 0, ended

    def edit(self, old: str, new: str) -> None:
        """Replace a text in the configuration."""
        config = Path(self.it.config)
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new))

    def held(self) -> list[str]:
        """The columns that the target has."""
        rows = self.warehouse.query(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 't'"
            f" AND table_schema = '{self.schema}' ORDER BY ordinal_position"
        )
        return [row[0] for row in rows]

    def remove_file(self) -> None:
        """Remove the file of a DuckDB warehouse."""
        assert isinstance(self.warehouse.connection, DuckdbConnection)
        Path(self.warehouse.connection.path).unlink()

    @property
    def schema(self) -> str:
        return str(getattr(self.warehouse.connection, "schema", "main")).lower()


def shown(rows: Sequence[tuple[Any, ...]]) -> list[tuple[str | None, ...]]:
    """Rows by their values, whatever type holds them."""
    return sorted((tuple(map(text, row)) for row in rows), key=repr)


def text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case b"\0" | b"\1":  # the client shows a BIT as bytes
            return str(value[0])
        case bytes() | memoryview():
            return bytes(value).hex()
        case datetime():
            return str(value.replace(tzinfo=None)).removesuffix(" 00:00:00")
        case date() | time():
            return str(value)
        case bool():
            return str(int(value))
        case float():
            return f"{value:.6g}"
        case Decimal():
            return f"{value.normalize():f}"
    return str(value).removesuffix(" 00:00:00")


NewTable = Callable[..., Synced]
