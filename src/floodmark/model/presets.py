"""Presets: short names for points in time."""

import re
from calendar import monthrange
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from floodmark.errors import UsageError

BUILT_IN = {
    "aug4": datetime(2025, 8, 4, tzinfo=UTC),
    "aug1": datetime(2025, 8, 1, tzinfo=UTC),
}
_RELATIVE = re.compile(r"([1-9][0-9]{0,3})(day|week|month)s?")


def preset_moment(name: str, configured: Mapping[str, datetime], now: datetime) -> datetime:
    """Return the time of a preset; UsageError if there is no such preset."""
    known = BUILT_IN | dict(configured)
    if name in known:
        return known[name]
    relative = _RELATIVE.fullmatch(name)
    if relative is None:
        names = ", ".join([*sorted(known), "1week", "1month", "Nday", "Nweek", "Nmonth"])
        raise UsageError(f"unknown preset {name!r}", hint=f"one of {names}")
    count, unit = int(relative[1]), relative[2]
    try:
        if unit == "month":
            return _months_before(now, count)
        return now - timedelta(days=count * (7 if unit == "week" else 1))
    except (ValueError, OverflowError):
        raise UsageError(f"preset {name!r} is before the year 1") from None


def _months_before(now: datetime, months: int) -> datetime:
    """Return the same day of an earlier month, or its last day if it is shorter."""
    year, month = divmod(now.year * 12 + now.month - 1 - months, 12)
    day = min(now.day, monthrange(year, month + 1)[1])
    return now.replace(year=year, month=month + 1, day=day)
