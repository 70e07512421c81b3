"""Shared by all commands: options, configuration, project and output."""

import functools
import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from floodmark.api.callbacks import OnResult
from floodmark.api.project import Project
from floodmark.cli.log import Log
from floodmark.cli.progress import ProgressLine
from floodmark.cli.terminal import print_text
from floodmark.config.loading import load_config
from floodmark.errors import UsageError
from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.model.timestamps import utc_now

if TYPE_CHECKING:
    from floodmark.api.lake import Lake
    from floodmark.api.watermarks import Watermarks


class App:
    """One invocation of the program: its project and its output."""

    def __init__(self, config_path: str | None, log: Log, *, as_json: bool) -> None:
        self.as_json = as_json
        self.log = log
        self.report = log.write
        self.progress = ProgressLine(log, as_json=as_json)
        self.on_result: OnResult = lambda _result: None
        self.project = Project(
            load_config(config_path, os.environ),
            on_notice=log.write,
            on_progress=self.progress.show,
            on_result=lambda result: self.on_result(result),
            verbose=log.debug,
            one_command=True,
        )
        self.config = self.project.config
        log.session = lambda: self.project.session_id

    @property
    def watermarks(self) -> "Watermarks":
        """The watermarks of the project."""
        return self.project.watermarks

    @property
    def lake(self) -> "Lake":
        """The data files of the project."""
        return self.project.lake

    def now(self) -> datetime:
        """Return the current time."""
        return utc_now()

    def warn(self, message: str) -> None:
        """Show a warning on stderr."""
        self.report(Notice("warning", message))

    def print(self, text: str, value: object) -> None:
        """Print a result: text, or with --json a value."""
        print_result(text, value, as_json=self.as_json)

    def table(self, text: str) -> TableName:
        """Resolve one `-t`; UsageError if it matches no table, or more than one."""
        return self.project.find_table(text)

    def tables(self, texts: tuple[str, ...]) -> list[TableName]:
        """Resolve every `-t` before any work starts."""
        return list(dict.fromkeys(map(self.table, texts)))


def print_result(text: str, value: object, *, as_json: bool) -> None:
    """Print a result: text, or with --json a value."""
    if as_json:
        data = value if isinstance(value, bytes) else msgspec.json.encode(value)
        text = msgspec.json.format(data, indent=2).decode()
    print_text(text, exact=as_json)


def shared_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all commands have, and pass the log."""

    @click.option("--config", "config_path", metavar="FILE", help="Configuration file.")
    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        envvar="FLOODMARK_LOG_FORMAT",
        default="text",
        show_default=True,
        help="Format of stderr: text, or one JSON object per line.",
        expose_value=False,  # read by main.run before click parses anything
    )
    @click.option("--debug", is_flag=True, help="Show tracebacks and details.")
    @click.pass_obj
    @functools.wraps(function)
    def wrapped(log: Log, /, *, debug: bool, **rest: Any) -> Any:
        if debug:
            log.show_details()
        try:
            return function(log=log, **rest)
        except click.exceptions.Exit:
            raise
        except Exception as error:
            log.traceback(error)
            raise

    return wrapped


def command_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options, and pass an App."""

    @shared_options
    @functools.wraps(function)
    def wrapped(config_path: str | None, *, log: Log, as_json: bool, **rest: Any) -> Any:
        app = App(config_path, log, as_json=as_json)
        try:
            return function(app, **rest)
        finally:
            app.project.finish_mirroring()

    return wrapped


def complete(kind: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Return a completer for a parameter, imported when the shell calls it."""

    def names(ctx: click.Context, parameter: click.Parameter, typed: str) -> Any:
        from floodmark.cli import completion

        return getattr(completion, kind)(ctx, parameter, typed)

    return names


def table_option(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `-t`, which may be repeated."""
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
    """Ask on a terminal; elsewhere raise UsageError unless forced."""
    if force:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(refusal, hint="add --force if that is what you want")
    click.confirm(question, abort=True, err=True)
