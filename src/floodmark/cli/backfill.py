"""`floodmark backfill`: read a range of rows again, and replace them in the warehouse."""

import click

from floodmark.api.results import HELD_BACK, TableResult, failure_of, notices_of, reason_of
from floodmark.cli.app import App, command_options, table_option
from floodmark.cli.library_logging import forwarding_library_logs
from floodmark.cli.signals import sigterm_raises
from floodmark.cli.terminal import entry


@click.command()
@table_option(required=True)
@click.option("--from", "start", metavar="VALUE", help="First cursor value to read again.")
@click.option(
    "--to", "end", metavar="VALUE", help="Last cursor value; by default the table's position."
)
@click.option(
    "--restart",
    is_flag=True,
    help="Read the whole range, even if an earlier backfill of it was interrupted.",
)
@click.option("--dry-run", is_flag=True, help="Estimate the rows; change nothing.")
@command_options
def backfill(
    app: App,
    names: tuple[str, ...],
    start: str | None,
    end: str | None,
    *,
    restart: bool,
    dry_run: bool,
) -> int:
    """Read a range of rows again, and replace what the warehouse holds under their keys.

    The position does not move. If it is interrupted, the same command continues.
    """
    with sigterm_raises(), forwarding_library_logs(app.report), app.project:
        result = app.project.backfill(names, start=start, end=end, restart=restart, dry_run=dry_run)
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
    """Describe the result of a table in one line."""
    name, found = result.table_name, result.backfill
    if result.status == HELD_BACK:
        return entry("note", f"{name}: held back: {result.held_back}")
    if result.failed or found is None:
        return entry("failed", f"{name}: {reason_of(result)}")
    loaded = f", {result.loaded_rows:,} loaded" if not found.dry_run else ""
    return entry("ok", f"{name}: {found}{loaded}")
