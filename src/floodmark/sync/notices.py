"""Turn a table's result into notices."""

from collections.abc import Iterator

from floodmark.errors import ExitCode
from floodmark.model.formatting import counted
from floodmark.model.notice import Level, Notice
from floodmark.model.timestamps import stamped
from floodmark.model.verification import VerificationResult
from floodmark.sync.result import TableResult

HELD_BACK = "held_back"


def notices_of(result: TableResult) -> Iterator[Notice]:
    """Yield the notices about a table, except its failure and what an earlier run reported."""
    table = result.table_name

    def notice(level: Level, text: str, event: str | None = None) -> Notice:
        return Notice(level, f"{table}: {text.removeprefix(f'{table}: ')}", event, table)

    if result.held_back:
        fresh = result.fresh
        how = f"read only up to {stamped(fresh)}" if fresh else "nothing new is read"
        yield notice("warning", f"held back, {how}: {result.held_back}", HELD_BACK)
    for change in result.target_changes:
        yield notice("info", change, "target_changed")
    if result.left_out_files:
        other = f"{result.left_out_files:,} files of an older system"
        yield notice("warning", f"{other} are outside the time window and were not adopted")
    if result.left_out_manifests:
        left_out = (
            f"left out {counted(result.left_out_manifests, 'manifest')} of"
            f" {counted(result.left_out_rows, 'row')}, which the manual watermark does not cover;"
            " a sync without --redshift-only loads those that are still pending"
        )
        yield notice("warning", left_out, "left_out")
    for warning in result.warnings:
        if warning in result.known_warnings:
            continue
        yield notice("warning", warning)
    if result.quarantined_rows:
        quarantined = (
            f"{counted(result.quarantined_rows, 'row')} went to quarantine;"
            " 'watermark get --show-files' lists the files"
        )
        yield notice("warning", quarantined, "quarantined")
    for column, count in result.zero_dates.items():
        zero_dates = f"{counted(count, 'zero or partial date')} in {column}"
        yield notice("warning", zero_dates, "zero_dates")
    if result.verification:
        yield from notices_of_verification(table, result.verification)


def notices_of_verification(table_name: str, verified: VerificationResult) -> Iterator[Notice]:
    """Yield the notices about a comparison, except its differences."""
    if verified.differences and (left := describe_not_compared(verified)):
        yield Notice("info", f"{table_name}: {left}", table=table_name)
    for remark in verified.remarks:
        yield Notice("warning", f"{table_name}: {remark}", table=table_name)
    if verified.read_columns:
        read = f"read to be compared, as there is no checksum: {', '.join(verified.read_columns)}"
        yield Notice("info", f"{table_name}: {read}", table=table_name)
    if verified.quarantined:
        aside = (
            f"{counted(verified.quarantined, 'row')} are in quarantine, and so not in the target"
        )
        yield Notice("info", f"{table_name}: {aside}", table=table_name)
    if verified.moved:
        moved = f"{counted(verified.moved, 'row')} changed in the source since the load"
        then = "the next sync loads or quarantines them"
        yield Notice("info", f"{table_name}: {moved}; {then}", table=table_name)


def describe_not_compared(verified: VerificationResult) -> str:
    """Describe the rows left out of a comparison; empty if it was complete."""
    left = ", ".join(map(str, verified.not_compared))
    return f"not compared: {left}" if left else ""


def failure_of(result: TableResult) -> Notice:
    """Return the notice of a failure; a warning if another run holds the table."""
    busy = result.exit_code == ExitCode.BUSY
    return Notice(
        "warning" if busy else "error",
        f"{result.table_name}: {reason_of(result)}",
        "busy" if busy else "failed",
        result.table_name,
        result.hint,
        {"exit_code": result.exit_code},
    )


def reason_of(result: TableResult) -> str:
    """Return the reason of a failure, without the table's name."""
    name = result.table_name
    return str(result.error).removeprefix(f"{name}: ").removeprefix(f"{name} ")
