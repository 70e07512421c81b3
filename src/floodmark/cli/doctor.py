"""`floodmark doctor`: check the set-up and suggest fixes."""

import click

from floodmark.api.doctor import Check
from floodmark.cli.app import App, command_options, table_option
from floodmark.cli.terminal import entry, fold, print_text, style
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model.formatting import counted


@click.command()
@table_option(required=False)
@click.option(
    "--spark",
    "start_spark",
    is_flag=True,
    help="Also start Spark, and try everything from its workers.",
)
@click.option("--break-lease", "break_it", is_flag=True, help="Break the leases on the -t tables.")
@command_options
def doctor(app: App, names: tuple[str, ...], *, start_spark: bool, break_it: bool) -> None:
    """Check configuration, lake, Spark, warehouses, sources, tables and leases."""
    if break_it and not names:
        raise UsageError("--break-lease needs tables", hint="name them with -t")
    if break_it:
        for table in app.tables(names):
            app.project.watermarks.break_lease(str(table))
    checks = []
    for check in app.project.doctor(names or None, start_spark=start_spark):
        checks.append(check)
        if not app.as_json:
            print_text(_show(check))
    if app.as_json:
        app.print("", checks)
    failures = sum(check.state == "failed" for check in checks)
    if failures:
        raise FloodmarkError(f"{failures} of {counted(len(checks), 'check')} failed")


def _show(check: Check) -> str:
    line = entry(check.state, f"{check.subject}: {check.finding}")
    if not check.hint:
        return line
    hint = fold(f"hint: {check.hint}", indent=6, first=4)
    return f"{line}\n{hint.replace('hint:', style('hint:', 'cyan'), 1)}"
