"""Check that a source can show what was loaded from it, before anything counts as deleted."""

from msgspec import Struct

from floodmark.errors import ServerBehind, UsageError
from floodmark.model.manifest import Chunk
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.gtids import has_executed, is_of
from floodmark.sync.clock_change import check_clock_change
from floodmark.sync.extraction import Extraction
from floodmark.sync.plan import TablePlan
from floodmark.sync.server_change import check_server_change


class HeldBack(Struct, frozen=True):
    """Why a source cannot show everything up to a position, and how to fix that."""

    reason: str
    hint: str | None = None


def check_source(
    extraction: Extraction, session: MysqlSession, watermark: Watermark, plan: TablePlan
) -> HeldBack | None:
    """Return what keeps the source from showing everything up to the table's position.

    ServerBehind if it is another server, or the same one restored from a backup, without
    transactions that were read before.
    """
    if plan.held_back is not None:
        held = plan.held_back
        return HeldBack(held.held_by or "the server cannot show all transactions", held.hint)
    store, source = extraction.store, extraction.source
    check_clock_change(source, extraction.settings, watermark, plan)
    check_server_change(store, source, session, watermark, plan, extraction.report)
    _refuse_older_server(extraction, session, plan.source.name)
    activity, end = source.activity(), plan.end
    if activity.unseen and end is not None and end.compare(watermark.position.base) == -1:
        return HeldBack(
            f"the server has applied everything only up to {end}, and the table was read up to"
            f" {watermark.position.base}: {activity.unseen}"
        )
    return None


def _refuse_older_server(extraction: Extraction, session: MysqlSession, table: TableName) -> None:
    """Raise ServerBehind if the server lacks transactions that were read at the last chunk."""
    chunk = _last_chunk(extraction, table)
    server = extraction.source.server
    if chunk is None or not chunk.gtids or not is_of(server.product, chunk.gtids):
        return
    if has_executed(session, server, chunk.gtids) is False:
        raise ServerBehind(
            f"{table}: server {server.identity} has not executed all transactions that were read"
            " before: it was restored from a backup, it lags behind, or its GTIDs were reset",
            hint="if it only lags behind, try again later; if it has new rows, 'floodmark sync -t"
            f" {table}' first records what it has now",
        )


def _last_chunk(extraction: Extraction, table: TableName) -> Chunk | None:
    chunks = extraction.store.log.chunks(table, newest_first=True)
    # Earlier versions recorded no GTIDs with repaired rows.
    return next(
        (one for one in chunks if not one.adopted and (one.gtids or not one.reconciled)), None
    )


def why_skipped(plan: TablePlan, position: Position) -> str | None:
    """Return why there is nothing to reconcile; None if there is something."""
    if plan.choice.cursor.kind == "none":
        return "every sync reads the whole table and replaces it, which includes deletes"
    if position.walk is not None:
        return "its first load is not complete"
    if position.is_start:
        return "nothing is loaded yet"
    return None


def refuse_without_key(source: SourceTable, hint: str | None = None) -> None:
    """Raise UsageError for a table without a primary key; its hint is for one that is synced."""
    if source.primary_key:
        return
    table = source.name
    raise UsageError(
        f"{table} has no primary key, so its rows cannot be told apart, deleted or repaired one by"
        " one",
        hint=hint
        or f"'floodmark sync -t {table} --verify-data=all' compares it row by row, and 'floodmark"
        f" watermark reset -t {table} --force' and sync load all of it again; or add a primary key",
    )


def refuse_column(
    extraction: Extraction, source: SourceTable, name: str, marked: str | None
) -> None:
    """Raise UsageError if the column that marks deleted rows cannot have this name.

    `marked` is the column in which earlier ones are marked, if there are some.
    """
    if name == marked:
        return
    if marked is not None:
        raise UsageError(
            f"{source.name}: its deleted rows are marked in {marked!r}, and 'deleted_at' is"
            f" {name!r} now",
            hint=f"set 'deleted_at: {marked}' under 'reconcile:' again",
        )
    taken = {column.name.lower() for column in source.columns}
    if name.lower() in taken or extraction.reserved([name]):
        raise UsageError(
            f"{source.name}: deleted rows cannot be marked in {name!r}: the table has a column of"
            " that name, or the target reserves it",
            hint="set another 'deleted_at' under 'reconcile:'",
        )
