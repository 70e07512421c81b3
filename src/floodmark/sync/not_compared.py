"""Count the rows of a table that a comparison of source and target leaves out."""

from msgspec import structs

from floodmark.config.models import TableSettings
from floodmark.model.cursor import CursorChoice
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName
from floodmark.model.verification import NotCompared, SyncedRange, VerificationResult
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.row_estimates import count_behind, count_unusable
from floodmark.planning.verify_ranges import gaps_between
from floodmark.sync.log_facts import Known
from floodmark.sync.plan import read_shape
from floodmark.sync.source import Source


def count_not_compared(
    session: MysqlSession, source: SourceTable, choice: CursorChoice, ranges: list[SyncedRange]
) -> tuple[NotCompared, ...]:
    """Count the rows outside of all compared ranges."""
    cursor = choice.cursor
    if cursor.kind == "none" and ranges:
        return ()
    gaps = [
        structs.replace(gap, rows=count_behind(session, source, cursor, gap.start, gap.end))
        for gap in gaps_between(ranges)
    ]
    unusable = NotCompared(kind="no_cursor", rows=count_unusable(session, source, cursor))
    # Before the start, the target may have rows that the source no longer has.
    return tuple(gap for gap in (*gaps, unusable) if gap.rows or gap.kind == "before_start")


def nothing_compared(
    server: Source, table: TableName, settings: TableSettings, known: Known
) -> tuple[NotCompared, ...]:
    """Count all rows of a table that was never loaded."""
    with server.session() as session:
        source, choice, _ = read_shape(session, table, settings, known)
        return count_not_compared(session, source, choice, [])


def known_not_compared(watermark: Watermark | None) -> tuple[NotCompared, ...]:
    """Return the rows before the table's start, as counted when it began."""
    before = watermark.mysql_state.before_start if watermark else None
    if before is None:
        return ()
    end, rows, exact = before.up_to, before.rows, before.exact
    return (NotCompared(kind="before_start", rows=rows, exact=exact, end=end),)


def outside(rows: int) -> tuple[NotCompared, ...]:
    """Return the rows of the target that no window contains."""
    return (NotCompared(kind="outside", rows=rows),) if rows > 0 else ()


def quarantined(result: VerificationResult) -> tuple[NotCompared, ...]:
    """Return the rows that a comparison found in quarantine."""
    found = NotCompared(kind="quarantined", rows=result.quarantined)
    return (found,) if found.rows else ()
