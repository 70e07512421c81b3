"""Compute the metrics of tables from their status, without a sync."""

from collections.abc import Iterable
from datetime import datetime

from floodmark.api.metrics import age, differs_since, measure_reconciliation
from floodmark.api.prometheus import Metrics
from floodmark.api.status import TableStatus


def measure_status(statuses: Iterable[TableStatus], now: datetime) -> Metrics:
    """Return what the lake knows; counters of a running sync are not among it."""
    metrics = Metrics()
    for status in statuses:
        name, known = str(status.table), status.watermark
        held = status.since if status.state == "held back" else None
        metrics.set("floodmark_held_back_seconds", age(held, now), table=name)
        # Since when is unknown if the state cannot be read.
        failing = max(1.0, age(status.since, now)) if status.state == "failing" else 0.0
        metrics.set("floodmark_failing_seconds", failing, table=name)
        for stage, moment in (("extract", status.read_fresh), ("load", status.fresh)):
            if moment is not None:
                family = "floodmark_fresh_timestamp_seconds"
                metrics.set(family, moment.timestamp(), table=name, stage=stage)
        if known is None:
            continue
        read, loaded = known.mysql_state, known.redshift_state
        metrics.set("floodmark_rows_total", read.total_rows, table=name, stage="extract")
        metrics.set("floodmark_rows_total", loaded.total_rows, table=name, stage="load")
        metrics.set("floodmark_files_total", read.s3_file_count, table=name)
        metrics.set("floodmark_file_bytes_total", read.s3_bytes, table=name)
        metrics.set("floodmark_quarantined_rows_total", loaded.quarantined_rows, table=name)
        measure_reconciliation(metrics, name, known.reconciled_state)
        metrics.set("floodmark_differs_seconds", age(differs_since(known), now), table=name)
    return metrics
