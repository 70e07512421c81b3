"""Build the loading of a table from the configuration."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from floodmark.api.context import RunContext
from floodmark.config.models import DuckdbConnection, PostgresConnection
from floodmark.model.table import TableName
from floodmark.storage.copies import folder_of_copies
from floodmark.sync.loading import Loading
from floodmark.sync.spark_engine import SparkEngine
from floodmark.tunnels.tunnel import Tunnels
from floodmark.warehouse.factory import open_target, surely_missing
from floodmark.warehouse.parallel import ParallelRun
from floodmark.warehouse.target import Target

MEBIBYTE = 1024 * 1024


def copies_of(
    run: RunContext, table: TableName, engine: SparkEngine
) -> AbstractContextManager[str | None]:
    """Return a folder for copies of what a sync writes to S3, if it loads that on this machine."""
    target = run.target(table)
    on_s3 = run.config.lake.is_s3 and not engine.on_cluster
    if on_s3 and isinstance(target, DuckdbConnection):
        return folder_of_copies(target.path)
    return nullcontext()


def loading_of(
    run: RunContext,
    table: TableName,
    tunnels: Tunnels,
    engine: SparkEngine | None = None,
    *,
    load_only: bool = False,
    copies: str | None = None,
) -> Loading:
    """Return how to load a table; large loads run in parallel on Spark (`engine`).

    Files with a copy in the folder `copies` need not be fetched.
    """
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
                copies=copies,
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
        copies=copies,
    )
