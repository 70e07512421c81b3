"""How the result of a sync looks to people."""

from collections.abc import Iterable

import click

from floodmark.cli.app import App
from floodmark.model.notice import Notice
from floodmark.sync.result import TableResult


def show_result(result: TableResult) -> str:
    """What happened to a table, in one line."""
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
        parts.append(str(result.error).removeprefix(f"{result.table_name}: "))
    mark = click.style("✗", fg="red") if result.failed else click.style("✓", fg="green")
    return f"{mark} {result.table_name}: {'; '.join(parts)}"


def explain(app: App, results: Iterable[TableResult]) -> None:
    """Say on stderr what else there is to know about the tables."""
    for result in results:
        for change in result.target_changes:
            app.report(Notice("info", f"{result.table_name}: {change}"))
        if result.left_out_manifests:
            app.warn(
                f"{result.table_name}: left out {result.left_out_manifests:,} manifests of"
                f" {result.left_out_rows:,} rows, which the manual watermark does not cover;"
                " a sync without --redshift-only loads those that are still pending"
            )
        for warning in result.warnings:
            app.warn(warning)
        for column, count in result.zero_dates.items():
            app.warn(f"{result.table_name}: {count:,} zero or partial dates in {column}")
        if result.failed and result.hint:
            click.echo(f"{click.style('hint:', fg='cyan')} {result.hint}", err=True)
