"""What every command shares: options, configuration, the store, and where output goes."""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec

from floodmark.api.context import RunContext
from floodmark.api.project import Project
from floodmark.cli.log import Log
from floodmark.cli.progress import ProgressLine
from floodmark.cli.terminal import say
from floodmark.config.loading import load_config
from floodmark.errors import UsageError
from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.state.watermark_store import Run, WatermarkStore


class App:
    """One call of the program: a project, and where its output goes."""

    def __init__(self, config_path: str | None, log: Log, *, as_json: bool) -> None:
        self.as_json = as_json
        self.log = log
        self.report = log.write
        self.progress = ProgressLine(log, as_json=as_json)
        self.project = Project(
            load_config(config_path, os.environ),
            on_notice=log.write,
            on_progress=self.progress.show,
            verbose=log.debug,
        )
        self.config = self.project.config
        log.session = lambda: self.project.session_id

    @property
    def context(self) -> RunContext:
        """The run of this call."""
        return self.project.context

    @property
    def run(self) -> Run:
        """Who runs, and by which clock."""
        return self.context.run

    @property
    def store(self) -> WatermarkStore:
        """The watermarks."""
        return self.context.store

    def warn(self, message: str) -> None:
        """Show a warning on stderr."""
        self.report(Notice("warning", message))

    def print(self, text: str, value: object) -> None:
        """Print a result: text for people, or a value as JSON for programs."""
        print_result(text, value, as_json=self.as_json)

    def table(self, text: str) -> TableName:
        """Resolve what `-t` was given; UsageError if no table, or more than one, is meant."""
        return self.context.table(text)

    def tables(self, texts: tuple[str, ...]) -> list[TableName]:
        """Resolve every `-t`, before anything is done to any of them."""
        return self.context.tables(texts)


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
