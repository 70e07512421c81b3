"""Commands that keep the state tidy: prune and validate."""

from contextlib import nullcontext

import click
import msgspec

from floodmark.api.results import Findings, VerificationResult, notices_of_verification
from floodmark.cli.app import App, command_options, table_option
from floodmark.cli.library_logging import forwarding_library_logs
from floodmark.cli.terminal import entry, fold, style
from floodmark.cli.verification import show_agreement, show_differences
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model import lake_layout
from floodmark.model.formatting import counted
from floodmark.state.data_files import PATIENCE


@click.command()
@click.option("--keep-days", default="7", show_default=True, metavar="N", help="Keep this many.")
@click.option("--dry-run", is_flag=True, help="Show what would go, remove nothing.")
@command_options
def prune(app: App, keep_days: str, *, dry_run: bool) -> None:
    """Remove old copies of watermarks, and what killed runs left half-written in the lake.

    The newest copy of each table always stays; half-written files go after a day.
    """
    if not keep_days.isdecimal() or len(keep_days) > 5:
        raise UsageError(f"--keep-days {keep_days!r} is not a number of days")
    removed = app.store.copies.prune(keep_days=int(keep_days), dry_run=dry_run)
    unfinished = app.store.objects.remove_unfinished(
        lake_layout.DATA, app.run.clock() - PATIENCE, dry_run=dry_run
    )
    done = "would remove" if dry_run else "removed"
    what = f"{len(removed):,} {'copy' if len(removed) == 1 else 'copies'}"
    lines = [f"{done} {what} older than {keep_days} days", *removed]
    if unfinished:
        lines += [f"{done} {counted(len(unfinished), 'half-written file')}", *unfinished]
    value = {"dry_run": dry_run, "removed": removed, "unfinished": unfinished}
    app.print("\n".join(lines), value)


@click.command()
@table_option(required=False)
@click.option("--repair", is_flag=True, help="Repair the tracking; never touches data.")
@click.option("--lake-only", is_flag=True, help="Do not look at the warehouse.")
@click.option("--data", is_flag=True, help="Compare all synced rows with those of the source.")
@command_options
def validate(
    app: App, names: tuple[str, ...], *, repair: bool, lake_only: bool, data: bool
) -> None:
    """Compare what is tracked with what the lake and the warehouse hold."""
    if data and lake_only:
        raise UsageError("--data compares source and warehouse, which --lake-only leaves out")
    logs = forwarding_library_logs(app.report) if data else nullcontext()
    with logs, app.project:
        result = app.project.validate(names or None, repair=repair, lake_only=lake_only, data=data)
    texts = [_show(table.findings, table.verification, table.error) for table in result.tables]
    values = [
        msgspec.to_builtins(table.findings) | ({"verification": table.verification} if data else {})
        for table in result.tables
    ]
    app.print("\n".join(texts) or "no tables", values)
    for table in result.tables:
        if table.verification:
            for notice in notices_of_verification(table.table_name, table.verification):
                app.report(notice)
    result.raise_for_failures()


def _show(
    findings: Findings, verified: VerificationResult | None, failure: FloodmarkError | None
) -> str:
    counts = ", ".join(
        counted(number, word)
        for number, word in (
            (findings.manifests, "manifest"),
            (findings.files, "file"),
            (findings.rows, "row"),
        )
    )
    if findings.loaded_rows is not None:
        manifests = counted(findings.loaded_manifests or 0, "manifest")
        counts += f"; loaded {manifests}, {counted(findings.loaded_rows, 'row')}"
    if findings.target_rows is not None:
        counts += f"; the target holds {counted(findings.target_rows, 'row')}"
    remarks = [*findings.differences]
    if verified and verified.differences:
        remarks.append(verified.summary)
    elif verified:
        counts += f"; {show_agreement(verified)}"
    if failure:
        remarks.append(f"the rows could not be compared: {failure.message}")
    state = "failed" if remarks else "ok"
    if findings.unchecked:
        remarks.append(f"the target could not be looked at: {findings.unchecked}")
    remarks += [f"({remark})" for remark in findings.remarks]
    lines = [fold(remark, indent=6, first=4) for remark in remarks]
    lines += [
        fold(f"hint: {hint}", indent=6, first=4).replace("hint:", style("hint:", "cyan"), 1)
        for hint in findings.hints
    ]
    lines += show_differences(verified) if verified else []
    lines.insert(0, entry(state, f"{findings.table_name}: {counts}"))
    return "\n".join(lines)
