"""`floodmark takeover`: take over tables that another tool has filled."""

import click

from floodmark.api.results import HELD_BACK, TableResult, failure_of, notices_of, reason_of
from floodmark.cli.app import App, command_options, complete, table_option
from floodmark.cli.library_logging import forwarding_library_logs
from floodmark.cli.reconcile import show_keys
from floodmark.cli.signals import sigterm_raises
from floodmark.cli.terminal import entry
from floodmark.errors import UsageError
from floodmark.model.durations import parse_duration


@click.command()
@table_option(required=False)
@click.option(
    "-p",
    "--pipeline",
    "pipelines",
    multiple=True,
    shell_complete=complete("pipelines"),
    help="Take over all tables of this pipeline; may be repeated.",
)
@click.option(
    "--margin",
    "margin_text",
    metavar="SPAN",
    default="1h",
    show_default=True,
    help="How far to step back from the greatest time that the warehouse holds: 30m, 1h, 2d …",
)
@click.option(
    "--skip-mismatches", is_flag=True, help="Take over tables that match, even if others do not."
)
@click.option("--dry-run", is_flag=True, help="Compare, and show the positions; change nothing.")
@command_options
def takeover(
    app: App,
    names: tuple[str, ...],
    pipelines: tuple[str, ...],
    margin_text: str,
    *,
    skip_mismatches: bool,
    dry_run: bool,
) -> int:
    """Take over tables that another tool has filled, without loading them again.

    Compares all tables with the warehouse first, and changes nothing if one does not match. Sets
    each position from the newest row in the warehouse, and reconciles. Tables that are synced
    already are left alone. If it is interrupted, the same command continues.
    """
    if not names and not pipelines:
        raise UsageError("nothing to take over", hint="name tables with -t, or a pipeline with -p")
    margin = parse_duration(margin_text, like="30m or 1h")
    with sigterm_raises(), forwarding_library_logs(app.report), app.project:
        result = app.project.takeover(
            names, pipelines, margin=margin, skip_mismatches=skip_mismatches, dry_run=dry_run
        )
    outcome = {"session_id": result.session_id, "tables": result.tables}
    app.print("\n".join(map(show_table, result.tables)), outcome)
    for table in result.tables:
        for notice in notices_of(table):
            if app.log.as_json or notice.event != HELD_BACK:
                app.report(notice)
        if table.failed and app.log.as_json:
            app.report(failure_of(table))
        elif table.hint:
            app.log.hint(table.hint)
    return result.exit_code


def show_table(result: TableResult) -> str:
    """Describe the result of a table in one line, and some of the keys that differ below it."""
    name, taken, found = result.table_name, result.takeover, result.reconciliation
    if result.status == HELD_BACK:
        return entry("note", f"{name}: held back: {result.held_back}")
    if taken is None or (result.failed and found is None):
        return entry("failed", f"{name}: {reason_of(result)}")
    state = "failed" if result.failed else "note" if taken.skipped else "ok"
    if found is None:
        return entry(state, f"{name}: {taken}")
    return "\n".join([entry(state, f"{name}: {taken}; {found}"), *show_keys(found)])
