"""Check that the clock that stamps a table's rows was not set back.

The position of a DATETIME cursor is a wall-clock time in some zone. If that clock is set back (the
server's time zone changes, a TIMESTAMP becomes a DATETIME, a failover leads to a server elsewhere),
new rows are stamped before the position, and would never be read.
"""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from floodmark.config.models import ExtractionSettings
from floodmark.errors import FloodmarkError
from floodmark.model.position import Position
from floodmark.model.timestamps import moved
from floodmark.model.watermark import Watermark
from floodmark.sync.plan import TablePlan
from floodmark.sync.source import Source

_SKEW = timedelta(seconds=5)
_SECOND = timedelta(seconds=1)  # rows at exactly the position set are not read


def check_clock_change(
    source: Source, settings: ExtractionSettings, watermark: Watermark | None, plan: TablePlan
) -> None:
    """Raise FloodmarkError if the clock that the position was read by has been set back."""
    position = watermark.position if watermark else Position()
    moment, present = position.timestamp, plan.clock
    if watermark is None or moment is None or present is None or plan.held_back:
        return
    table = plan.source.name
    before = watermark.mysql_state.clock
    if (
        before and present.offset_seconds < before.offset_seconds
    ):  # or daylight saving time has ended
        back = timedelta(seconds=before.offset_seconds) - _offset(source, settings, plan, before.at)
        if back > timedelta(0):
            raise _set_back(
                f"{table}: its position {position.base} was read by a clock that is {back} ahead of"
                " the one that stamps its rows now",
                str(table),
                moved(moment, -back - _SECOND),
            )
    wall = present.at + timedelta(seconds=present.offset_seconds)
    if moment > wall + _SKEW:
        raise _set_back(
            f"{table}: its position {position.base} is ahead of the clock that stamps its rows,"
            f" {wall:%Y-%m-%d %H:%M:%S}",
            str(table),
            wall - _elapsed(watermark, present.at) - _SKEW,
        )


def _elapsed(watermark: Watermark, now: datetime) -> timedelta:
    """Return the time since the last read: the clock may have been set back at any moment since."""
    last = watermark.mysql_state.last_extraction_time
    return max(timedelta(0), now - last) if last else timedelta(0)


def _set_back(what: str, table: str, moment: datetime) -> FloodmarkError:
    return FloodmarkError(
        f"{what}: rows stamped in between would be missed",
        hint="if that clock is right, 'floodmark watermark set -t"
        f' {table} --timestamp "{moment:%Y-%m-%d %H:%M:%S}"\' moves the position back to it',
    )


def _offset(
    source: Source, settings: ExtractionSettings, plan: TablePlan, at: datetime
) -> timedelta:
    """Return the offset from UTC of the cursor's clock at a moment, by its present zone."""
    cursor = plan.choice.cursor
    assert cursor.timestamp is not None
    if plan.source.column(cursor.timestamp).data_type == "timestamp":
        return timedelta(0)
    if settings.cursor_time_zone:
        return at.astimezone(ZoneInfo(settings.cursor_time_zone)).utcoffset() or timedelta(0)
    return source.offset_at(at)
