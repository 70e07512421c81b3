"""Format watermarks as text."""

from datetime import datetime, timedelta

from floodmark.api.watermarks import LeaseDocument
from floodmark.cli.terminal import style
from floodmark.model.formatting import ago, counted, span
from floodmark.model.manifest import Chunk, Import, Manifest, Reconciled, Reset, Restore, Set
from floodmark.model.position import show_id
from floodmark.model.reconciled_state import ReconciledState
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped
from floodmark.model.unfilled_columns import backfill_hint, describe_unfilled
from floodmark.model.watermark import VerifiedState, Watermark

IN_STEP = timedelta(seconds=90)
"""A table read to its end this recently counts as in step."""

_STATUS_COLORS = {
    "success": "green",
    "failed": "red",
    "in_progress": "yellow",
    "pending": "yellow",
}


def show_watermark(
    table: TableName,
    watermark: Watermark,
    start: str,
    now: datetime | None = None,
    lease: LeaseDocument | None = None,
    how: str = "",
    *,
    lake: str,
    warehouse: str,
) -> str:
    """Describe both stages, the verified position, and where the next run starts.

    With `now`, also the lag, and how long ago each time was. `how` is the way to read the rows
    that were left out. `lake` and `warehouse` are what they are called.
    """
    extract, load = watermark.mysql_state, watermark.redshift_state
    compared = watermark.verified_state
    state = f", {show_state(watermark, lease, now)}" if now else ""
    manual = " (set by hand)" if watermark.metadata.manual_watermark else ""
    lines = [
        f"📅 Current Watermark for {table}:",
        "",
        f"   🔄 MySQL → {lake} Backup Stage:",
        f"      Status: {show_status(extract.status)}{state}",
        f"      Rows Extracted: {extract.total_rows:,}",
        *_quarantined(extract.quarantined_rows),
        f"      {'S3 ' if lake == 'S3' else ''}Files Created: {extract.s3_file_count:,}",
        f"      Last Data Timestamp: {_moment(extract.last_timestamp)}{manual}",
    ]
    if extract.last_id is not None:
        lines.append(f"      Last ID: {show_id(extract.last_id)}")
    lines.append(f"      Last Extraction Time: {_moment(extract.last_extraction_time, now)}")
    if before := extract.before_start:
        counted_at = _moment(before.counted_at, now)
        lines.append(f"      Rows Left Out: {before}, counted {counted_at}")
        lines.append(f"      To Read Them: {how}")
    if (fill := backfill_hint(table, extract.unfilled)) is not None:
        lines.append(f"      Not Filled: {describe_unfilled(extract.unfilled)}")
        lines.append(f"      To Fill Them: {fill}")
    if lease is not None and lease.held_by:
        lines.append(f"      Held Back: {lease.held_by}, since {_moment(lease.held_since, now)}")
    if extract.error:
        lines.append(f"      Error: {extract.error}")
    if imported := watermark.metadata.imported_from:
        lines.append(
            f"      Imported From: {imported.key} (which reported"
            f" {counted(imported.rows_reported, 'row')}"
            f" in {counted(imported.files_reported, 'file')})"
        )
    lines += [
        "",
        f"   📊 {lake} → {warehouse} Loading Stage:",
        f"      Status: {show_status(load.status)}",
        f"      Rows Loaded: {load.total_rows:,}",
        *_quarantined(load.quarantined_rows),
        *([f"      Rows Deleted: {load.deleted_rows:,}"] if load.deleted_rows else []),
        f"      Last Load Time: {_moment(load.last_load_time, now)}",
    ]
    if load.error:
        lines.append(f"      Error: {load.error}")
    if compared != VerifiedState():
        # A full reload has no positions.
        whole = compared.status == "success" and compared.position.is_start
        exception = ", except for the rows left out" if extract.before_start else ""
        lines += [
            "",
            "   🔎 Source and Target Compared:",
            f"      Status: {show_status(compared.status)}",
            f"      Equal Up To: {'the end' if whole else compared.position}{exception}",
            f"      Last Verified Time: {_moment(compared.last_verified_time, now)}",
        ]
    if compared.error:
        lines.append(f"      Error: {compared.error}")
    lines += _reconciled(watermark.reconciled_state, now)
    lines += ["", "   🔜 Next Incremental Backup:", f"      Will start from: {start}"]
    return "\n".join(lines)


def show_reconciled(state: ReconciledState, now: datetime) -> str:
    """Describe when a table was last reconciled in full."""
    if state.status == "failed":
        return style("differs" if state.left else "stopped", "red")
    done = ago(state.last_finished, now) if state.last_finished else "never"
    return f"{done}, in progress" if state.pass_started else done


