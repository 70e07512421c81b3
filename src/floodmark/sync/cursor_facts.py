"""Read facts about a table's cursor for an operator who sets a position: its clock, its rows."""

from datetime import timedelta

from floodmark.config.models import ExtractionSettings
from floodmark.model.cursor import Cursor, CursorChoice, key_kind
from floodmark.model.cursor_facts import CursorFacts, show_offset
from floodmark.model.log_state import Clock
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.mysql.connection import MysqlSession, repeatable
from floodmark.mysql.in_flight import read_clock
from floodmark.mysql.row_estimates import count_some, estimate_rows
from floodmark.sync.bound import configured_zone
from floodmark.sync.source import Source

COUNT_AT_MOST = 100_000
"""Above this, rows are estimated."""


def read_facts(
    source: Source,
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    settings: ExtractionSettings,
) -> CursorFacts:
    """Read the facts from the source."""
    if cursor.timestamp is None:
        return CursorFacts(kind=cursor.kind)
    now = repeatable(session, lambda: read_clock(session))
    column, zone = table.column(cursor.timestamp), configured_zone(settings.cursor_time_zone)
    if column.data_type == "timestamp":
        offset, where = timedelta(0), "UTC"
    elif zone is not None:
        offset, where = now.astimezone(zone).utcoffset() or timedelta(0), f"zone {zone}"
    else:
        offset = source.offset_at(now)
        where = f"server {show_offset(Clock(offset_seconds=round(offset.total_seconds()), at=now))}"
    return CursorFacts(
        kind="timestamp",
        offset=offset,
        described=f"{column.name} ({column.data_type.upper()}, {where})",
        id_problem=_id_problem(table, cursor),
    )


def _id_problem(table: SourceTable, cursor: Cursor) -> str | None:
    """Say why a cursor's time cannot be followed by an integer id."""
    if not cursor.key:
        return f"its cursor {cursor} has no id"
    column = table.column(cursor.key[0])
    if key_kind(column) == "integer":
        return None
    return f"in its cursor {cursor}, {column.name} is {column.column_type}, not an integer"


def count_between(
    session: MysqlSession, table: SourceTable, choice: CursorChoice, start: Position, end: Position
) -> str:
    """Say how many rows are in `(start, end]`: counted if few, else estimated."""
    if choice.index is None and table.estimated_rows > COUNT_AT_MOST:
        return f"of about {table.estimated_rows:,} rows those"
    few = count_some(
        session, table, choice.cursor, start, end, index=choice.index, most=COUNT_AT_MOST
    )
    if few is not None:
        return f"{few:,} row{'' if few == 1 else 's'}"
    assert choice.index is not None
    many = estimate_rows(session, table, choice.cursor, start, end, index=choice.index)
    return f"about {max(many, COUNT_AT_MOST):,} rows"
