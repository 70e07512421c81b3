"""What every command shares: options, configuration, the store, and where output goes."""

import functools
import os
import pwd
import sys
from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

import click
import msgspec

from floodmark.cli.terminal import labelled, say
from floodmark.config.loading import LoadedConfig, load_config
from floodmark.config.models import Connection, MysqlConnection
from floodmark.errors import ConfigError, UsageError
from floodmark.model.notice import Notice
from floodmark.model.run import new_session_id
from floodmark.model.table import TableName, split_name
from floodmark.model.timestamps import utc_now
from floodmark.model.transitions import Authorship
from floodmark.state.system import read_system_watermark
from floodmark.state.watermarks import Run, WatermarkStore
from floodmark.storage.opening import open_lake

_COLOURS = {"error": "red", "warning": "yellow", "info": "green", "debug": "white"}


class App:
    """One call of the program."""

    def __init__(self, config_path: str | None, *, as_json: bool, debug: bool) -> None:
        self.as_json = as_json
        self.debug = debug
        self.config: LoadedConfig = load_config(config_path, os.environ)
        settings = self.config.settings
        self.run = Run(
            session_id=new_session_id(utc_now(), os.urandom(3).hex()),
            author=_author(),
            clock=utc_now,
            report=self.report,
            random=Random(),  # noqa: S311
            lease_seconds=settings.lease_seconds,
        )
        self.store = WatermarkStore(
            open_lake(self.config.lake, settings.retries),
            self.run,
            known_tables=self.config.tables,
        )

    @property
    def by(self) -> Authorship:
        """Who is acting now."""
        return Authorship(self.run.session_id, self.run.author, self.run.clock())

    def report(self, notice: Notice) -> None:
        """Show a remark on stderr."""
        if notice.level != "debug" or self.debug:
            line = labelled(f"{notice.level}:", _COLOURS[notice.level], notice.message)
            click.echo(line, err=True)

    def warn(self, message: str) -> None:
        """Show a warning on stderr."""
        self.report(Notice("warning", message))

    def show_traceback(self, error: Exception) -> None:
        """Show where an error came from, if --debug asks for it."""
        if self.debug:
            print_traceback(error)

    def start_of_new_tables(self) -> tuple[datetime, str]:
        """Where tables without a position start, and who says so."""
        system = read_system_watermark(self.store.objects, now=self.run.clock())
        if system is not None:
            return system.timestamp, "system watermark"
        return self.config.settings.default_start, "default"

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
        return self.config.connection(self.config.target_of(table)[0])

    def cursor_columns(self, table: TableName) -> tuple[str, ...] | None:
        """The cursor that the configuration names for a table, if it does."""
        entry = self.config.tables.get(table)
        return entry[1].cursor_columns if entry else None

    def print(self, text: str, value: object) -> None:
        """Print a result: text for people, or a value as JSON for programs."""
        print_result(text, value, as_json=self.as_json)

    def table(self, text: str) -> TableName:
        """Resolve what `-t` was given; UsageError if no table, or more than one, is meant."""
        scope, schema, name = split_name(text)
        known = self.config.tables
        meant = [
            table
            for table in known
            if (table.schema, table.table) == (schema, name) and scope in (None, table.scope)
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


def print_traceback(error: Exception) -> None:
    """Show on stderr where an error came from."""
    import traceback

    traceback.print_exception(error, file=sys.stderr)


def print_result(text: str, value: object, *, as_json: bool) -> None:
    """Print a result: text for people, or a value as JSON for programs."""
    if as_json:
        data = value if isinstance(value, bytes) else msgspec.json.encode(value)
        text = msgspec.json.format(data, indent=2).decode()
    say(text)


def complain(message: str, hint: str | None, label: str = "error") -> None:
    """Show on stderr what is wrong, in one line, and what to try in another."""
    click.echo(labelled(f"{label}:", _COLOURS[label], message, bold=True), err=True)
    if hint:
        click.echo(labelled("hint:", "cyan", hint), err=True)


def shared_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--config`, `--json` and `--debug`; the last shows where errors come from."""

    @click.option("--config", "config_path", metavar="FILE", help="Configuration to use.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
    @click.option("--debug", is_flag=True, help="Show tracebacks and details.")
    @functools.wraps(function)
    def wrapped(*, debug: bool, **rest: Any) -> Any:
        try:
            return function(debug=debug, **rest)
        except click.exceptions.Exit:
            raise
        except Exception as error:
            if debug:
                print_traceback(error)
            raise

    return wrapped


def command_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the shared options, and hand it an App."""

    @shared_options
    @functools.wraps(function)
    def wrapped(config_path: str | None, *, as_json: bool, debug: bool, **rest: Any) -> Any:
        return function(App(config_path, as_json=as_json, debug=debug), **rest)

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
