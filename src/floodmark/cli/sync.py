"""`floodmark sync`: bring the lake and the warehouse up to date."""

import resource
from typing import Literal

import click

from floodmark.cli.app import App, command_options, complete, table_option
from floodmark.cli.metrics import Meter
from floodmark.cli.stopping import sigterm_raises
from floodmark.cli.sync_adopt import adoption_of
from floodmark.cli.sync_every import sync_every
from floodmark.cli.sync_result import HELD_BACK, failure, remarks, show_result
from floodmark.cli.sync_round import Syncing
from floodmark.errors import ExitCode, UsageError
from floodmark.model.durations import parse_duration
from floodmark.model.run import Strategy
from floodmark.model.table import TableName
from floodmark.sync.spark import SparkEngine
from floodmark.sync.strategies import exit_code

MOST_DIGITS = 18


@click.command()
@table_option(required=False)
@click.option(
    "-p",
    "--pipeline",
    "pipelines",
    multiple=True,
    shell_complete=complete("pipelines"),
    help="All tables of a pipeline.",
)
@click.option("--backup-only", is_flag=True, help="Stage 1 alone: MySQL to the lake.")
@click.option("--redshift-only", "--load-only", "load_only", is_flag=True, help="Stage 2 alone.")
@click.option("--limit", "limit_text", metavar="N", help="At most N rows a table in stage 1.")
@click.option(
    "--strategy",
    type=click.Choice(["sequential", "inter-table", "intra-table"]),
    default="intra-table",
    show_default=True,
    help="Tables one after another, several at once, or many windows of one table at once.",
)
@click.option(
    "--verify-data",
    "verify",
    is_flag=False,
    flag_value="new",
    type=click.Choice(["new", "all"]),
    help="Compare source and target: what is not verified yet, or with =all everything.",
)
@click.option("--adopt", is_flag=True, help="Load Parquet files of older systems, too.")
@click.option("--adopt-from", metavar="FOLDER", help="The folder of the lake that they lie in.")
@click.option("--every", "every_text", metavar="SPAN", help="Again and again: 30s, 5m, 1h …")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="With --every: serve metrics on this port of 127.0.0.1; 0 takes a free one.",
)
@click.option("--metrics-file", metavar="FILE", help="Write metrics here, for node_exporter.")
@click.option("--dry-run", is_flag=True, help="Show the plan, change nothing.")
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
    metrics_file: str | None,
    *,
    backup_only: bool,
    load_only: bool,
    adopt: bool,
    dry_run: bool,
) -> int:
    """Bring everything new from MySQL into the lake and on into the warehouse."""
    if backup_only and load_only:
        raise UsageError("--backup-only and --redshift-only exclude each other")
    if load_only and limit_text is not None:
        raise UsageError("--limit is for stage 1, which --redshift-only leaves out")
    if verify and (backup_only or dry_run):
        other = "--backup-only" if backup_only else "--dry-run"
        raise UsageError(f"--verify-data compares what was loaded, and {other} loads nothing")
    adopt = adopt or adopt_from is not None
    if adopt and not load_only:
        raise UsageError("--adopt is for stage 2 alone", hint="add --redshift-only")
    if every_text is not None and (dry_run or adopt):
        raise UsageError(f"{'--dry-run' if dry_run else '--adopt'} and --every exclude each other")
    if metrics_port is not None and every_text is None:
        raise UsageError("--metrics-port is for --every", hint="use --metrics-file")
    if metrics_file is not None and dry_run:
        raise UsageError("--metrics-file and --dry-run exclude each other")
    every = parse_duration(every_text, like="30s, 5m or 1h") if every_text is not None else None
    limit = _limit(limit_text)
    tables = _tables(app, names, pipelines)
    if adopt_from and len(tables) > 1:
        raise UsageError("--adopt-from is the folder of one table", hint="name one with -t")
    syncing = Syncing(
        app=app,
        engine=SparkEngine(app.config.settings.spark, app.report, verbose=app.log.debug),
        tables=tables,
        # Whatever is wrong with a connection is said before anything is touched.
        sources={t: app.mysql(t.scope) for t in tables} if verify or not load_only else {},
        targets={} if backup_only else {table: app.target(table) for table in tables},
        strategy=strategy,
        limit=limit,
        load_only=load_only,
        verify=verify,
        adoption=adoption_of(app, adopt_from) if adopt else None,
        owners={table: app.mysql(table.scope) for table in tables} if adopt else {},
    )
    if dry_run:
        syncing.show_plan()
        return ExitCode.DONE
    with (
        Meter(app, tables, path=metrics_file, port=metrics_port) as meter,
        sigterm_raises(),
    ):
        if every is None:
            return sync_once(app, syncing, meter)
        return sync_every(app, syncing, meter, every)


def sync_once(app: App, syncing: Syncing, meter: Meter) -> int:
    """Sync, say what was done, and return the exit code."""
    try:
        results = syncing.run()
        meter.measure(results)
    finally:
        syncing.engine.stop()
    outcome = {
        "session_id": app.run.session_id,
        "driver_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "tables": results,
    }
    app.print("\n".join(map(show_result, results)), outcome)
    for result in results:
        for remark in remarks(result):
            said = remark.event == result.status == HELD_BACK  # by the table's line
            if app.log.as_json or not said:
                app.report(remark)
        if result.failed and app.log.as_json:
            app.report(failure(result))
        elif result.hint:
            app.log.hint(result.hint)
    return exit_code(results)


def _tables(app: App, names: tuple[str, ...], pipelines: tuple[str, ...]) -> list[TableName]:
    if not names and not pipelines:
        raise UsageError("nothing to sync", hint="name tables with -t, or a pipeline with -p")
    known = app.config.settings.pipelines
    for pipeline in pipelines:
        if pipeline not in known:
            raise UsageError(
                f"unknown pipeline {pipeline!r}", hint="there are " + (", ".join(known) or "none")
            )
    listed = [t for t, (pipeline, _) in app.config.tables.items() if pipeline in pipelines]
    tables = list(dict.fromkeys([*app.tables(names), *listed]))
    if not tables:
        raise UsageError(
            f"pipeline {pipelines[0]!r} lists no tables",
            hint="list some under its 'tables:', as 'schema.table: {}'",
        )
    for table in tables:
        if table not in app.config.tables:
            raise UsageError(f"{table} is in no pipeline", hint="list it under 'pipelines:'")
    return tables


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) == 0:
        raise UsageError(f"limit {text!r} is not a positive number of rows")
    return int(text)
