"""Commands that keep the state tidy: prune and validate."""

from contextlib import suppress

import click

from floodmark.cli.app import App, command_options, table_option
from floodmark.errors import DifferenceFound, StateError, UsageError
from floodmark.model.table import TableName
from floodmark.state.validation import Findings
from floodmark.state.validation import validate as find_differences


@click.command()
@click.option("--keep-days", default="7", show_default=True, metavar="N", help="Keep this many.")
@click.option("--dry-run", is_flag=True, help="Show what would go, remove nothing.")
@command_options
def prune(app: App, keep_days: str, *, dry_run: bool) -> None:
    """Remove old copies of watermarks; the newest copy of each table always stays."""
    if not keep_days.isdecimal() or len(keep_days) > 5:
        raise UsageError(f"--keep-days {keep_days!r} is not a number of days")
    removed = app.store.copies.prune(keep_days=int(keep_days), dry_run=dry_run)
    done = "would remove" if dry_run else "removed"
    lines = [f"{done} {len(removed)} copies older than {keep_days} days", *removed]
    app.print("\n".join(lines), {"dry_run": dry_run, "removed": removed})


@click.command()
@table_option(required=False)
@click.option("--repair", is_flag=True, help="Write the watermark anew from the manifests.")
@command_options
def validate(app: App, names: tuple[str, ...], *, repair: bool) -> None:
    """Compare the watermark with the manifests, and these with the files in the lake."""
    tables = app.tables(names) if names else _tables_with_state(app)
    found = [find_differences(app.store, table) for table in tables]
    if repair:
        for table, findings in zip(tables, found, strict=True):
            if findings.differences:
                with suppress(StateError):  # what cannot be mended is found again
                    app.store.repair(table)
        found = [find_differences(app.store, table) for table in tables]
    app.print("\n".join(_show(findings) for findings in found) or "no tables", found)
    differing = [findings.table_name for findings in found if findings.differences]
    if differing:
        raise DifferenceFound(
            f"differences in {', '.join(differing)}",
            hint=None if repair else "'watermark validate --repair' mends the tracking",
        )


def _tables_with_state(app: App) -> list[TableName]:
    return sorted({*app.store.log.tables(), *app.config.tables})


def _show(findings: Findings) -> str:
    mark = click.style("✗", fg="red") if findings.differences else click.style("✓", fg="green")
    counts = f"{findings.manifests:,} manifests, {findings.files:,} files, {findings.rows:,} rows"
    lines = [f"{mark} {findings.table_name}: {counts}"]
    lines += [f"    {difference}" for difference in findings.differences]
    lines += [f"    ({remark})" for remark in findings.remarks]
    return "\n".join(lines)
