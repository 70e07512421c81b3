"""From the configuration to the loading of a table."""

from collections.abc import Iterator
from contextlib import contextmanager

from floodmark.cli.app import App
from floodmark.model.table import TableName
from floodmark.sync.loading import Loading
from floodmark.sync.spark import SparkEngine
from floodmark.tunnels.tunnel import Tunnels
from floodmark.warehouse.opening import open_target, surely_missing
from floodmark.warehouse.spread import Spread
from floodmark.warehouse.target import Target

MEBIBYTE = 1024 * 1024


def loading_of(
    app: App,
    table: TableName,
    tunnels: Tunnels,
    engine: SparkEngine | None = None,
    *,
    load_only: bool = False,
) -> Loading:
    """How a table of the configuration is loaded, with the help of `engine` if that is worth it."""
    loading = app.config.settings.loading
    target = app.target(table)
    _, target_name = app.config.target_of(table)
    _, settings = app.config.tables[table]
    least = loading.spread_mb * MEBIBYTE
    spread = Spread(run=engine.spread, least_bytes=least) if engine else None

    @contextmanager
    def opened() -> Iterator[Target]:
        with (
            tunnels.through(target) as reached,
            open_target(
                reached, app.store.objects, app.config.lake, settings, spread=spread
            ) as warehouse,
        ):
            warehouse.report = app.report
            yield warehouse

    return Loading(
        store=app.store,
        open_target=opened,
        target_name=target_name,
        place=app.config.place_of(table),
        session_id=app.run.session_id,
        batch_bytes=loading.batch_mb * MEBIBYTE,
        load_only=load_only,
        target_missing=lambda: surely_missing(target),
        report=app.report,
        quarantine_limit=app.config.settings.loading.quarantine_limit,
    )
