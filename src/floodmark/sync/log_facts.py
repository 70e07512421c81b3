"""Find the cursor that a table was read by, and the key that it was loaded by."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from floodmark.model.cursor import CursorColumn
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import FROM_MIRROR, Chunk, Column, Reset, Restore
from floodmark.model.table import TableName
from floodmark.model.transitions import FIRST_AFTER_LOSS
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


def loaded_chunks(
    log: ManifestLog, table: TableName, watermark: Watermark, after: ManifestId | None = None
) -> list[Chunk]:
    """Return the chunks whose rows are in the target; by default from the first one on."""
    epoch = watermark.redshift_state.eligible_from_epoch
    first = ManifestId(epoch, 0)
    after = after or first
    earlier = _before_loss(log, table, epoch) if after == first else []
    return [*earlier, *log.chunks(table, after=after, through=watermark.loaded_head)]


def _before_loss(log: ManifestLog, table: TableName, epoch: int) -> list[Chunk]:
    """Return what was loaded before the lake was lost, if the epoch began with that."""
    if epoch < FIRST_AFTER_LOSS:
        return []
    first = ManifestId(epoch, 1)
    begins = next(log.manifests(table, since=first, through=first), None)
    if begins is None or not isinstance(begins.change, Restore):
        return []
    known = begins.change.earlier.mysql_state.last_manifest
    if begins.change.origin != FROM_MIRROR or known is None:
        return []
    last = ManifestId.parse(known)
    since = log.read(table, last).standing.eligible_from_epoch
    chunks = log.chunks(table, after=ManifestId(since, 0), through=last)
    return [*_before_loss(log, table, since), *chunks]


def chunks_before(log: ManifestLog, table: TableName, watermark: Watermark) -> list[Chunk]:
    """Return the chunks that rows up to the position may be from, by their columns, in order.

    That is the last one, whose columns were checked against those before it, and adopted ones after
    it, which were not. If an operator moved the position since, it may be any.
    """
    last = watermark.mysql_state.last_manifest
    if last is None:
        return []
    change = log.read(table, ManifestId.parse(last)).change
    if isinstance(change, Chunk) and not change.adopted:  # as nearly always
        return [change] if change.columns else []
    first = ManifestId(watermark.mysql_state.counted_from_epoch, 0)
    found: list[Chunk] = []
    for manifest in log.manifests(table, since=first, newest_first=True):
        change = manifest.change
        if not isinstance(change, Chunk | Reset):
            return [chunk for chunk in log.chunks(table, since=first) if chunk.columns]
        if isinstance(change, Chunk) and change.columns:
            found.append(change)
            if not change.adopted:
                break
    return found[::-1]


def columns_in(log: ManifestLog, table: TableName) -> set[str]:
    """Return the names of all columns that a table ever had."""
    return {column.name for chunk in log.chunks(table) for column in chunk.columns}


def newest_columns(log: ManifestLog, table: TableName) -> tuple[Column, ...]:
    """Return the columns that a table had when it was last read; none if it never was.

    Files of an older system do not count: they have their own columns.
    """
    chunks = log.chunks(table, newest_first=True)
    return next((chunk.columns for chunk in chunks if chunk.columns and not chunk.adopted), ())
