"""`floodmark doctor`: check the set-up and suggest fixes."""

import click

from floodmark.api.doctor import Check
from floodmark.cli.app import App, command_options, table_option
from floodmark.cli.terminal import entry, fold, say, style
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model.formatting import counted


@click.command()
@table_option(required=False)
@click.option("--spark", "start_spark", is_flag=True, help="Start Spark too, and try a worker.")
@click.option("--break-lease", "break_it", is_flag=True, help="End the leases on the -t tables.")
@command_options
def doctor(app: App, names: tuple[str, ...], *, start_spark: bool, break_it: bool) -> None:
    """Check configuration, lake, sources, warehouses, tables and Spark; show who is at work."""
    if break_it and not names:
        raise UsageError("--break-lease needs to know whose", hint="name tables with -t")
    if break_it:
        for table in app.tables(names):
            app.project.watermarks.break_lease(str(table))
    checks = []
    for check in app.project.doctor(names or None, start_spark=start_spark):
        checks.append(check)
        if not app.as_json:
            say(_show(check))
    if app.as_json:
        app.print("", checks)
    wrong = sum(check.state == "failed" for check in checks)
    if wrong:
        raise FloodmarkError(f"{wrong} of {counted(len(checks), 'check')} failed")


def _show(check: Check) -> str:
    line = entry(check.state, f"{check.subject}: {check.finding}")
    if not check.hint:
        return line
    hint = fold(f"hint: {check.hint}", indent=6, first=4)
    return f"{line}\n{hint.replace('hint:', style('hint:', 'cyan'), 1)}"
