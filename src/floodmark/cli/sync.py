"""`floodmark sync`: bring the lake and the warehouse up to date."""

import os

import click

from floodmark.cli.app import App, command_options, table_option
from floodmark.cli.progress import ProgressLine
from floodmark.cli.watermark_inspect import default_start
from floodmark.errors import UsageError
from floodmark.model.notice import Notice
from floodmark.model.position import START, Position
from floodmark.model.run import Strategy
from floodmark.model.table import TableName
from floodmark.sources.connection import connect
from floodmark.sources.tunnel import Tunnels
from floodmark.sync.extraction import Extraction, extract_table
from floodmark.sync.loading import Loading, load_after
from floodmark.sync.plan import chunks_of, plan_table
from floodmark.sync.result import TableResult
from floodmark.sync.spark import SparkEngine
from floodmark.sync.strategies import exit_code, run_tables
from floodmark.sync.tunnels import open_tunnels
from floodmark.warehouse.opening import open_target


@click.command()
@table_option(required=False)
@click.option("-p", "--pipeline", "pipelines", multiple=True, help="All tables of a pipeline.")
@click.option("--backup-only", is_flag=True, help="Stage 1 alone: MySQL to the lake.")
@click.option("--redshift-only", "--load-only", "load_only", is_flag=True, help="Stage 2 alone.")
@click.option("--limit", metavar="N", help="At most N rows a table in stage 1.")
@click.option(
    "--strategy",
    type=click.Choice(["sequential", "inter-table", "intra-table"]),
    default="intra-table",
    show_default=True,
    help="Tables one after another, several at once, or many windows of one table at once.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan, change nothing.")
@command_options
def sync(
    app: App,
    names: tuple[str, ...],
    pipelines: tuple[str, ...],
    limit: str | None,
    strategy: Strategy,
    *,
    backup_only: bool,
    load_only: bool,
    dry_run: bool,
) -> int:
    """Bring everything new from MySQL into the lake and on into the warehouse."""
    if backup_only and load_only:
        raise UsageError("--backup-only and --redshift-only exclude each other")
    if load_only and limit is not None:
        raise UsageError("--limit is for stage 1, which --redshift-only leaves out")
    most = _limit(limit)
    tables = _tables(app, names, pipelines)
    start = Position(default_start(app)[0])
    tunnels = click.get_current_context().with_resource(
        open_tunnels(
            [app.mysql(table.scope) for table in tables],
            app.config.settings.spark,
            folder=os.path.dirname(app.config.path),
        )
    )
    if dry_run:
        _show_plans(app, tunnels, tables, start, most)
        return 0
    progress = ProgressLine(app)
    engine = SparkEngine(app.config.settings.spark, app.report, verbose=app.debug)

    def extract(table: TableName) -> TableResult:
        with tunnels.through(app.mysql(table.scope)) as connection:
            extraction = Extraction(
                store=app.store,
                connection=connection,
                settings=app.config.settings.extraction,
                lake=app.config.lake,
                engine=engine,
                strategy=strategy,
                session_id=app.run.session_id,
                default_start=start,
                limit=most,
                progress=progress.show,
            )
            return extract_table(extraction, table, app.cursor_columns(table))

    def work(table: TableName) -> TableResult:
        extracted = TableResult(table_name=str(table)) if load_only else extract(table)
        return extracted if backup_only else load_after(extracted, _loading(app, table), table)

    at_once = app.config.settings.extraction.tables_at_once if strategy == "inter-table" else 1
    try:
        results = run_tables(tables, work, at_once=at_once)
    finally:
        progress.end()
        engine.stop()
    app.print("\n".join(map(_show, results)), {"session_id": app.run.session_id, "tables": results})
    _explain_failures(app, results)
    return exit_code(results)


