"""Report what a reconciliation found: the status of its table, hints and remarks."""

from datetime import datetime

from msgspec import structs

from floodmark.errors import ExitCode
from floodmark.model.formatting import counted
from floodmark.model.position import Position
from floodmark.model.reconcile_result import ReconcileResult
from floodmark.model.reconciliation import IntervalDifferences
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
from floodmark.model.verification import SyncedRange
from floodmark.sync.reconcile_checks import HeldBack
from floodmark.sync.result import TableResult


def add_reconciliation(
    synced: TableResult, found: ReconcileResult | HeldBack, table: TableName, target_name: str
) -> TableResult:
    """Add what was found to the result of a table, with its status and a hint."""
    if isinstance(found, HeldBack):
        return structs.replace(synced, status="held_back", held_back=found.reason, hint=found.hint)
    warnings = (*synced.warnings, *found.remarks)
    result = structs.replace(synced, reconciliation=found, warnings=warnings)
    if found.unkeyed:
        return structs.replace(
            result,
            status="differs",
            error=f"{counted(found.unkeyed, 'row')} in the target without a key that the source can"
            " have, so that they cannot be repaired",
            hint=f"delete them in the target: rows of {target_name} in which"
            f" {' or '.join(found.key)} is NULL, or a time beyond the years 1 to 9999",
            exit_code=ExitCode.DIFFERENCE,
        )
    if not found.left and not (found.dry_run and found.differences):
        return result
    return structs.replace(
        result,
        status="differs",
        stage="reconcile",
        error=f"source and target differ: {found.summary if found.dry_run else found.rest}",
        hint=_how_to_apply(table, found),
        exit_code=ExitCode.DIFFERENCE,
    )


def _how_to_apply(table: TableName, found: ReconcileResult) -> str:
    if found.dry_run:
        deletes = f" --deletes {found.deletes}" if found.deleted else ""
        return f"'floodmark reconcile -t {table}{deletes}' repairs the target"
    return (
        f"'floodmark reconcile -t {table} --deletes hard' removes them from the target, '--deletes"
        " soft' marks them; 'reconcile: {deletes: hard}' in the configuration does so every time"
    )


def keys_alone(table: TableName) -> str:
    """Remark on a table without versions, which may even have been emptied and filled again."""
    return (
        "its cursor has no time, so that rows are compared by their key alone: deleted and missing"
        " rows are found; changed ones, and those of a table that was emptied and filled again with"
        f" the same keys, are not: 'floodmark sync -t {table} --verify-data=all --repair' compares"
        " all columns"
    )


def moved_before(
    table: TableName, ranges: list[SyncedRange], found: list[IntervalDifferences]
) -> list[str]:
    """Remark on repaired rows that are before the synced ranges now, where nothing is compared."""
    start = ranges[0].start
    versions = [one.version for interval in found for one in interval.moved_out]
    times = [v for v in versions if isinstance(v, datetime) and Position(v).compare(start) == -1]
    if not times:
        return []
    first, last = plain(min(times)), plain(max(times))
    remark = (
        f"{counted(len(times), 'row')} moved in the source to times before {start.opening}, where"
        " rows are not compared: the next change is not found, unless 'floodmark backfill -t"
        f' {table} --from "{first}" --to "{last}"\' adds these times'
    )
    return [remark]
