"""`floodmark reconcile`: make the warehouse equal to the source, deletes included."""

import click

from floodmark.api.results import HELD_BACK, TableResult, failure_of, notices_of, reason_of
from floodmark.cli.app import App, command_options, complete, table_option
from floodmark.cli.library_logging import forwarding_library_logs
from floodmark.cli.signals import sigterm_raises
from floodmark.cli.terminal import entry, fold
from floodmark.errors import UsageError
from floodmark.model.durations import parse_duration
from floodmark.model.reconcile_policy import Deletes
from floodmark.model.reconcile_result import ReconcileResult
from floodmark.model.run import Strategy

MOST_SHOWN = 20


@click.command()
@table_option(required=False)
@click.option(
    "-p",
    "--pipeline",
    "pipelines",
    multiple=True,
    shell_complete=complete("pipelines"),
    help="Reconcile all tables of this pipeline; may be repeated.",
)
@click.option("--from", "start", metavar="VALUE", help="Only rows from this cursor value on.")
@click.option("--to", "end", metavar="VALUE", help="Only rows up to this cursor value.")
@click.option(
    "--deletes",
    type=click.Choice(["hard", "soft", "report"]),
    help="Remove deleted rows, mark them, or only report them; by default as configured.",
)
@click.option(
    "--allow-deletes",
    type=click.IntRange(min=0),
    metavar="N",
    help="Allow N deletes, if that is more than 'max_deletes'.",
)
@click.option(
    "--budget",
    "budget_text",
    metavar="LIMIT",
    help="Limit per table: a time (30s, 5m) or a number of segments (100). The next run continues"
    " where this one stopped.",
)
@click.option(
    "--strategy",
    type=click.Choice(["sequential", "inter-table", "intra-table"]),
    default="intra-table",
    show_default=True,
    help="One table after another, or several tables in parallel.",
)
@click.option("--dry-run", is_flag=True, help="Find and show differences; change nothing.")
@command_options
def reconcile(
    app: App,
    names: tuple[str, ...],
    pipelines: tuple[str, ...],
    start: str | None,
    end: str | None,
    deletes: Deletes | None,
    allow_deletes: int | None,
    budget_text: str | None,
    strategy: Strategy,
    *,
    dry_run: bool,
) -> int:
    """Find rows that were deleted in the source, or differ in the target, and repair the target."""
    if not names and not pipelines:
        raise UsageError("nothing to reconcile", hint="name tables with -t, or a pipeline with -p")
    seconds, segments = _budget(budget_text)
    with sigterm_raises(), forwarding_library_logs(app.report), app.project:
        result = app.project.reconcile(
            names,
            pipelines,
            start=start,
            end=end,
            deletes=deletes,
            allow_deletes=allow_deletes,
            seconds=seconds,
            segments=segments,
            dry_run=dry_run,
            strategy=strategy,
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
    found, name = result.reconciliation, result.table_name
    if result.status == HELD_BACK:
        return entry("note", f"{name}: held back: {result.held_back}")
    if found is None:
        return entry("failed", f"{name}: {reason_of(result)}")
    state = "failed" if result.failed else "note" if found.skipped else "ok"
    return "\n".join([entry(state, f"{name}: {found}"), *show_keys(found)])


def show_keys(found: ReconcileResult) -> list[str]:
    """Return lines with some of the keys that differ."""
    lines = [
        fold(f"{kind}: {', '.join(f'{n} = {v!r}' for n, v in key.items())}", first=4, indent=8)
        for kind, key in found.sample(MOST_SHOWN)
    ]
    if found.differences > len(lines):
        lines.append(f"    … {len(lines):,} of {found.differences:,} keys; --json has all of them")
    return lines


def _budget(text: str | None) -> tuple[float | None, int | None]:
    """Parse a budget: seconds, or segments."""
    if text is None:
        return None, None
    if text.isdecimal() and int(text) > 0:
        return None, int(text)
    return parse_duration(text, like="30s or 5m, or a number of segments").total_seconds(), None
