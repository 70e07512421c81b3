"""Wall clocks: what a DATETIME column shows at a moment, and will show from then on."""

from datetime import UTC, datetime, timedelta, tzinfo

_HORIZON = timedelta(hours=26)
_STEP = timedelta(minutes=15)


def earliest_wall(moment: datetime, zone: tzinfo) -> datetime:
    """The earliest time that a clock in this zone can show at a moment or after it, as if in UTC.

    When clocks are put back, an hour is shown twice. Before that, what is still to be shown begins
    at the repeated hour; so the hour is held back until it is shown for the second time.
    """
    quarter = moment.replace(minute=moment.minute // 15 * 15, second=0, microsecond=0)
    # Clocks are changed at full quarters, and between changes they only go forward.
    steps = range(1, _HORIZON // _STEP + 1)
    return min(_wall(at, zone) for at in (moment, *(quarter + _STEP * step for step in steps)))


def _wall(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=UTC)
