"""Compute the metrics of tables from their status, without a sync."""

from collections.abc import Iterable
from datetime import datetime

from floodmark.api.metrics import age, differs_since, measure_reconciliation, measure_safety
from floodmark.api.prometheus import Metrics
from floodmark.api.status import TableStatus
from floodmark.model.watermark import in_future
from floodmark.state.last_drill import LastDrill
from floodmark.state.mirror import MirrorState


def measure_status(
    statuses: Iterable[TableStatus],
    now: datetime,
    *,
    mirror: MirrorState | None = None,
    drill: LastDrill | None = None,
) -> Metrics:
    """Return what the lake knows; counters of a running sync are not among it.

    Tables that are no longer configured are only counted: no run can end their alerts.
    """
    metrics = Metrics()
    measure_safety(metrics, mirror, drill, now)
    found = list(statuses)
    statuses = [status for status in found if status.pipeline is not None]
    metrics.set("floodmark_unconfigured_tables", len(found) - len(statuses))
    # Rounds that find nothing leave no record, but every table knows its last run.
    ends = [status.last_run for status in statuses if status.last_run]
    if past := [moment for moment in ends if not in_future(moment, now)]:
        metrics.set("floodmark_last_round_timestamp_seconds", max(past).timestamp())
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
