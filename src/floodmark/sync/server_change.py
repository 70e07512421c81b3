"""Check after a failover that the new server has everything up to a table's position.

A position means that all rows up to it were read from one server. On another server that is true
only if it has executed the same transactions. If it lacks some, it lags behind or has diverged, and
rows could appear before the position and never be read.
"""

from floodmark.errors import ServerBehind
from floodmark.model.manifest import Chunk
from floodmark.model.notice import Notice, Report
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.gtids import has_executed, is_of
from floodmark.mysql.row_estimates import count_window, has_reached
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.plan import TablePlan
from floodmark.sync.source import Source


def check_server_change(
    store: WatermarkStore,
    source: Source,
    session: MysqlSession,
    watermark: Watermark | None,
    plan: TablePlan,
    report: Report,
) -> None:
    """Raise ServerBehind if the server has changed, and the new one lacks what was read before.

    Compare GTIDs if both servers have them; else the position and the rows of the last chunk.
    """
    before = watermark.mysql_state.server if watermark else None
    if watermark is None or before is None or before == source.server.identity or plan.held_back:
        return
    table = plan.source.name
    chunk, gtids = _chunk_before(store, watermark, table)
    executed = None
    if gtids and is_of(source.server.product, gtids):
        executed = has_executed(session, source.server, gtids)
    if executed is None:
        how = "position and row counts"
        reason = _compare_rows(session, plan, chunk, watermark.position)
    else:
        how = "its GTIDs"
        reason = None if executed else "it has not executed all transactions that were read there"
    if reason:
        flag = "--id" if plan.choice.cursor.kind == "id" else "--timestamp"
        raise ServerBehind(
            f"{table}: its position was read from server {before}, and this is server"
            f" {source.server.identity}: {reason}",
            hint="if it is a replica that is catching up, try again later; if it was promoted"
            f" without them, 'floodmark watermark set -t {table} {flag} …' goes back to before"
            f" the failover, and 'floodmark watermark reset -t {table}' reads all of it again",
        )
    source.announce(
        Notice(
            "warning",
            f"the server is now {source.server.identity} instead of {before};"
            f" it has everything that was read there, by {how}",
            "server_changed",
        ),
        report,
    )


def _chunk_before(
    store: WatermarkStore, watermark: Watermark, table: TableName
) -> tuple[Chunk | None, str | None]:
    """Return the chunk that ends at the position, and the newest GTIDs that were read since.

    After a restore, that need not be the last chunk.
    """
    newest: str | None = None
    for chunk in store.log.chunks(table, newest_first=True):
        if chunk.reconciled:
            newest = newest or chunk.gtids
        if chunk.moves_position and chunk.end == watermark.position:
            return chunk, newest or chunk.gtids
    return None, None


def _compare_rows(
    session: MysqlSession, plan: TablePlan, chunk: Chunk | None, position: Position
) -> str | None:
    """Return evidence that the server lacks rows; None if there is none."""
    source, cursor = plan.source, plan.choice.cursor
    if cursor.kind == "none" or position.is_start:
        return None
    if not has_reached(session, source, cursor, position.base, index=plan.choice.index):
        return f"its rows end before the position {position.base}"
    if chunk is None:
        return None
    rows = chunk.rows + chunk.quarantined_rows
    found = count_window(session, source, cursor, chunk.start, chunk.end)
    if found > rows:
        return f"it has {found:,} rows from {chunk.start} to {chunk.end}, where {rows:,} were read"
    return None