def _reconciled(state: ReconciledState, now: datetime | None) -> list[str]:
    if state == ReconciledState():
        return []
    found = [(state.deleted, "deleted"), (state.missing, "missing"), (state.stale, "stale")]
    found += [(state.duplicate, "duplicate"), (state.left, "deleted in the source and left here")]
    lines = [
        "",
        "   🧮 Source and Target Reconciled:",
        f"      Status: {show_status(state.status)}",
        f"      Last Full Pass: {_moment(state.last_finished, now)}",
    ]
    if state.pass_started:
        place = "" if state.place is None else ", continues where the last run ended"
        lines.append(f"      Pass In Progress: since {_moment(state.pass_started, now)}{place}")
    counts = ", ".join(f"{count:,} {what}" for count, what in found if count)
    lines.append(f"      Rows Compared: {state.rows:,}; {counts or 'no differences'}")
    lines.append(
        f"      In All Passes: {state.total_deleted:,} deleted, {state.total_repaired:,} repaired"
    )
    if state.error:
        lines.append(f"      Error: {state.error}")
    return lines


def show_status(status: str) -> str:
    """Return a status in its color."""
    return style(status, _STATUS_COLORS[status])


def show_change(manifest: Manifest) -> str:
    """Describe the change of a manifest."""
    match manifest.change:
        case Chunk() as chunk:
            if chunk.reconciled:
                return _show_reconciled(chunk.reconciled)
            if chunk.inherited:
                return f"takeover: rows up to {chunk.end}"
            kind = "adopted" if chunk.adopted else "chunk"
            return f"{kind}: {counted(chunk.rows, 'row')} in {counted(len(chunk.files), 'file')}"
        case Set():
            return "set by hand"
        case Reset(stages=stages):
            return f"reset: {' and '.join(stages)}"
        case Restore(origin=origin):
            return f"restore: back to {origin}"
        case Import(origin=origin):
            return f"import: from {origin.key}"


def _show_reconciled(found: Reconciled) -> str:
    if part := found.backfill:
        return f"backfill: rows after {part.start}, {part.reached.as_end}"
    counts = {
        "deleted": found.deleted,
        "missing": found.missing,
        "stale": found.stale,
        "duplicate": found.duplicate,
    }
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    return f"reconciled: {kinds or 'no difference'}"


def show_state(watermark: Watermark, lease: LeaseDocument | None, now: datetime) -> str:
    """Describe the state of a table: in step, its lag, or its problem; and rows left out."""
    state, before = _state(watermark, lease, now), watermark.mysql_state.before_start
    return f"{state}, {style(f'{before.count} left out', 'yellow')}" if before else state


def _state(watermark: Watermark, lease: LeaseDocument | None, now: datetime) -> str:
    extract, load = watermark.mysql_state, watermark.redshift_state
    running = lease is not None and lease.held(now)
    if lease is not None and lease.failures:
        return _failed(lease)
    if extract.status == "failed":
        return style("extract failed", "red")
    if load.status == "failed":
        return style("load failed", "red")
    if running:
        return style("running", "yellow")
    if lease is not None and lease.held_by:
        return style(_held(lease, now), "yellow")
    if extract.status == "in_progress":
        return style("interrupted", "yellow")
    never_read = extract.last_extraction_time is None
    if never_read and (extract.before_start or extract.status != "success"):  # else it is empty
        return style("nothing read" if extract.before_start else "not read yet", "yellow")
    if extract.total_rows and load.status == "pending":
        return style("not loaded yet", "yellow")
    fresh = (lease.in_step_at if lease else None) or extract.last_extraction_time
    return style("not read yet", "yellow") if fresh is None else _lag(now - fresh)


def show_absence(lease: LeaseDocument | None, problem: str | None, now: datetime) -> str:
    """Describe the state of a table without a watermark, which may be empty."""
    if problem is None and lease is not None and lease.failures:
        return _failed(lease)
    if problem is None and lease is not None and lease.held_by:
        return style(_held(lease, now), "yellow")
    if problem is None and lease is not None and lease.in_step_at is not None:
        return _lag(now - lease.in_step_at)
    return style("no watermark", "red" if problem else "yellow")


def _failed(lease: LeaseDocument) -> str:
    return style(f"{lease.failures[0].stage} failed", "red")


def _held(lease: LeaseDocument, now: datetime) -> str:
    return f"held back {span(now - lease.held_since)}" if lease.held_since else "held back"


def _lag(behind: timedelta) -> str:
    return style("in step", "green") if behind < IN_STEP else f"{span(behind)} behind"


def _quarantined(rows: int) -> list[str]:
    return [f"      Rows Quarantined: {rows:,}"] if rows else []


def _moment(moment: datetime | None, now: datetime | None = None) -> str:
    """Format a time; with `now`, also how long ago it was."""
    if moment is None:
        return "none"
    return f"{stamped(moment)} ({ago(moment, now)})" if now else stamped(moment)
