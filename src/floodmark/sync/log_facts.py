"""Find the cursor that a table was read by, and the key that it was loaded by."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from floodmark.model.cursor import CursorColumn
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Column, Reset
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.mysql.keys import KnownKey, free_choice
from floodmark.state.manifest_log import ManifestLog


class Known(Struct, frozen=True, kw_only=True):
    """The cursor of a table's position and the key of its rows, kept as long as possible.

    `columns` returns those that it had when it was last read.
    """

    cursor: Sequence[CursorColumn] | None = None
    key: KnownKey = free_choice
    columns: Callable[[], Sequence[Column]] = tuple


def known_of(log: ManifestLog, table: TableName, watermark: Watermark | None) -> Known:
    """Return what is known of a table; the log is read only if the key is needed."""
    return Known(
        cursor=watermark.mysql_state.cursor if watermark else None,
        key=partial(find_known_key, log, table, watermark),
        columns=partial(newest_columns, log, table),
    )


def find_known_key(
    log: ManifestLog, table: TableName, watermark: Watermark | None
) -> tuple[str, ...] | None:
    """Return the key of the last chunk; `()` if rows were appended, None if any key may be chosen.

    After a reset, appended rows are read again; a reload replaces them.
    """
    if watermark is None or watermark.mysql_state.last_manifest is None:
        return None
    change = log.read(table, ManifestId.parse(watermark.mysql_state.last_manifest)).change
    if isinstance(change, Chunk):  # as nearly always
        free = change.reload or change.only_columns
        return change.primary_key or (None if free else ())
    was_reset = False
    for manifest in log.manifests(table, newest_first=True):
        change = manifest.change
        if isinstance(change, Chunk):
            free = change.reload or change.only_columns or was_reset
            return change.primary_key or (None if free else ())
        was_reset |= isinstance(change, Reset) and "extract" in change.stages
    return None


def columns_in(log: ManifestLog, table: TableName) -> set[str]:
    """Return the names of all columns that a table ever had."""
    return {column.name for chunk in log.chunks(table) for column in chunk.columns}


def newest_columns(log: ManifestLog, table: TableName) -> tuple[Column, ...]:
    """Return the columns that a table had when it was last read; none if it never was.

    Files of an older system do not count: they have their own columns.
    """
    chunks = log.chunks(table, newest_first=True)
    return next((chunk.columns for chunk in chunks if chunk.columns and not chunk.adopted), ())
