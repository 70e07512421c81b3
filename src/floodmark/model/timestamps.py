"""Points in time: always UTC, to the microsecond."""

from datetime import UTC, datetime, timedelta

from floodmark.errors import UsageError

FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


def parse_timestamp(text: str) -> datetime:
    """Read a date or a date and time; without a zone it is UTC."""
    try:
        return as_utc(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):  # a zone can carry a date over the calendar's end
        raise UsageError(
            f"{text!r} is not a timestamp", hint="write it as '2025-08-09 20:00:01'"
        ) from None


def as_utc(value: datetime) -> datetime:
    """The same moment in UTC; a value without a zone is taken as UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def moved(value: datetime, by: timedelta) -> datetime:
    """The moment that lies so far away, or else the calendar's first or last one."""
    try:
        return value + by
    except OverflowError:
        return LAST_MOMENT if by > timedelta(0) else FIRST_MOMENT


def plain(value: datetime) -> str:
    """Show a moment the way MySQL does: `2025-08-09 20:00:01`, with a fraction if it has one."""
    return as_utc(value).replace(tzinfo=None).isoformat(sep=" ")


def stamped(value: datetime) -> str:
    """Show a moment with its zone: `2025-08-09T20:00:01Z`, with a fraction if it has one."""
    return as_utc(value).replace(tzinfo=None).isoformat() + "Z"


def utc_now() -> datetime:
    """The wall clock. Passed to whoever needs the time; called by nobody else."""
    return datetime.now(UTC)
