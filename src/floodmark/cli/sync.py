"""`floodmark sync`: bring the lake and the warehouse up to date."""

import resource
import time
from collections.abc import Callable
from typing import Any, Literal

import click

from floodmark.api.results import SyncResult
from floodmark.cli.app import App, command_options, complete, table_option
from floodmark.cli.library_logging import forwarding_library_logs
from floodmark.cli.metrics import Meter
from floodmark.cli.signals import sigterm_raises
from floodmark.cli.sync_every import sync_every
from floodmark.cli.sync_plan import plan_value, show_plan, show_schema
from floodmark.cli.sync_result import ResultPrinter
from floodmark.errors import ExitCode, UsageError
from floodmark.model.durations import parse_duration
from floodmark.model.run import Strategy

MOST_DIGITS = 18


@click.command()
@table_option(required=False)
@click.option(
    "-p",
    "--pipeline",
    "pipelines",
    multiple=True,
    shell_complete=complete("pipelines"),
    help="Sync all tables of this pipeline; may be repeated.",
)
@click.option("--backup-only", is_flag=True, help="Only stage 1: MySQL to the lake.")
@click.option(
    "--redshift-only",
    "--load-only",
    "load_only",
    is_flag=True,
    help="Only stage 2: the lake to the warehouse.",
)
@click.option("--limit", "limit_text", metavar="N", help="At most N rows per table in stage 1.")
@click.option(
    "--strategy",
    type=click.Choice(["sequential", "inter-table", "intra-table"]),
    default="intra-table",
    show_default=True,
    help="One table after another, several tables in parallel, or many windows of one table in"
    " parallel.",
)
@click.option(
    "--verify-data",
    "verify",
    is_flag=False,
    flag_value="new",
    type=click.Choice(["new", "all"]),
    help="Compare source and target: rows not verified yet, or with =all every row.",
)
@click.option(
    "--repair", is_flag=True, help="With --verify-data: repair the rows of the target that differ."
)
@click.option(
    "--reconcile",
    is_flag=True,
    help="Also reconcile the tables: find deleted and differing rows, and repair the target.",
)
@click.option("--adopt", is_flag=True, help="Also load Parquet files written by older systems.")
@click.option("--adopt-from", metavar="FOLDER", help="Folder in the lake with the files to adopt.")
@click.option(
    "--every", "every_text", metavar="SPAN", help="Repeat at this interval (30s, 5m, 1h)."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="With --every: serve metrics on this port; 0 picks a free port.",
)
@click.option(
    "--metrics-host",
    metavar="HOST",
    help="Address for --metrics-port, 127.0.0.1 by default; any other needs a token.",
)
@click.option(
    "--metrics-token-file",
    metavar="FILE",
    help="File with the token that Prometheus must send; or set FLOODMARK_METRICS_TOKEN.",
)
@click.option(
    "--metrics-file", metavar="FILE", help="Write metrics to this file, for node_exporter."
)
@click.option("--dry-run", is_flag=True, help="Show the plan without changing anything.")
@click.option("-q", "--quiet", is_flag=True, help="Print problems only; nothing if all is well.")
@command_options
def sync(
    app: App,
    names: tuple[str, ...],
    pipelines: tuple[str, ...],
    limit_text: str | None,
    strategy: Strategy,
    verify: Literal["new", "all"] | None,
    adopt_from: str | None,
    every_text: str | None,
    metrics_port: int | None,
    metrics_host: str | None,
    metrics_token_file: str | None,
    metrics_file: str | None,
    *,
    backup_only: bool,
    load_only: bool,
    repair: bool,
    reconcile: bool,
    adopt: bool,
    dry_run: bool,
    quiet: bool,
) -> int:
    """Read new and changed rows from MySQL into the lake, and load them into the warehouse."""
    if backup_only and load_only:
        raise UsageError("--backup-only and --redshift-only cannot be combined")
    if load_only and limit_text is not None:
        raise UsageError("--limit applies to stage 1, which --redshift-only skips")
    if verify and (backup_only or dry_run):
        other = "--backup-only" if backup_only else "--dry-run"
        raise UsageError(f"--verify-data compares loaded rows, and {other} loads nothing")
    if repair and not verify:
        raise UsageError("--repair repairs what --verify-data finds", hint="add --verify-data")
    if reconcile and (backup_only or load_only or dry_run or limit_text is not None):
        raise UsageError(
            "--reconcile follows a whole sync, and cannot be combined with --backup-only,"
            " --redshift-only, --limit or --dry-run",
            hint="'floodmark reconcile --dry-run' shows what it would do",
        )
    adopt = adopt or adopt_from is not None
    if adopt and not load_only:
        raise UsageError("--adopt applies to stage 2 only", hint="add --redshift-only")
    if every_text is not None and (dry_run or adopt):
        raise UsageError(f"{'--dry-run' if dry_run else '--adopt'} and --every cannot be combined")
    if metrics_port is not None and every_text is None:
        raise UsageError("--metrics-port needs --every", hint="use --metrics-file")
    if metrics_port is None and (metrics_host or metrics_token_file) is not None:
        option = "--metrics-host" if metrics_host is not None else "--metrics-token-file"
        raise UsageError(f"{option} needs --metrics-port")
    if metrics_file is not None and dry_run:
        raise UsageError("--metrics-file and --dry-run cannot be combined")
    every = parse_duration(every_text, like="30s, 5m or 1h") if every_text is not None else None
    options: dict[str, Any] = {
        "stages": ["extract"] if backup_only else ["load"] if load_only else ["extract", "load"],
        "strategy": strategy,
        "limit": _limit(limit_text),
        "adopt": adopt,
        "adopt_from": adopt_from,
    }
    if not names and not pipelines:
        raise UsageError("nothing to sync", hint="name tables with -t, or a pipeline with -p")
    tables = app.project.select_tables(names, pipelines)
    if adopt_from and len(tables) > 1:
        raise UsageError("--adopt-from takes exactly one table", hint="name one table with -t")
    if dry_run:
        plans = app.project.plan(names, pipelines, **options)
        text = "\n".join([*map(show_plan, plans), *show_schema(plans)])
        app.print(text, list(map(plan_value, plans)))
        return ExitCode.DONE

    def run() -> SyncResult:
        with app.progress.running():
            return app.project.sync(
                names,
                pipelines,
                verify=verify,
                repair=repair,
                reconcile=reconcile,
                every=every,
                **options,
            )

    app.log.quiet = quiet

    with (
        Meter(
            app,
            tables,
            path=metrics_file,
            port=metrics_port,
            host=metrics_host,
            token_path=metrics_token_file,
        ) as meter,
        sigterm_raises(),
        forwarding_library_logs(app.report),
        app.project,
    ):
        if every is None:
            return sync_once(app, run, meter, quiet=quiet)
        return sync_every(app, run, meter, every)


def sync_once(app: App, run: Callable[[], SyncResult], meter: Meter, *, quiet: bool) -> int:
    """Sync, print each table's result, and return the exit code."""
    printer, began = ResultPrinter(app, quiet=quiet), time.monotonic()
    app.on_result = printer.show
    app.project.expect_one_run()
    result = run()
    meter.measure(result.tables)
    app.project.close()
    if app.as_json:
        outcome = {
            "session_id": result.session_id,
            "driver_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "tables": result.tables,
        }
        app.print("", outcome)
    printer.finish(result.tables, time.monotonic() - began)
    return result.exit_code


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) == 0:
        raise UsageError(f"limit {text!r} is not a positive number of rows")
    return int(text)
