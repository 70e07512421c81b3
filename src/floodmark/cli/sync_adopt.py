"""`floodmark sync --adopt`: files of older systems."""

from contextlib import suppress

from msgspec import structs

from floodmark.cli.app import App
from floodmark.cli.loading import MEBIBYTE
from floodmark.config.models import MysqlConnection
from floodmark.errors import StateError
from floodmark.model.table import TableName
from floodmark.sync.adoption import Adoption, adopt_files, foreign_files
from floodmark.sync.result import TableResult


def adoption_of(app: App, folder: str | None) -> Adoption:
    """How this run adopts files."""
    settings = app.config.settings
    return Adoption(
        store=app.store,
        hours=settings.loading.adopt_hours,
        most_bytes=settings.loading.batch_mb * MEBIBYTE,
        session_id=app.run.session_id,
        folder=folder,
        report=app.report,
    )


def adopt_table(
    app: App, adoption: Adoption, table: TableName, connection: MysqlConnection
) -> TableResult:
    """Adopt the files of a table, before it is loaded."""
    done = adopt_files(adoption, table, connection, app.table_settings(table))
    return structs.replace(
        TableResult(table_name=str(table)),
        adopted_files=done.files,
        adopted_rows=done.rows,
        left_out_files=done.left_out,
    )


def mention_foreign_files(app: App, table: TableName) -> None:
    """Say that there are files to adopt, where nothing else is there to be loaded."""
    with suppress(StateError):  # which is for whoever loads or adopts to say
        watermark = app.store.get(table)
        if watermark is not None and watermark.mysql_state.chunk_count:
            return
        if not (files := foreign_files(adoption_of(app, None), table)):
            return
        app.warn(f"{table}: {len(files):,} Parquet files have no manifest; --adopt loads them")
