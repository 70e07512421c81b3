"""The program `floodmark`."""

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


class Program(LazyGroup):
    """All commands. Ctrl-C leaves an empty line only where a terminal has echoed it."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and answer Ctrl-C before click does."""
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
            "From MySQL to the lake and the warehouse.",
        ),
        "watermark": ("floodmark.cli.watermark:watermark", "See and steer every position."),
        "s3clean": ("floodmark.cli.s3clean:s3clean", "List and remove data files in the lake."),
        "init": ("floodmark.cli.init:init", "Write a commented configuration."),
        "completion": ("floodmark.cli.completion:completion", "Print a script for the shell."),
        "schema": ("floodmark.cli.schema:schema", "Print the configuration's JSON schema."),
        "demo": ("floodmark.cli.demo:demo", "Tell the story on embedded parts, in a minute."),
        "doctor": ("floodmark.cli.doctor:doctor", "Check the set-up and suggest fixes."),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: " + ", ".join(f"{code:d} {code.meaning}" for code in ExitCode) + ".",
)
@click.version_option(__version__, prog_name="floodmark")
def cli() -> None:
    """Keep an analytics warehouse in step with MySQL, driven by watermarks."""


def main(arguments: list[str] | None = None) -> None:
    """Run the program and end the process with its exit code."""
    os.umask(0o077)  # also for what DuckDB and Spark write on the way: it holds data
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the program; every error becomes a line that names it, a hint, and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")  # better a '?' than no answer
    log = Log(utc_now, as_json=_wants_json_log(sys.argv[1:] if arguments is None else arguments))

    def fail(message: str, hint: str | None, code: int) -> int:
        with suppress(OSError):  # then there is nobody to tell, and the exit code has to do
            log.write(Notice("error", message, "failed", hint=hint, facts={"exit_code": int(code)}))
        return code

    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # from here on it is answered
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
        return fail(f"{place}{error.strerror or error}", "--debug shows where", ExitCode.FAILED)
    except Exception as error:  # noqa: BLE001 - whatever was not foreseen is still one line
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        message = f"unexpected {type(error).__name__}: {reason}"
        return fail(message, "--debug shows where; please report it", ExitCode.FAILED)


def _wants_json_log(arguments: list[str]) -> bool:
    """Look for `--log-format` by hand, so that also what cannot be parsed is complained of so."""
    given: list[str] = re.findall(r"--log-format[ =](\w+)", " ".join(arguments))
    return (given or [os.environ.get("FLOODMARK_LOG_FORMAT", "")])[-1] == "json"
