"""How watermarks look to people."""

from datetime import datetime

import click

from floodmark.model.manifest import Chunk, Import, Manifest, Reset, Restore, Set
from floodmark.model.position import show_id
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped
from floodmark.model.watermark import Watermark

_STATUS_COLOURS = {
    "success": "green",
    "failed": "red",
    "in_progress": "yellow",
    "pending": "yellow",
}


def show_watermark(table: TableName, watermark: Watermark, start: str) -> str:
    """Both stages, and where the next run starts."""
    extract, load = watermark.mysql_state, watermark.redshift_state
    manual = " (set by hand)" if watermark.metadata.manual_watermark else ""
    lines = [
        f"📅 Current Watermark for {table}:",
        "",
        "   🔄 MySQL → S3 Backup Stage:",
        f"      Status: {show_status(extract.status)}",
        f"      Rows Extracted: {extract.total_rows:,}",
        f"      S3 Files Created: {extract.s3_file_count:,}",
        f"      Last Data Timestamp: {_moment(extract.last_timestamp)}{manual}",
    ]
    if extract.last_id is not None:
        lines.append(f"      Last ID: {show_id(extract.last_id)}")
    lines.append(f"      Last Extraction Time: {_moment(extract.last_extraction_time)}")
    if extract.error:
        lines.append(f"      Error: {extract.error}")
    if imported := watermark.metadata.imported_from:
        lines.append(
            f"      Imported From: {imported.key} (which counted {imported.rows_reported:,} rows"
            f" in {imported.files_reported:,} files)"
        )
    lines += [
        "",
        "   📊 S3 → Redshift Loading Stage:",
        f"      Status: {show_status(load.status)}",
        f"      Rows Loaded: {load.total_rows:,}",
        f"      Last Load Time: {_moment(load.last_load_time)}",
    ]
    if load.error:
        lines.append(f"      Error: {load.error}")
    lines += ["", "   🔜 Next Incremental Backup:", f"      Will start from: {start}"]
    return "\n".join(lines)


def show_status(status: str) -> str:
    """A status in its colour."""
    return click.style(status, fg=_STATUS_COLOURS[status])


def show_change(manifest: Manifest) -> str:
    """What a manifest did, in a few words."""
    match manifest.change:
        case Chunk() as chunk:
            return f"chunk: {chunk.rows:,} rows in {len(chunk.files):,} files"
        case Set():
            return "set by hand"
        case Reset(stages=stages):
            return f"reset: {' and '.join(stages)}"
        case Restore(origin=origin):
            return f"restore: back to {origin}"
        case Import(origin=origin):
            return f"import: from {origin.key}"


def show_ago(moment: datetime | None, now: datetime) -> str:
    """How long ago something was, in one or two words."""
    if moment is None:
        return "never"
    seconds = max(0, int((now - moment).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "just now"


def show_rows(header: list[str], rows: list[list[str]]) -> str:
    """Rows under a header, aligned."""
    everything = [header, *rows]
    widths = [max(len(click.unstyle(row[i])) for row in everything) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell + " " * (width - len(click.unstyle(cell)))
            for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in everything
    )


def _moment(moment: datetime | None) -> str:
    return "none" if moment is None else stamped(moment)
