"""MySQL servers: can they be reached, may they be read, what time is it there."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from floodmark.checks.check import Check, check_clock
from floodmark.config.models import ExtractionSettings
from floodmark.model.bound import Activity
from floodmark.sources.connection import MysqlSession
from floodmark.sources.strides import query


def check_server(
    scope: str, session: MysqlSession, activity: Activity, clock: Callable[[], datetime]
) -> Iterator[Check]:
    """Version, time zone, clock, and whether transactions in flight can be seen."""
    subject = f"source {scope}"
    version = query(session, "SELECT VERSION()")[0][0]
    yield Check(subject=subject, finding=f"{version}, time zone {activity.server_zone}")
    before = clock()
    theirs: datetime = query(session, "SELECT UTC_TIMESTAMP(6)")[0][0]
    yield check_clock(subject, theirs.replace(tzinfo=UTC), before, clock())
    if activity.unseen:
        yield Check(
            subject=subject,
            state="note",
            finding=f"transactions in flight cannot be seen ({activity.unseen}),"
            " so reading stays 'extraction.lag_seconds' behind, 60 if not set",
            hint="GRANT PROCESS ON *.* TO the user, if this is a primary",
        )
    elif activity.holder:
        yield Check(subject=subject, state="note", finding=f"now held back by {activity.holder}")


def check_zone(settings: ExtractionSettings) -> Iterator[Check]:
    """Whether the time zone of DATETIME cursors exists, if one is set."""
    zone = settings.cursor_time_zone
    if zone is None:
        return
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        yield Check(
            subject="time zone",
            state="failed",
            finding=f"extraction.cursor_time_zone: unknown time zone {zone!r}",
            hint="write it as 'America/New_York' or 'UTC'",
        )
    else:
        yield Check(subject="time zone", finding=f"DATETIME cursors are in {zone}, as configured")
