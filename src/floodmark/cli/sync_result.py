"""How the result of a sync looks to people."""

from collections.abc import Iterator

from floodmark.cli.terminal import entry
from floodmark.cli.verification import remarks_on, show_agreement, show_differences
from floodmark.cli.words import counted, since, size
from floodmark.errors import ExitCode
from floodmark.model.notice import Level, Notice
from floodmark.model.timestamps import stamped
from floodmark.sync.result import TableResult

HELD_BACK = "held_back"


def show_result(result: TableResult) -> str:
    """What happened to a table, in one line."""
    parts = []
    if result.chunks:
        parts.append(
            f"{counted(result.rows, 'row')} in {counted(result.files, 'file')}"
            f" ({size(result.bytes)})"
            f" in {result.seconds:.1f} s, now at {result.end}"
        )
    elif result.status == HELD_BACK and result.start is not None:
        parts.append(f"held back at {since(result.start)}: {result.held_back}")
    elif result.start is not None:
        new = "to read" if result.before_start else "new"
        parts.append(f"nothing {new} since {since(result.start)}")
    if result.before_start:
        parts.append(f"{result.before_start} left out")
    if result.future_rows:
        parts.append(f"{result.future_rows} in the future not read yet")
    if result.adopted_files:
        rows, files = counted(result.adopted_rows, "row"), counted(result.adopted_files, "file")
        parts.append(f"{rows} in {files} adopted")
    if result.loaded_manifests:
        parts.append(f"{counted(result.loaded_rows, 'row')} loaded in {result.load_seconds:.1f} s")
    elif result.start is None and not result.failed:
        parts.append("nothing to load")
    if (verified := result.verification) and not result.failed:
        parts.append(show_agreement(verified))
    if result.quarantined_rows:
        parts.append(f"{counted(result.quarantined_rows, 'row')} quarantined")
    if result.failed:
        parts.append(_reason(result))
    waiting = result.status == HELD_BACK or result.before_start or result.future_rows
    state = "failed" if result.failed else "note" if waiting else "ok"
    lines = [entry(state, f"{result.table_name}: {'; '.join(parts)}")]
    if verified and verified.differences:
        lines += show_differences(verified)
    return "\n".join(lines)


def remarks(result: TableResult) -> Iterator[Notice]:
    """What else there is to know about a table, but for its failure."""
    table = result.table_name

    def remark(level: Level, text: str, event: str | None = None) -> Notice:
        return Notice(level, f"{table}: {text.removeprefix(f'{table}: ')}", event, table)

    if result.held_back:
        fresh = result.fresh
        how = f"read only up to {stamped(fresh)}" if fresh else "nothing new is read"
        yield remark("warning", f"held back, {how}: {result.held_back}", HELD_BACK)
    for change in result.target_changes:
        yield remark("info", change, "target_changed")
    if result.left_out_files:
        other = f"{result.left_out_files:,} files of an older system"
        yield remark("warning", f"{other} were created at another time and not adopted")
    if result.left_out_manifests:
        left_out = (
            f"left out {counted(result.left_out_manifests, 'manifest')} of"
            f" {counted(result.left_out_rows, 'row')}, which the manual watermark does not cover;"
            " a sync without --redshift-only loads those that are still pending"
        )
        yield remark("warning", left_out, "left_out")
    for warning in result.warnings:
        yield remark("warning", warning)
    if result.quarantined_rows:
        quarantined = (
            f"{counted(result.quarantined_rows, 'row')} went to quarantine;"
            " 'watermark get --show-files' names the files"
        )
        yield remark("warning", quarantined, "quarantined")
    for column, count in result.zero_dates.items():
        zero_dates = f"{counted(count, 'zero or partial date')} in {column}"
        yield remark("warning", zero_dates, "zero_dates")
    if verified := result.verification:
        yield from remarks_on(table, verified)


def failure(result: TableResult) -> Notice:
    """A table's failure; one that another run holds has not failed, it is at work there."""
    table, busy = result.table_name, result.exit_code == ExitCode.BUSY
    return Notice(
        "warning" if busy else "error",
        f"{table}: {_reason(result)}",
        "busy" if busy else "failed",
        table,
        result.hint,
        {"exit_code": result.exit_code},
    )


def _reason(result: TableResult) -> str:
    name = result.table_name
    return str(result.error).removeprefix(f"{name}: ").removeprefix(f"{name} ")
