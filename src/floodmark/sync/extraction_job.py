"""Describe the extraction of a chunk to the workers."""

from typing import TYPE_CHECKING

from msgspec import structs

from floodmark.model.table import TableName
from floodmark.mysql.predicates import cursor_columns, order_by, relation
from floodmark.sync.plan import TablePlan

if TYPE_CHECKING:
    from floodmark.sync.extraction import Extraction
    from floodmark.worker.job import ExtractionJob


def extraction_job(
    extraction: "Extraction", plan: TablePlan, table: TableName, sequence: int
) -> "ExtractionJob":
    """Return the job that tells workers how to read a chunk of a table."""
    from floodmark.worker.job import MEBIBYTE, ExtractionJob, batch_rows, most_ahead_bytes

    settings, cursor = extraction.settings, plan.choice.cursor
    in_order = plan.route.by == "cursor" and plan.route.index is not None
    return ExtractionJob(
        table=table,
        session_id=extraction.session_id,
        sequence=sequence,
        source=structs.replace(extraction.source.connection, primary=None),
        guard=extraction.source.server.guard,
        relation=relation(plan.source, plan.route.index),
        order=order_by(cursor_columns(plan.source, cursor)) if in_order else "",
        columns=plan.columns,
        cursor=cursor,
        lake=extraction.lake,
        copies=extraction.loading.copies if extraction.loading else None,
        primary_key=plan.source.primary_key,
        zero_dates=settings.zero_dates,
        file_bytes=settings.file_mb * MEBIBYTE,
        batch_rows=batch_rows(plan.source.average_row_bytes),
        most_ahead_bytes=most_ahead_bytes(settings.window_mb),
    )
