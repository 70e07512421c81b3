"""Compute the metrics of tables from their watermarks and leases."""

from collections.abc import Sequence
from datetime import datetime

from floodmark.api.project import Project
from floodmark.api.prometheus import Metrics
from floodmark.model import lake_layout
from floodmark.model.reconciled_state import ReconciledState
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state.last_drill import LastDrill, read_last_drill
from floodmark.state.lease import read_lease
from floodmark.state.mirror import MirrorState, read_mirror_state

__all__ = ["LastDrill", "Metrics", "MirrorState", "measure_safety", "measure_tables"]


def measure_safety(
    metrics: Metrics, mirror: MirrorState | None, drill: LastDrill | None, now: datetime
) -> None:
    """Update the metrics of the mirror and of the last drill."""
    if mirror is not None:
        metrics.set("floodmark_mirror_behind_seconds", age(mirror.since, now))
        metrics.set("floodmark_mirror_behind_tables", len(mirror.tables))
    if drill is not None:
        metrics.set("floodmark_last_drill_timestamp_seconds", drill.oldest.timestamp())
        metrics.set("floodmark_drill_failed_rehearsals", drill.failed)


def measure_tables(project: Project, tables: Sequence[TableName], metrics: Metrics) -> None:
    """Update the metrics of tables that were just synced, as the last run left them."""
    run = project._runner.current  # noqa: SLF001
    store = run.store
    mirror = read_mirror_state(store.objects) if run.mirror else None
    measure_safety(metrics, mirror, read_last_drill(store.objects), run.run.clock())
    recovered = [info.key for info in store.objects.list_objects(lake_layout.RECOVERIES)]
    for table in tables:
        name, watermark = str(table), store.known(table)
        recoveries = sum(key.startswith(lake_layout.recoveries(table)) for key in recovered)
        metrics.set("floodmark_recoveries_total", recoveries, table=name)
        lease = read_lease(store.objects, table)
        since = lease.held_since if lease else None
        now = run.run.clock()
        metrics.set("floodmark_held_back_seconds", age(since, now), table=name)
        failing = (
            min((failure.since for failure in lease.failures), default=None) if lease else None
        )
        metrics.set("floodmark_failing_seconds", age(failing, now), table=name)
        if watermark is None:
            continue
        extracted, loaded = watermark.mysql_state, watermark.redshift_state
        rows = (("extract", extracted.total_rows), ("load", loaded.total_rows))
        for stage, count in rows:
            metrics.set("floodmark_rows_total", count, table=name, stage=stage)
        metrics.set("floodmark_files_total", extracted.s3_file_count, table=name)
        metrics.set("floodmark_file_bytes_total", extracted.s3_bytes, table=name)
        metrics.set("floodmark_quarantined_rows_total", loaded.quarantined_rows, table=name)
        measure_reconciliation(metrics, name, watermark.reconciled_state)
        metrics.set("floodmark_differs_seconds", age(differs_since(watermark), now), table=name)
        in_step = lease.in_step_at if lease else None
        behind = watermark.loaded_head < watermark.head
        fresh = (("extract", in_step), ("load", loaded.last_load_time if behind else in_step))
        for stage, moment in fresh:
            if moment is not None:
                family, seconds = "floodmark_fresh_timestamp_seconds", moment.timestamp()
                metrics.set(family, seconds, table=name, stage=stage)


def differs_since(watermark: Watermark) -> datetime | None:
    """Return when a comparison found the difference that still exists, as far as is known."""
    compared, reconciled = watermark.verified_state, watermark.reconciled_state
    found = [compared.last_verified_time] if compared.status == "failed" else []
    found += [reconciled.last_run_time] if reconciled.left else []
    return min(filter(None, found), default=None)


def age(since: datetime | None, now: datetime) -> float:
    """Return how many seconds ago something began; 0 if it did not, or if a clock was wrong."""
    return max(0.0, (now - since).total_seconds()) if since else 0.0


def measure_reconciliation(metrics: Metrics, table: str, state: ReconciledState) -> None:
    """Update the metrics of the reconciliations of a table."""
    if state.last_finished is not None:
        seconds = state.last_finished.timestamp()
        metrics.set("floodmark_reconciled_timestamp_seconds", seconds, table=table)
    metrics.set("floodmark_reconciled_deletes_total", state.total_deleted, table=table)
    metrics.set("floodmark_reconciled_repairs_total", state.total_repaired, table=table)
    metrics.set("floodmark_reconciled_left_rows", state.left, table=table)
