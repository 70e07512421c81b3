"""A source, a lake, a warehouse and a configuration, and a person who works with them."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
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
        """Remember what was done, for whoever reads the end of it."""
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
        names = ", ".join(map(quoted, columns))
        rows = self.warehouse.query(f"SELECT {names} FROM {{schema}}.{quoted(name)}")
        return [
            {c.lower(): canonical(v) for c, v in zip(columns, row, strict=True)} for row in rows
        ]

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

    # What should be there

    def source_rows(self, table: Table) -> list[dict[str, Any]]:
        """The rows that the warehouse should hold, with values as it should show them."""
        names = [column.name for column in table.columns(self.session)]
        hashed, excluded = table.settings.get("hash", ()), table.settings.get("exclude", ())
        rows = ask(self.session, f"SELECT {', '.join(f'`{n}`' for n in names)} FROM {table.name}")
        return [
            {
                name.lower(): canonical(_digest(value) if name in hashed else value)
                for name, value in zip(names, row, strict=True)
                if name not in excluded
            }
            for row in rows
        ]

    def missing(self, table: Table) -> set[int]:
        """The rows of the source whose present version the target lacks."""

        def versions(rows: list[dict[str, Any]]) -> set[Any]:
            return {(row["n"], row.get("updated_at")) for row in rows if "n" in row}

        lacking = versions(self.source_rows(table)) - versions(self.target_rows(table.target_name))
        return {int(n) for n, _ in lacking}

    def differences(self, table: Table) -> list[str]:
        """How target and source differ, but for rows that an operator gave up.

        What the target holds besides the source's columns, such as one that was dropped, is left
        alone; so are rows that were deleted where the cursor does not see that.
        """
        given_up: set[str] = set()
        gone: set[str] = set()
        if not table.whole:
            given_up = set(map(str, table.skipped | (table.old if self.start != START else set())))
            gone = set(map(str, table.deleted))
        expected = {row["n"]: row for row in self.source_rows(table)}
        target = self.target_rows(table.target_name)
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
