"""The `floodmark` command-line program."""

import gc
import os
import re
import signal
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Any

import click

from floodmark import __version__
from floodmark.cli.lazy import LazyGroup
from floodmark.cli.log import Log
from floodmark.cli.signals import Terminated
from floodmark.errors import ExitCode, FloodmarkError
from floodmark.model.notice import Notice
from floodmark.model.timestamps import utc_now

# Imports create many objects that stay: Python's default of 700 looks through them repeatedly.
_OBJECTS_BEFORE_COLLECTING = 50_000


class Program(LazyGroup):
    """The root group. Prints a line break after Ctrl-C only on a terminal, which echoed it."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; handle Ctrl-C before click does."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if sys.stderr.isatty():
                click.echo(err=True)
            raise click.Abort from error


@click.group(
    cls=Program,
    lazy={
        "sync": (
            "floodmark.cli.sync:sync",
            "Sync tables from MySQL to the lake and the warehouse.",
        ),
        "status": ("floodmark.cli.status:status", "Show the state of every table, worst first."),
        "runs": ("floodmark.cli.runs:runs", "List the recorded runs, or show one."),
        "serve": ("floodmark.cli.serve:serve", "Serve a page with the state of every table."),
        "reconcile": (
            "floodmark.cli.reconcile:reconcile",
            "Make the warehouse equal to the source, deletes included.",
        ),
        "backfill": (
            "floodmark.cli.backfill:backfill",
            "Read a range of rows again, and replace them in the warehouse.",
        ),
        "takeover": (
            "floodmark.cli.takeover:takeover",
            "Take over tables that another tool has filled.",
        ),
        "watermark": ("floodmark.cli.watermark:watermark", "Inspect and change watermarks."),
        "recover": ("floodmark.cli.recover:recover", "Restore lost state from the mirror."),
        "drill": ("floodmark.cli.drill:drill", "Rehearse recovery on a copy of the state."),
        "s3clean": ("floodmark.cli.s3clean:s3clean", "List and remove data files in the lake."),
        "spark": ("floodmark.cli.spark:spark", "Inspect and stop background Spark sessions."),
        "init": ("floodmark.cli.init:init", "Write a commented configuration file."),
        "completion": ("floodmark.cli.completion:completion", "Print a shell completion script."),
        "schema": ("floodmark.cli.schema:schema", "Print the JSON schema of the configuration."),
        "demo": ("floodmark.cli.demo:demo", "Run a self-contained demo (about a minute)."),
        "doctor": ("floodmark.cli.doctor:doctor", "Check the set-up and suggest fixes."),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: " + ", ".join(f"{code:d} {code.meaning}" for code in ExitCode) + ".",
)
@click.version_option(__version__, prog_name="floodmark")
def cli() -> None:
    """Keep an analytics warehouse in step with MySQL, driven by watermarks."""


def main(arguments: list[str] | None = None, *, not_forked: str | None = None) -> None:
    """Run the program and exit with its exit code.

    `not_forked` is why the fork server did not, if there is one.
    """
    os.umask(0o077)  # also for temporary files of DuckDB and Spark, which contain data
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)
    code = run(arguments, not_forked=not_forked)
    if "duckdb" not in sys.modules:  # which would list what is not collected as leaked
        gc.freeze()  # at exit, Python would look for garbage among all that was imported
    sys.exit(code)


def run(arguments: list[str] | None = None, *, not_forked: str | None = None) -> int:
    """Run the program; print every error as one line with a hint, and return an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")  # print '?' rather than fail
    log = Log(utc_now, as_json=_wants_json_log(sys.argv[1:] if arguments is None else arguments))
    log.not_forked = not_forked

    def fail(message: str, hint: str | None, code: int) -> int:
        with suppress(OSError):  # stderr is gone; the exit code remains
            log.write(Notice("error", message, "failed", hint=hint, facts={"exit_code": int(code)}))
        return code

    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # handled from here on
        return int(cli.main(arguments, standalone_mode=False, obj=log) or ExitCode.DONE)
    except FloodmarkError as error:
        return fail(error.message, error.hint, error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return ExitCode.USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "floodmark"
        message = error.format_message().removesuffix(".")
        return fail(message, f"see {command} --help", ExitCode.USAGE)
    except click.ClickException as error:
        return fail(error.format_message(), None, ExitCode.FAILED)
    except (click.Abort, KeyboardInterrupt):
        return fail("stopped", None, ExitCode.INTERRUPTED)
    except Terminated:
        return fail("stopped", None, ExitCode.TERMINATED)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return fail(
            f"{place}{error.strerror or error}", "--debug shows the traceback", ExitCode.FAILED
        )
    except Exception as error:  # noqa: BLE001 - print unexpected errors as one line, too
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        message = f"unexpected {type(error).__name__}: {reason}"
        return fail(message, "--debug shows the traceback; please report it", ExitCode.FAILED)


def _wants_json_log(arguments: list[str]) -> bool:
    """Find `--log-format` before parsing, so that usage errors follow it, too."""
    given: list[str] = re.findall(r"--log-format[ =](\w+)", " ".join(arguments))
    return (given or [os.environ.get("FLOODMARK_LOG_FORMAT", "")])[-1] == "json"
