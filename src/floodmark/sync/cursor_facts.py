"""What is known of a table's cursor when an operator sets a position: its kind, its clock.

By the configuration, by what was read last, or by asking the source. What none of them can tell is
None, and is said.
"""

from datetime import timedelta
from typing import Literal

from msgspec import Struct

from floodmark.config.models import ExtractionSettings
from floodmark.model.cursor import Cursor, CursorChoice, key_kind
from floodmark.model.manifest import Chunk
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.model.standing import Clock
from floodmark.sources.connection import MysqlSession, repeatable
from floodmark.sources.counts import count_some, estimate_rows
from floodmark.sources.in_flight import read_clock
from floodmark.sync.bound import configured_zone
from floodmark.sync.source import Source

COUNT_AT_MOST = 100_000
"""More rows than these are estimated."""


class CursorFacts(Struct, frozen=True, kw_only=True):
    """What is known of a cursor: of what kind it is, and of a time cursor, whose clock it shows.

    `described` says that of a time column, `offset` is how far it is ahead of UTC. `id_problem` is
    why a whole number is no part of a position. `problem` is why the source could not be asked.
    """

    kind: Literal["timestamp", "id", "none"] | None = None
    offset: timedelta | None = None
    described: str = ""
    id_problem: str | None = None
    problem: str | None = None


def remembered(
    columns: tuple[str, ...] | None, last: Chunk | None, before: Position | None
) -> CursorFacts:
    """What the configuration and the last chunk say."""
    if columns == () or (columns is None and last and last.reload):
        return CursorFacts(kind="none")
    if columns and len(columns) > 1:
        return _by_time(columns[0], last)
    read = None if last is None or last.reload else last
    if read and read.version and columns in (None, (read.version,)):
        return _by_time(read.version, last)
    if (read and not read.version) or (before and before.timestamp is None and before.id):
        return CursorFacts(kind="id")
    return CursorFacts()


def _by_time(column: str, last: Chunk | None) -> CursorFacts:
    clock = last.clock if last and last.version == column else None
    return CursorFacts(
        kind="timestamp",
        offset=timedelta(seconds=clock.offset_seconds) if clock else None,
        described=f"{column} ({show_offset(clock)} when it was last read)" if clock else column,
    )


def read_facts(
    source: Source,
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    settings: ExtractionSettings,
) -> CursorFacts:
    """What the source says."""
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
    """Why a whole number cannot stand behind the time of a cursor."""
    if not cursor.key:
        return f"its cursor {cursor} has no id"
    column = table.column(cursor.key[0])
    if key_kind(column) == "integer":
        return None
    return f"in its cursor {cursor}, {column.name} is {column.column_type} and no whole number"


def count_between(
    session: MysqlSession, table: SourceTable, choice: CursorChoice, start: Position, end: Position
) -> str:
    """How many rows lie behind one position and up to another: counted if few, else estimated."""
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


def show_offset(clock: Clock) -> str:
    """The zone of a clock: `zone +08:00`."""
    minutes = abs(clock.offset_seconds) // 60
    sign = "-" if clock.offset_seconds < 0 else "+"
    return f"zone {sign}{minutes // 60:02d}:{minutes % 60:02d}"
