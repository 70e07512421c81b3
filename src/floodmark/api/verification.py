"""Build the comparison of a table from the configuration."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from floodmark.api.context import RunContext
from floodmark.model.position import START
from floodmark.model.table import TableName
from floodmark.sync.extraction import Engine, Extraction
from floodmark.sync.source import Source
from floodmark.sync.verify import Verification
from floodmark.tunnels.tunnel import Tunnels
from floodmark.warehouse.factory import open_reader


@contextmanager
def verification_of(
    run: RunContext, table: TableName, engine: Engine, tunnels: Tunnels, *, everything: bool
) -> Iterator[Verification]:
    """Yield how to compare a table, with open connections."""
    _, target_name = run.config.target_of(table)
    with (
        tunnels.through(run.mysql(table.scope)) as connection,
        tunnels.through(run.target(table)) as target,
        Source(connection) as source,
    ):
        yield Verification(
            extraction=Extraction(
                store=run.store,
                source=source,
                settings=run.config.settings.extraction,
                lake=run.config.lake,
                engine=engine,
                strategy="intra-table",
                session_id=run.run.session_id,
                default_start=START,
            ),
            open_target=partial(open_reader, target, run.config.lake),
            target_name=target_name,
            everything=everything,
        )
