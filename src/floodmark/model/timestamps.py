"""Points in time: always UTC, to the microsecond."""

from datetime import UTC, datetime, timedelta

from floodmark.errors import UsageError

FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


def parse_timestamp(text: str) -> datetime:
    """Parse a date or a date and time; without a time zone it is UTC."""
    try:
        return as_utc(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):  # the conversion to UTC may leave the calendar
        raise UsageError(
            f"{text!r} is not a timestamp", hint="write it as '2025-08-09 20:00:01'"
        ) from None


def as_utc(value: datetime) -> datetime:
    """Return the same time in UTC; a value without a time zone is UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def moved(value: datetime, by: timedelta) -> datetime:
    """Add a duration, clamped to the first and last representable time."""
    try:
        return value + by
    except OverflowError:
        return LAST_MOMENT if by > timedelta(0) else FIRST_MOMENT


def plain(value: datetime) -> str:
    """Format a time as MySQL does: `2025-08-09 20:00:01`, with a fraction if it has one."""
    return as_utc(value).replace(tzinfo=None).isoformat(sep=" ")


def stamped(value: datetime) -> str:
    """Format a time with its zone: `2025-08-09T20:00:01Z`, with a fraction if it has one."""
    return as_utc(value).replace(tzinfo=None).isoformat() + "Z"


def utc_now() -> datetime:
    """Return the current time. Pass this function as a clock; do not call it elsewhere."""
    return datetime.now(UTC)
