"""How the result of a sync looks to people."""

from collections.abc import Iterable

import click

from floodmark.cli.app import App
from floodmark.cli.terminal import entry, labelled
from floodmark.cli.verification import remark_on, show_agreement, show_differences
from floodmark.cli.words import counted, since, size
from floodmark.model.notice import Notice
from floodmark.sync.result import TableResult


def show_result(result: TableResult) -> str:
    """What happened to a table, in one line."""
    parts = []
    if result.chunks:
        parts.append(
            f"{counted(result.rows, 'row')} in {counted(result.files, 'file')}"
            f" ({size(result.bytes)})"
            f" in {result.seconds:.1f} s, now at {result.end}"
        )
    elif result.start is not None:
        parts.append(f"nothing new since {since(result.start)}")
    if result.adopted_files:
        rows, files = counted(result.adopted_rows, "row"), counted(result.adopted_files, "file")
        parts.append(f"{rows} in {files} adopted")
    if result.loaded_manifests:
        aside = f" and {result.quarantined_rows:,} quarantined" if result.quarantined_rows else ""
        loaded = f"{counted(result.loaded_rows, 'row')} loaded{aside}"
        parts.append(f"{loaded} in {result.load_seconds:.1f} s")
    elif result.start is None and not result.failed:
        parts.append("nothing to load")
    if (verified := result.verification) and not result.failed:
        parts.append(show_agreement(verified))
    if result.failed:
        parts.append(str(result.error).removeprefix(f"{result.table_name}: "))
    state = "failed" if result.failed else "ok"
    lines = [entry(state, f"{result.table_name}: {'; '.join(parts)}")]
    if verified and verified.differences:
        lines += show_differences(verified)
    return "\n".join(lines)


def explain(app: App, results: Iterable[TableResult]) -> None:
    """Say on stderr what else there is to know about the tables."""
    for result in results:
        for change in result.target_changes:
            app.report(Notice("info", f"{result.table_name}: {change}"))
        if result.left_out_files:
            app.warn(
                f"{result.table_name}: {result.left_out_files:,} files of an older system were"
                " created at another time and not adopted"
            )
        if result.left_out_manifests:
            app.warn(
                f"{result.table_name}: left out"
                f" {counted(result.left_out_manifests, 'manifest')} of"
                f" {counted(result.left_out_rows, 'row')}, which the manual watermark does not"
                " cover;"
                " a sync without --redshift-only loads those that are still pending"
            )
        for warning in result.warnings:
            app.warn(f"{result.table_name}: {warning.removeprefix(f'{result.table_name}: ')}")
        if result.quarantined_rows:
            app.warn(
                f"{result.table_name}: {counted(result.quarantined_rows, 'row')} did not fit the"
                " target and went to quarantine; 'watermark get --show-files' names the files"
            )
        for column, count in result.zero_dates.items():
            app.warn(f"{result.table_name}: {counted(count, 'zero or partial date')} in {column}")
        if verified := result.verification:
            remark_on(app, result.table_name, verified)
        if result.failed and result.hint:
            click.echo(labelled("hint:", "cyan", result.hint), err=True)
