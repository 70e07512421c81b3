"""The context of one run: configuration, session and watermark store."""

import os
import pwd
from collections.abc import Iterable
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING

from floodmark.api.arguments import Names, Table, as_list, expect
from floodmark.config.loading import LoadedConfig
from floodmark.config.models import Connection, MysqlConnection, TableSettings
from floodmark.errors import ConfigError, UsageError
from floodmark.model.history import StartedBy
from floodmark.model.notice import Notice, Report
from floodmark.model.position import START, Position
from floodmark.model.run import new_session_id
from floodmark.model.table import TableName, split_name
from floodmark.model.timestamps import utc_now
from floodmark.model.transitions import Authorship
from floodmark.state.run import Run
from floodmark.state.system_watermark import read_system_watermark
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.objects import ObjectStore

if TYPE_CHECKING:
    from floodmark.state.mirror import Mirror


class RunContext:
    """Shared by all steps of a run. Each run has its own, so that no run sees stale state."""

    def __init__(
        self,
        config: LoadedConfig,
        lake: ObjectStore,
        report: Report,
        mirror: "Mirror | None" = None,
    ) -> None:
        self.config = config
        self.mirror = mirror
        self.report = report
        self.run = Run(
            session_id=new_session_id(utc_now(), os.urandom(3).hex()),
            author=_author(),
            clock=utc_now,
            report=report,
            random=Random(),  # noqa: S311
            lease_seconds=config.settings.lease_seconds,
        )
        self.store = WatermarkStore(lake, self.run, known_tables=config.tables)

    @property
    def by(self) -> Authorship:
        """Author, session and time of a change made now."""
        return self.run.authorship()

    @property
    def folder(self) -> str:
        """The folder that relative paths of the configuration refer to."""
        return os.path.dirname(self.config.path)

    def now(self) -> datetime:
        """Return the current time by the run's clock."""
        return self.run.clock()

    def warn(self, message: str) -> None:
        """Report a warning."""
        self.report(Notice("warning", message))

    def start_of_new_tables(self) -> tuple[Position, StartedBy]:
        """Return where new tables start (`START` for all rows), and which setting decides it."""
        system = read_system_watermark(self.store.objects, now=self.run.clock())
        if system is not None:
            return Position(system.timestamp), "system watermark"
        default = self.config.settings.default_start
        return START if default == "all" else Position(default), "default"

    def mysql(self, scope: str) -> MysqlConnection:
        """Return the source connection of a scope; ConfigError if it cannot be used."""
        if scope not in self.config.settings.connections:
            raise ConfigError(f"no connection named {scope!r}")
        connection = self.config.connection(scope)
        if not isinstance(connection, MysqlConnection):
            raise ConfigError(f"connection {scope!r} is not a source")
        return connection

    def target(self, table: TableName) -> Connection:
        """Return the connection of the warehouse that a table is loaded into."""
        return self.config.warehouse_of(table)

    def reserved(self, table: TableName, names: Iterable[str]) -> list[str]:
        """Return the names that a table's warehouse reserves for system columns and deletes."""
        from floodmark.warehouse.factory import system_columns

        if table not in self.config.tables:
            return []
        target = self.config.pipeline_of(table).target
        names, watermark = list(names), self.store.known(table)
        marked = watermark.mysql_state.deleted_at if watermark else None
        found = system_columns(self.config.settings.connections[target], names)
        return found + [name for name in names if marked and name.lower() == marked.lower()]

    def table_settings(self, table: TableName) -> TableSettings:
        """Return the settings of a table; the defaults if it is not configured."""
        entry = self.config.tables.get(table)
        return entry[1] if entry else TableSettings()

    def table(self, text: Table) -> TableName:
        """Resolve the name of a table; UsageError if it matches none or several."""
        expect("table", text, str, TableName)
        if isinstance(text, TableName) and text in self.config.tables:
            return text
        text = str(text)
        scope, schema, name = split_name(text)
        known = self.config.tables
        matches = [
            table
            for table in self.config.tables_called(schema, name)
            if scope in (None, table.scope)
        ]
        if len(matches) == 1:
            return matches[0]
        if matches:
            places = ", ".join(f"{table} (pipeline {known[table][0]})" for table in matches)
            raise UsageError(
                f"{text!r} is ambiguous: {places}", hint="add the scope, as SCOPE:schema.table"
            )
        if scope is not None and self._in_lake(table := TableName(scope, schema, name)):
            return table
        raise UsageError(f"unknown table {text!r}", hint=_nearest(text, known))

    def tables(self, texts: Iterable[str]) -> list[TableName]:
        """Resolve the names of all tables before any work starts."""
        return list(dict.fromkeys(self.table(text) for text in texts))

    def selected(self, tables: Names, pipelines: Names) -> list[TableName]:
        """Resolve tables by name and by pipeline; without either, return all tables.

        UsageError if there are none, or if one is in no pipeline.
        """
        names = as_list("tables", tables)
        chosen_pipelines = as_list("pipelines", pipelines)
        if tables is None and pipelines is None:
            chosen_pipelines = list(self.config.settings.pipelines)
        known = self.config.settings.pipelines
        for pipeline in chosen_pipelines:
            if pipeline not in known:
                raise UsageError(
                    f"unknown pipeline {pipeline!r}",
                    hint="known pipelines: " + (", ".join(known) or "none"),
                )
        listed = [
            t for t, (pipeline, _) in self.config.tables.items() if pipeline in chosen_pipelines
        ]
        chosen = list(dict.fromkeys([*self.tables(names), *listed]))
        if not chosen:
            what = (
                f"pipeline {chosen_pipelines[0]!r} has" if chosen_pipelines else "the selection has"
            )
            raise UsageError(
                f"{what} no tables", hint="list some under 'tables:', as 'schema.table: {}'"
            )
        for table in chosen:
            if table not in self.config.tables:
                raise UsageError(f"{table} is in no pipeline", hint="list it under 'pipelines:'")
        return chosen

    def _in_lake(self, table: TableName) -> bool:
        return not self.store.log.is_empty(table)


def _nearest(text: str, known: Iterable[TableName]) -> str:
    from difflib import get_close_matches

    names = [name for table in known for name in (str(table), table.unscoped)]
    nearest = get_close_matches(text, names, n=1)
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    return "tables are listed under 'pipelines:' in the configuration"


def _author() -> str:
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run with a numeric user id only
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"