def _tables(app: App, names: tuple[str, ...], pipelines: tuple[str, ...]) -> list[TableName]:
    if not names and not pipelines:
        raise UsageError("nothing to sync", hint="name tables with -t, or a pipeline with -p")
    known = app.config.settings.pipelines
    for pipeline in pipelines:
        if pipeline not in known:
            raise UsageError(f"unknown pipeline {pipeline!r}", hint="there are " + ", ".join(known))
    listed = [t for t, (pipeline, _) in app.config.tables.items() if pipeline in pipelines]
    tables = list(dict.fromkeys([*app.tables(names), *listed]))
    for table in tables:
        app.mysql(table.scope)  # refuse before anything is touched
    return tables


def _loading(app: App, table: TableName) -> Loading:
    target = app.config.connection(app.config.pipeline_of(table).target)
    return Loading(
        store=app.store,
        open_target=lambda: open_target(target, app.store.objects, app.config.lake),
        target_name=app.config.tables[table][1].target_name or table.table,
        session_id=app.run.session_id,
        batch_bytes=app.config.settings.loading.batch_mb * 1024 * 1024,
    )


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.lstrip("-").isdecimal() or int(text) <= 0:
        raise UsageError(f"limit {text!r} is not a positive number of rows")
    return int(text)


def _show(result: TableResult) -> str:
    parts = []
    if result.chunks:
        parts.append(
            f"{result.rows:,} rows in {result.files:,} files ({result.bytes / 1_000_000:,.1f} MB)"
            f" in {result.seconds:.1f} s, now at {result.end}"
        )
    elif result.start is not None:
        parts.append(f"nothing new since {result.start}")
    if result.loaded_manifests:
        parts.append(f"{result.loaded_rows:,} rows loaded in {result.load_seconds:.1f} s")
    elif result.start is None and not result.failed:
        parts.append("nothing to load")
    if result.failed:
        parts.append(str(result.error))
    mark = click.style("✗", fg="red") if result.failed else click.style("✓", fg="green")
    return f"{mark} {result.table_name}: {'; '.join(parts)}"


def _explain_failures(app: App, results: list[TableResult]) -> None:
    for result in results:
        for change in result.target_changes:
            app.report(Notice("info", f"{result.table_name}: {change}"))
        for warning in result.warnings:
            app.warn(warning)
        for column, count in result.zero_dates.items():
            app.warn(f"{result.table_name}: {count:,} zero or partial dates in {column}")
        if result.failed and result.hint:
            click.echo(f"{click.style('hint:', fg='cyan')} {result.hint}", err=True)


def _show_plans(
    app: App, tunnels: Tunnels, tables: list[TableName], start: Position, limit: int | None
) -> None:
    texts, values = [], []
    settings = app.config.settings.extraction
    for table in tables:
        watermark = app.store.get(table, mend=False)
        with tunnels.through(app.mysql(table.scope)) as local, connect(local) as session:
            plan = plan_table(
                session,
                table,
                app.cursor_columns(table),
                settings,
                position=watermark.position if watermark else START,
                default_start=start,
                limit=limit,
            )
            chunks = list(
                chunks_of(
                    session,
                    plan,
                    window_rows=settings.window_rows,
                    windows_per_chunk=settings.windows_per_chunk,
                    limit=limit,
                )
            )
        rows = sum(chunk.rows for chunk in chunks)
        windows = sum(len(chunk.windows) for chunk in chunks)
        end = chunks[-1].end if chunks else plan.start
        texts.append(
            f"{table}: cursor {plan.choice.cursor}, {plan.route.why}\n"
            f"    from {plan.start} to {end}:"
            f" {rows:,} rows in {windows:,} windows, {len(chunks):,} chunks"
        )
        values.append(
            {
                "table_name": str(table),
                "cursor": plan.choice.cursor.columns,
                "route": plan.route.why,
                "start": plan.start,
                "end": end,
                "rows": rows,
                "windows": windows,
                "chunks": len(chunks),
                "warnings": plan.warnings,
            }
        )
    app.print("\n".join(texts), values)
