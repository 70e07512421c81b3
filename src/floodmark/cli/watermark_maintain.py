"""Commands that maintain the state: prune and validate."""

from contextlib import nullcontext

import click
import msgspec

from floodmark.api.results import Findings, VerificationResult, notices_of_verification
from floodmark.cli.app import App, command_options, table_option
from floodmark.cli.library_logging import forwarding_library_logs
from floodmark.cli.terminal import entry, fold, style
from floodmark.cli.verification import show_agreement, show_differences
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model.formatting import counted


@click.command()
@click.option(
    "--keep-days",
    default="7",
    show_default=True,
    metavar="N",
    help="Keep copies of the last N days.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@command_options
def prune(app: App, keep_days: str, *, dry_run: bool) -> None:
    """Remove old watermark copies, and half-written files that killed runs left in the lake.

    The newest copy of each table is always kept; half-written files are removed after a day.
    """
    if not keep_days.isdecimal() or len(keep_days) > 5:
        raise UsageError(f"--keep-days {keep_days!r} is not a number of days")
    result = app.watermarks.prune(keep_days=int(keep_days), dry_run=dry_run)
    done, copies = "would remove" if dry_run else "removed", len(result.removed)
    what = f"{copies:,} {'copy' if copies == 1 else 'copies'}"
    lines = [f"{done} {what} older than {keep_days} days", *result.removed]
    if result.unfinished:
        files = counted(len(result.unfinished), "half-written file")
        lines += [f"{done} {files}", *result.unfinished]
    app.print("\n".join(lines), result)


@click.command()
@table_option(required=False)
@click.option("--repair", is_flag=True, help="Repair the tracking; data is never changed.")
@click.option("--lake-only", is_flag=True, help="Skip the warehouse.")
@click.option("--data", is_flag=True, help="Also compare all synced rows with the source.")
@command_options
def validate(
    app: App, names: tuple[str, ...], *, repair: bool, lake_only: bool, data: bool
) -> None:
    """Check that the tracking matches the lake and the warehouse."""
    if data and lake_only:
        raise UsageError(
            "--data compares source and warehouse, and --lake-only skips the warehouse"
        )
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
        counts += f"; {counted(findings.target_rows, 'row')} in the target"
    remarks = [*findings.differences]
    if verified and verified.differences:
        remarks.append(verified.summary)
    elif verified:
        counts += f"; {show_agreement(verified)}"
    if failure:
        remarks.append(f"the rows could not be compared: {failure.message}")
    state = "failed" if remarks else "ok"
    if findings.unchecked:
        remarks.append(f"the target could not be checked: {findings.unchecked}")
    remarks += [f"({remark})" for remark in findings.remarks]
    lines = [fold(remark, indent=6, first=4) for remark in remarks]
    lines += [
        fold(f"hint: {hint}", indent=6, first=4).replace("hint:", style("hint:", "cyan"), 1)
        for hint in findings.hints
    ]
    lines += show_differences(verified) if verified else []
    lines.insert(0, entry(state, f"{findings.table_name}: {counts}"))
    return "\n".join(lines)
