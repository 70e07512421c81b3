"""A source, a lake, a warehouse, a configuration, and an operator."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pymysql

from floodmark.config.models import DuckdbConnection, PostgresConnection
from floodmark.embedded.mariadb import PrivateMariaDB
from fuzz.script import Failure
from fuzz.tables import SHAPES, Table
from pipelines import Ended, Pipeline, Session, ask, new_pipeline
from warehouses import Warehouse, name_target, quoted

SETTINGS = {"window_rows": 5, "windows_per_chunk": 2}
START, LATER_START = "2000-01-01", "2025-01-01"
LONG_AGO = "2001-01-01 00:00:00"

_FORCE = "add --force"
_TWICE = "twice"
_REPORT = re.compile(r"Traceback|please report|^error: unexpected|\bbug\b", re.MULTILINE)
_ERROR = re.compile(r"^error: (.*)\n(?:hint: (.*))?", re.MULTILINE)


@dataclass(frozen=True)
class Refusal:
    """Why a sync failed, and what it says to do."""

    table: str
    message: str
    hint: str


@dataclass
class World:
    """Two tables of one schema, their pipeline, and the log of what was done."""

    pipeline: Pipeline
    warehouse: Warehouse
    tables: list[Table]
    session: Session
    extraction: dict[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    start: str = START
    open: dict[str, Session] = field(default_factory=dict)
    saved: list[tuple[str, Path]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Record an action for the report of a failure."""
        self.log.append(text)

    def configure(self) -> None:
        """Write the configuration."""
        tables = {table.name: json.dumps(table.settings) for table in self.tables}
        extraction = json.dumps(self.extraction)
        self.pipeline = replace(
            self.pipeline,
            tables=tables,
            settings=f"extraction: {extraction}\ndefault_start: {self.start}\nlease_seconds: 2\n",
        ).write_config()
        if not isinstance(self.warehouse.connection, DuckdbConnection):
            name_target(self.pipeline.config, self.warehouse.connection)

    def scoped(self, table: Table) -> str:
        """The table's full name."""
        return str(self.pipeline.table(table.name))

    # Commands

    def call(self, *arguments: str) -> Ended:
        """Run a command; whatever the program did not foresee is a failure."""
        ended = self.pipeline.call(*arguments)
        said = ended.err if "--json" in arguments else ended.out + ended.err
        lines = "".join(f"\n  | {line}" for line in said.strip().splitlines())
        self.note(f"$ floodmark {' '.join(arguments)}\n  exit {ended.code}{lines}")
        if _REPORT.search(said):
            raise Failure("unexpected error", said)
        return ended

    def sync(self, *arguments: str) -> list[Refusal]:
        """Sync all tables; each that fails must say what to do."""
        ended = self.call("sync", "-p", "main", "--json", *arguments)
        refusals = [Refusal("", *found) for found in _ERROR.findall(ended.err)]
        if ended.out:
            results = ended.value["tables"]
            self.note("\n".join(map(_summary, results)))
            refusals = [
                Refusal(one["table_name"], one["error"], one["hint"] or "")
                for one in results
                if one["error"]
            ]
        for one in refusals:
            if one.message.startswith("unexpected"):
                raise Failure("unexpected error", one.message)
        if bool(refusals) != bool(ended.code) or not all(one.hint for one in refusals):
            raise Failure("no hint", f"exit {ended.code}: {refusals}\n{ended.err}")
        return refusals

    def unfilled(self) -> list[list[str]]:
        """The commands that fill new columns in older rows, as `status` has them."""
        said = self.call("status", "--json").out
        return [command.split() for command in re.findall(r"'floodmark (backfill [^']*)'", said)]

    def command(self, *arguments: str) -> Ended:
        """Run a command as an operator who means it, but never wants rows to be loaded twice."""
        ended = self.call(*arguments)
        if ended.code == 2 and _FORCE in ended.err and _TWICE not in ended.err:
            ended = self.call(*arguments, "--force")
        return ended

    # The source

    def sql(self, statement: str) -> bool:
        """Change the source; False if the server refuses."""
        self.note(f"mysql> {statement}")
        try:
            ask(self.session, statement)
        except pymysql.MySQLError as error:
            self.note(f"  refused: {error.args[-1]}")
            return False
        return True

    def end_transaction(self, table: Table) -> None:
        """Commit what a transaction has left open."""
        if (session := self.open.pop(table.name, None)) is not None:
            self.note(f"mysql> COMMIT -- of {table.name}, rows {sorted(table.pending)}")
            session.commit()
            session.close()
            table.pending.clear()

    # The warehouse

    def target_sql(self, statement: str) -> bool:
        """Change the warehouse by hand; False if it refuses."""
        self.note(f"target> {statement}")
        try:
            self.warehouse.query(statement)
        except (duckdb.Error, psycopg.Error) as error:
            self.note(f"  refused: {error}")
            return False
        return True

    def target_rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of a table of the warehouse, or none if there is no such table."""
        columns = self.target_columns(name)
        if not columns:
            return []
        wanted = ", ".join(map(quoted, columns))
        rows = self.warehouse.query(f"SELECT {wanted} FROM {{schema}}.{quoted(name)}")
        names = [column.lower() for column in columns]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def target_columns(self, name: str) -> list[str]:
        """The columns of a table of the warehouse; none if there is no such table."""
        connection = self.warehouse.connection
        if isinstance(connection, DuckdbConnection) and not Path(connection.path).exists():
            return []
        schema = connection.schema if isinstance(connection, PostgresConnection) else "main"
        found = self.warehouse.query(
            "SELECT column_name FROM information_schema.columns WHERE table_schema ="
            f" '{schema}' AND table_name = '{name}' ORDER BY ordinal_position"
        )
        return [column for (column,) in found]

    def lose_target(self) -> None:
        """Lose all that the warehouse holds."""
        self.note("target> -- all is lost")
        match self.warehouse.connection:
            case DuckdbConnection(path=path):
                for file in Path(path).parent.glob(f"{Path(path).name}*"):
                    file.unlink()
            case _:
                self.warehouse.query("DROP SCHEMA IF EXISTS {schema} CASCADE")


def _summary(result: dict[str, Any]) -> str:
    error = f"; {result['error']}\n    hint: {result['hint']}" if result["error"] else ""
    counts = f"{result['rows']} read, {result['loaded_rows']} loaded"
    return f"  {result['table_name']}: {result['status']}, {counts}{error}"


@contextmanager
def new_world(
    server: PrivateMariaDB, warehouse: Warehouse, folder: Path, shapes: tuple[str, ...]
) -> Iterator[World]:
    """Make tables of these shapes, with a few rows each."""
    pipeline = new_pipeline(server, warehouse.lake, folder, {})
    tables = [Table(f"t{number}", shape) for number, shape in enumerate(shapes)]
    session = connect(pipeline)
    world = World(pipeline, warehouse, tables, session)
    try:
        for table in tables:
            table.create(session)
            if (cursor := SHAPES[table.shape].cursors[0]) is not None:
                table.settings["cursor"] = cursor
        world.configure()
        yield world
    finally:
        for other in world.open.values():
            other.close()
        session.close()
        server.execute(f"DROP DATABASE {pipeline.schema}")


def connect(pipeline: Pipeline) -> Session:
    """A session of an application, in UTC, that does not wait long for others."""
    session = pymysql.connect(
        **pipeline.source, database=pipeline.schema, autocommit=True, charset="utf8mb4"
    )
    ask(session, "SET time_zone = '+00:00', lock_wait_timeout = 2, innodb_lock_wait_timeout = 1")
    ask(session, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return session
