"""Build the loading of a table from the configuration."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from floodmark.api.context import RunContext
from floodmark.config.models import PostgresConnection
from floodmark.model.table import TableName
from floodmark.sync.loading import Loading
from floodmark.sync.spark_engine import SparkEngine
from floodmark.tunnels.tunnel import Tunnels
from floodmark.warehouse.factory import open_target, surely_missing
from floodmark.warehouse.parallel import ParallelRun
from floodmark.warehouse.target import Target

MEBIBYTE = 1024 * 1024


def loading_of(
    run: RunContext,
    table: TableName,
    tunnels: Tunnels,
    engine: SparkEngine | None = None,
    *,
    load_only: bool = False,
) -> Loading:
    """Return how to load a table; large loads run in parallel on Spark (`engine`)."""
    loading = run.config.settings.loading
    target = run.target(table)
    _, target_name = run.config.target_of(table)
    _, settings = run.config.tables[table]
    least = loading.spread_mb * MEBIBYTE
    spread = None
    if engine is not None and isinstance(target, PostgresConnection):
        run_parts = partial(engine.spread, f"{target.host}:{target.port}")
        spread = ParallelRun(run=run_parts, least_bytes=least)

    @contextmanager
    def opened() -> Iterator[Target]:
        with (
            tunnels.through(target) as reached,
            open_target(
                reached,
                run.store.objects,
                run.config.lake,
                settings,
                spread=spread,
                configured=target,
            ) as warehouse,
        ):
            warehouse.report = run.report
            warehouse.frozen = settings.schema_changes == "freeze"
            yield warehouse

    return Loading(
        store=run.store,
        open_target=opened,
        target_name=target_name,
        warehouse=run.config.warehouse_title(table),
        place=run.config.place_of(table),
        session_id=run.run.session_id,
        batch_bytes=loading.batch_mb * MEBIBYTE,
        load_only=load_only,
        target_missing=lambda: surely_missing(target),
        report=run.report,
        quarantine_limit=run.config.settings.loading.quarantine_limit,
        check=engine.check if engine else lambda: None,
    )
