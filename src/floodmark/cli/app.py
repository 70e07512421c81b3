"""What every command shares: options, configuration, the store, and where output goes."""

import functools
import os
import pwd
import sys
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import click
import msgspec

from floodmark.cli.log import Log
from floodmark.cli.terminal import say
from floodmark.config.loading import LoadedConfig, load_config
from floodmark.config.logins import LOGINS
from floodmark.config.models import Connection, MysqlConnection, TableSettings
from floodmark.errors import ConfigError, UsageError
from floodmark.model.history import StartedBy
from floodmark.model.notice import Notice
from floodmark.model.position import START, Position
from floodmark.model.run import new_session_id
from floodmark.model.table import TableName, split_name
from floodmark.model.timestamps import utc_now
from floodmark.model.transitions import Authorship
from floodmark.state.system import read_system_watermark
from floodmark.state.watermarks import Run, WatermarkStore
from floodmark.storage.opening import open_lake


class App:
    """One call of the program."""

    def __init__(self, config_path: str | None, log: Log, *, as_json: bool) -> None:
        self.as_json = as_json
        self.log = log
        self.report = log.write
        self.config: LoadedConfig = load_config(config_path, os.environ)
        self._lake = open_lake(self.config.lake, self.config.settings.retries)
        self.begin_session()

    def begin_session(self) -> None:
        """Begin a run of its own, that remembers nothing of the one before."""
        self.run = Run(
            session_id=new_session_id(utc_now(), os.urandom(3).hex()),
            author=_author(),
            clock=utc_now,
            report=self.report,
            random=Random(),  # noqa: S311
            lease_seconds=self.config.settings.lease_seconds,
        )
        self.log.session = self.run.session_id
        self.store = WatermarkStore(self._lake, self.run, known_tables=self.config.tables)

    @property
    def by(self) -> Authorship:
        """Who is acting now."""
        return Authorship(self.run.session_id, self.run.author, self.run.clock())

    def warn(self, message: str) -> None:
        """Show a warning on stderr."""
        self.report(Notice("warning", message))

    def start_of_new_tables(self) -> tuple[Position, StartedBy]:
        """Where tables without a position start, and who says so; `START` for all rows."""
        system = read_system_watermark(self.store.objects, now=self.run.clock())
        if system is not None:
            return Position(system.timestamp), "system watermark"
        default = self.config.settings.default_start
        return START if default == "all" else Position(default), "default"

    def mysql(self, scope: str) -> MysqlConnection:
        """The source connection of a scope; ConfigError if it cannot be used."""
        if scope not in self.config.settings.connections:
            raise ConfigError(f"no connection is called {scope!r}")
        connection = self.config.connection(scope)
        if not isinstance(connection, MysqlConnection):
            raise ConfigError(f"connection {scope!r} is not a source")
        return connection

    def target(self, table: TableName) -> Connection:
        """The connection of the warehouse that a table is loaded into."""
        return self.config.warehouse_of(table)

    def reserved(self, table: TableName, names: Iterable[str]) -> list[str]:
        """Those names of columns that the warehouse of a table keeps for its own."""
        from floodmark.warehouse.opening import system_columns

        if table not in self.config.tables:
            return []
        target = self.config.pipeline_of(table).target
        return system_columns(self.config.settings.connections[target], names)

    def table_settings(self, table: TableName) -> TableSettings:
        """What the configuration says of a table, which may be nothing."""
        entry = self.config.tables.get(table)
        return entry[1] if entry else TableSettings()

    def print(self, text: str, value: object) -> None:
        """Print a result: text for people, or a value as JSON for programs."""
        print_result(text, value, as_json=self.as_json)

    def table(self, text: str) -> TableName:
        """Resolve what `-t` was given; UsageError if no table, or more than one, is meant."""
        scope, schema, name = split_name(text)
        known = self.config.tables
        meant = [
            table
            for table in self.config.tables_called(schema, name)
            if scope in (None, table.scope)
        ]
        if len(meant) == 1:
            return meant[0]
        if meant:
            places = ", ".join(f"{table} (pipeline {known[table][0]})" for table in meant)
            raise UsageError(f"{text!r} may mean {places}", hint="write the scope in front of it")
        if scope is not None and self._in_lake(table := TableName(scope, schema, name)):
            return table
        raise UsageError(f"unknown table {text!r}", hint=_nearest(text, known))

    def tables(self, texts: tuple[str, ...]) -> list[TableName]:
        """Resolve every `-t`, before anything is done to any of them."""
        return list(dict.fromkeys(self.table(text) for text in texts))

    def _in_lake(self, table: TableName) -> bool:
        return next(self.store.log.heads(table), None) is not None


def print_result(text: str, value: object, *, as_json: bool) -> None:
    """Print a result: text for people, or a value as JSON for programs."""
    if as_json:
        data = value if isinstance(value, bytes) else msgspec.json.encode(value)
        text = msgspec.json.format(data, indent=2).decode()
    say(text)


def shared_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that all have, and hand it the log."""

    @click.option("--config", "config_path", metavar="FILE", help="Configuration to use.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
    @click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        envvar="FLOODMARK_LOG_FORMAT",
        default="text",
        show_default=True,
        help="How stderr is written: for people, or one JSON object a line.",
        expose_value=False,  # it is looked up before anything is parsed
    )
    @click.option("--debug", is_flag=True, help="Show tracebacks and details.")
    @click.pass_obj
    @functools.wraps(function)
    def wrapped(log: Log, /, *, debug: bool, **rest: Any) -> Any:
        log.debug = debug
        try:
            return function(log=log, **rest)
        except click.exceptions.Exit:
            raise
        except Exception as error:
            log.traceback(error)
            raise

    return wrapped


def command_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the shared options, and hand it an App."""

    @shared_options
    @functools.wraps(function)
    def wrapped(config_path: str | None, *, log: Log, as_json: bool, **rest: Any) -> Any:
        LOGINS.forget()
        return function(App(config_path, log, as_json=as_json), **rest)

    return wrapped


def complete(kind: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """What completes a parameter in the shell; imported when it is asked."""

    def names(ctx: click.Context, parameter: click.Parameter, typed: str) -> Any:
        from floodmark.cli import completion

        return getattr(completion, kind)(ctx, parameter, typed)

    return names


def table_option(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command `-t`, which may be repeated."""
    return click.option(
        "-t",
        "--table",
        "names",
        multiple=True,
        required=required,
        metavar="TABLE",
        shell_complete=complete("tables"),
        help="schema.table or SCOPE:schema.table; may be repeated.",
    )


def confirm(question: str, *, force: bool, refusal: str) -> None:
    """Ask on a terminal; elsewhere refuse unless forced."""
    if force:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(refusal, hint="add --force if that is what you want")
    click.confirm(question, abort=True, err=True)


def _nearest(text: str, known: dict[TableName, Any]) -> str:
    from difflib import get_close_matches

    names = [name for table in known for name in (str(table), table.unscoped)]
    nearest = get_close_matches(text, names, n=1)
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    return "tables are listed under 'pipelines:' in the configuration"


def _author() -> str:
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container that runs under a number alone
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"
