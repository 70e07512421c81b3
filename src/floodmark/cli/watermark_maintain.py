"""Commands that keep the state tidy: prune and validate."""

import os
from collections.abc import Collection, Sequence

import click
import msgspec

from floodmark.cli.app import App, command_options, table_option
from floodmark.cli.loading import loading_of
from floodmark.cli.terminal import entry, fold, style
from floodmark.cli.verification import (
    remarks_on,
    show_agreement,
    show_differences,
    verification_of,
)
from floodmark.cli.words import counted
from floodmark.errors import DifferenceFound, FloodmarkError, UsageError
from floodmark.lake.files import PATIENCE
from floodmark.model.table import TableName
from floodmark.model.verification import VerificationResult
from floodmark.state import layout
from floodmark.state.validation import Findings
from floodmark.state.validation import validate as validate_lake
from floodmark.sync.spark import SparkEngine
from floodmark.sync.tunnels import open_for_workers
from floodmark.sync.validation import compare_cursor, repair_table, validate_table
from floodmark.sync.verification import load_again, verify_table
from floodmark.tunnels.tunnel import Tunnels


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
        layout.DATA, app.run.clock() - PATIENCE, dry_run=dry_run
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
    tables = app.tables(names) if names else _tables_with_state(app)
    known = () if lake_only else app.config.tables
    tunnels = click.get_current_context().with_resource(Tunnels(os.path.dirname(app.config.path)))
    loadings = {
        table: loading_of(app, table, tunnels) if table in known else None for table in tables
    }

    def look(table: TableName) -> Findings:
        if lake_only:
            findings = validate_lake(app.store, table)
        else:
            findings = validate_table(app.store, table, loadings[table])
        entry = app.config.tables.get(table)
        configured = entry[1].cursor_columns if entry else None
        return compare_cursor(findings, app.store, table, configured)

    found = {table: look(table) for table in tables}
    if repair:
        for table, findings in found.items():
            if findings.differences:
                repair_table(app.store, table, loadings[table])
                found[table] = look(table)
    compared = [table for table in tables if table in known] if data else []
    rows, failures = _compare(app, compared, tunnels)
    texts = [
        _show(findings, rows.get(table), failures.get(table)) for table, findings in found.items()
    ]
    values = [
        msgspec.to_builtins(findings) | ({"verification": rows.get(table)} if data else {})
        for table, findings in found.items()
    ]
    app.print("\n".join(texts) or "no tables", values)
    for table, verified in rows.items():
        for remark in remarks_on(str(table), verified):
            app.report(remark)
    differing = [
        str(table)
        for table, findings in found.items()
        if findings.differences
        or (table in rows and rows[table].differences)
        or isinstance(failures.get(table), DifferenceFound)
    ]
    if differing:
        raise DifferenceFound(
            f"differences in {', '.join(differing)}",
            hint=_hint(found.values(), differing, repair=repair),
        )
    for failure in failures.values():
        raise failure
    unchecked = [str(table) for table, findings in found.items() if findings.unchecked]
    if unchecked:
        raise FloodmarkError(
            f"the target of {', '.join(unchecked)} could not be looked at",
            hint="--lake-only leaves it out",
        )


def _hint(found: Collection[Findings], differing: Sequence[str], *, repair: bool) -> str | None:
    if not any(findings.differences for findings in found):
        return load_again(differing[0] if len(differing) == 1 else "TABLE")
    if repair or not any(findings.repairable for findings in found):
        return None
    return "'floodmark watermark validate --repair' repairs the tracking"


def _compare(
    app: App, tables: list[TableName], tunnels: Tunnels
) -> tuple[dict[TableName, VerificationResult], dict[TableName, FloodmarkError]]:
    """Compare the rows of tables; one that cannot be compared leaves the others alone."""
    found: dict[TableName, VerificationResult] = {}
    failures: dict[TableName, FloodmarkError] = {}
    settings = app.config.settings.spark
    connections = [c for t in tables for c in (app.mysql(t.scope), app.target(t))]
    open_for_workers(tunnels, connections, settings)
    engine = SparkEngine(settings, app.report, verbose=app.log.debug)
    try:
        for table in tables:
            try:
                with verification_of(app, table, engine, tunnels, everything=True) as how:
                    found[table] = verify_table(how, table, app.table_settings(table))
            except FloodmarkError as error:
                failures[table] = error
    finally:
        engine.stop()
    return found, failures


def _tables_with_state(app: App) -> list[TableName]:
    return sorted({*app.store.log.tables(), *app.config.tables})


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
