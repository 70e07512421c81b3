"""Count the rows that are not read: those before a table's start, and those in the future."""

from datetime import datetime

from msgspec import Struct, structs

from floodmark.config.models import ExtractionSettings, TableSettings
from floodmark.model.cursor import CursorChoice
from floodmark.model.history import RowCount, RowsBefore, StartedBy
from floodmark.model.log_state import Clock
from floodmark.model.position import START, Position
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.row_estimates import count_outside
from floodmark.planning.history import begins, how_to_read, judge_before, judge_future
from floodmark.planning.next_position import first_position
from floodmark.sync.bound import configured_zone, cursor_clock
from floodmark.sync.log_facts import Known
from floodmark.sync.plan import TablePlan, read_shape
from floodmark.sync.source import Source

# Counting this many index entries is fast; without an index the plan reads all rows anyway.
_MOST_COUNTED = 1_000_000
_MOST_LOOKED_AT = 100_000


class Outside(Struct, frozen=True, kw_only=True):
    """Rows that are not read.

    `before` are those before the table's start; `begins` if it starts in this run.
    """

    before: RowsBefore | None = None
    begins: bool = False
    future: RowCount = RowCount()

    def after(self, earlier: "Outside") -> "Outside":
        """Keep what an earlier plan of the same run found before its start."""
        if not earlier.begins:
            return self
        return structs.replace(self, before=earlier.before, begins=True)


class Remark(Struct, frozen=True):
    """A remark, and what to do about it."""

    text: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.text}; to read them, {self.hint}" if self.hint else self.text


def remarks_on(
    outside: Outside, source: SourceTable, choice: CursorChoice, *, synced: bool
) -> list[Remark]:
    """Return remarks on rows that are not read."""
    table, remarks = source.name, []
    if before := outside.before:
        how = how_to_read(table, before, synced=synced, keyed=bool(source.primary_key))
        remarks.append(Remark(judge_before(table, before), how))
    if future := judge_future(table, choice.cursor.timestamp, outside.future):
        remarks.append(Remark(future))
    return remarks


def rows_outside(
    session: MysqlSession,
    plan: TablePlan,
    watermark: Watermark | None,
    start_by: StartedBy,
    now: datetime,
) -> Outside:
    """Count the rows that a plan leaves out; keep the count of a table that began earlier."""
    first = begins(watermark, plan.start)
    most = _MOST_COUNTED if plan.choice.index else None
    up_to = plan.start if first else None
    before, future = _count(session, plan.source, plan.choice, up_to, plan.clock, most)
    if first:
        return Outside(
            before=_before(before, plan.start, _by(watermark, start_by), now),
            begins=bool(before),
            future=future,
        )
    known = watermark.mysql_state.before_start if watermark else None
    return Outside(before=None if plan.start.is_start else known, future=future)


def foresee_outside(
    server: Source,
    session: MysqlSession,
    table: TableName,
    table_settings: TableSettings,
    settings: ExtractionSettings,
    watermark: Watermark | None,
    known: Known,
    default_start: tuple[Position, StartedBy],
    now: datetime,
) -> list[Remark]:
    """Return remarks on rows that will not be read, from a quick look."""
    source, choice, _ = read_shape(session, table, table_settings, known)
    position = watermark.position if watermark else START
    first, start_by = default_start
    start = first_position(choice.cursor.kind, position, first)
    before = watermark.mysql_state.before_start if watermark and not start.is_start else None
    up_to, by = (before.up_to, before.by) if before else (START, start_by)
    if begins(watermark, start):
        up_to, by = start, _by(watermark, start_by)
    zone = configured_zone(settings.cursor_time_zone)
    clock = cursor_clock(source, choice.cursor, server.activity(), zone)
    left_out, future = _count(
        session, source, choice, None if up_to.is_start else up_to, clock, _MOST_LOOKED_AT
    )
    outside = Outside(before=_before(left_out, up_to, by, now), future=future)
    return remarks_on(outside, source, choice, synced=not position.is_start)


def _count(
    session: MysqlSession,
    source: SourceTable,
    choice: CursorChoice,
    up_to: Position | None,
    clock: Clock | None,
    most: int | None,
) -> tuple[RowCount, RowCount]:
    cursor, index = choice.cursor, choice.index
    if cursor.kind == "none":
        return RowCount(), RowCount()
    return count_outside(session, source, cursor, index=index, up_to=up_to, clock=clock, most=most)


def _before(count: RowCount, up_to: Position, by: StartedBy, now: datetime) -> RowsBefore | None:
    if not count:
        return None
    return RowsBefore(up_to=up_to, rows=count.rows, exact=count.exact, by=by, counted_at=now)


def _by(watermark: Watermark | None, start_by: StartedBy) -> StartedBy:
    by_hand = watermark is not None and not watermark.position.is_start
    return "operator" if by_hand else start_by
