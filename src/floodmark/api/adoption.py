"""Adopt Parquet files of older systems."""

from contextlib import suppress

from msgspec import structs

from floodmark.api.context import RunContext
from floodmark.api.loading import MEBIBYTE
from floodmark.config.models import MysqlConnection
from floodmark.errors import StateError
from floodmark.model.formatting import counted
from floodmark.model.table import TableName
from floodmark.sync.adopt import Adoption, adopt_files, foreign_files
from floodmark.sync.result import TableResult


def adoption_of(run: RunContext, folder: str | None) -> Adoption:
    """Return the adoption settings of this run."""
    settings = run.config.settings
    return Adoption(
        store=run.store,
        warehouse_of=run.config.warehouse_title,
        hours=settings.loading.adopt_hours,
        most_bytes=settings.loading.batch_mb * MEBIBYTE,
        most_file_bytes=settings.loading.adopt_mb * MEBIBYTE,
        session_id=run.run.session_id,
        folder=folder,
        report=run.report,
    )


def adopt_table(
    run: RunContext, adoption: Adoption, table: TableName, connection: MysqlConnection
) -> TableResult:
    """Adopt the files of a table before loading it."""
    done = adopt_files(adoption, table, connection, run.table_settings(table))
    return structs.replace(
        TableResult(table_name=str(table)),
        adopted_files=done.files,
        adopted_rows=done.rows,
        left_out_files=done.left_out,
    )


def warn_of_adoptable_files(run: RunContext, table: TableName) -> None:
    """Warn if there are files to adopt and nothing else to load."""
    with suppress(StateError):  # the load or the adoption reports it
        watermark = run.store.get(table)
        if watermark is not None and watermark.mysql_state.chunk_count:
            return
        if not (files := foreign_files(adoption_of(run, None), table)):
            return
        run.warn(
            f"{table}: {counted(len(files), 'Parquet file')} without a manifest; --adopt loads them"
        )
