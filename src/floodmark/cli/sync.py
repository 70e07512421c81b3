"""`floodmark sync`: bring the lake and the warehouse up to date."""

import os
import resource
from functools import partial
from typing import Literal

import click

from floodmark.cli.app import App, command_options, complete, table_option
from floodmark.cli.loading import loading_of
from floodmark.cli.progress import ProgressLine
from floodmark.cli.sync_adopt import adopt_table, adoption_of, mention_foreign_files
from floodmark.cli.sync_plan import show_plans
from floodmark.cli.sync_result import explain, show_result
from floodmark.cli.verification import verification_of
from floodmark.errors import UsageError
from floodmark.model.position import Position
from floodmark.model.run import Strategy
from floodmark.model.table import TableName
from floodmark.sync.extraction import Extraction, extract_table
from floodmark.sync.loading import load_after
from floodmark.sync.result import TableResult
from floodmark.sync.spark import SparkEngine
from floodmark.sync.strategies import exit_code, run_tables
from floodmark.sync.tunnels import open_tunnels
from floodmark.sync.verification import verify_after

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
    if (adopt or adopt_from) and not load_only:
        raise UsageError("--adopt is for stage 2 alone", hint="add --redshift-only")
    limit = _limit(limit_text)
    tables = _tables(app, names, pipelines)
    if adopt_from and len(tables) > 1:
        raise UsageError("--adopt-from is the folder of one table", hint="name one with -t")
    settings = app.config.settings
    # Whatever is wrong with a connection is said before anything is touched.
    sources = {t: app.mysql(t.scope) for t in tables} if verify or not load_only else {}
    targets = {} if backup_only else {table: app.target(table) for table in tables}
    adoption = adoption_of(app, adopt_from) if adopt or adopt_from else None
    owners = {table: app.mysql(table.scope) for table in tables} if adoption else {}
    start = Position(app.start_of_new_tables()[0])
    folder = os.path.dirname(app.config.path)
    read_by_workers = [*sources.values(), *(targets.values() if verify else ())]
    tunnels = click.get_current_context().with_resource(
        open_tunnels(
            read_by_workers, [*targets.values(), *owners.values()], settings.spark, folder=folder
        )
    )
    engine = SparkEngine(settings.spark, app.report, verbose=app.debug)
    loadings = {
        table: loading_of(app, table, tunnels, engine, load_only=load_only) for table in targets
    }
    if dry_run:
        at_once = settings.extraction.windows_at_once(strategy)
        show_plans(app, tables, sources, loadings, adoption, tunnels, start, limit, at_once)
        return 0
    progress = ProgressLine(app)

    def work(table: TableName) -> TableResult:
        result = TableResult(table_name=str(table))
        if not load_only:
            with tunnels.through(sources[table]) as connection:
                extraction = Extraction(
                    store=app.store,
                    connection=connection,
                    settings=settings.extraction,
                    lake=app.config.lake,
                    engine=engine,
                    strategy=strategy,
                    session_id=app.run.session_id,
                    default_start=start,
                    limit=limit,
                    progress=progress.show,
                )
                result = extract_table(extraction, table, app.cursor_columns(table))
        if load_only and adoption is None:
            mention_foreign_files(app, table)
        if adoption is not None:
            with tunnels.through(owners[table]) as connection:
                result = adopt_table(app, adoption, table, connection)
        return load_after(result, loadings[table], table) if table in loadings else result

    def compare(table: TableName) -> TableResult:
        result = done[table]
        if result.failed:
            return result
        with verification_of(app, table, engine, tunnels, everything=verify == "all") as how:
            return verify_after(result, how, table, app.cursor_columns(table))

    at_once = settings.extraction.tables_at_once if strategy == "inter-table" else 1
    run = partial(run_tables, tables, failed=app.show_traceback, at_once=at_once, stop=engine.stop)
    try:
        results = run(work)
        if verify:
            # After all loads: who reads a DuckDB file keeps others from writing to it.
            done = dict(zip(tables, results, strict=True))
            results = run(compare)
    finally:
        progress.end()
        engine.stop()
    text = "\n".join(map(show_result, results))
    outcome = {
        "session_id": app.run.session_id,
        "driver_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "tables": results,
    }
    app.print(text, outcome)
    explain(app, results)
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
