"""Check MySQL servers: version, clock, and how far they can be read."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from floodmark.checks.check import Check, check_clock
from floodmark.config.models import ExtractionSettings, MysqlConnection
from floodmark.model.bound import Activity
from floodmark.model.server import Server
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.in_flight import read_clock
from floodmark.planning.bounds import REPLICA_LAG, held_back, why_held
from floodmark.planning.replication import NAME_PRIMARY, role_of


def check_server(
    scope: str, session: MysqlSession, server_zone: str, clock: Callable[[], datetime]
) -> Iterator[Check]:
    """Check version, time zone and clock."""
    subject = f"source {scope}"
    server = session.server
    assert server is not None
    product = "" if server.product == "mariadb" else "MySQL "
    finding = f"{product}{server.version}, server {server.identity}, time zone {server_zone}"
    yield Check(subject=subject, finding=finding)
    before = clock()
    yield check_clock(subject, read_clock(session), before, clock())


def check_bounds(
    scope: str,
    connection: MysqlConnection,
    server: Server,
    activity: Activity,
    settings: ExtractionSettings,
) -> Iterator[Check]:
    """Check how far the server can be read, and what to grant."""
    subject = f"source {scope}"
    lag = None if settings.lag_seconds is None else timedelta(seconds=settings.lag_seconds)
    if why := why_held(activity, lag):
        yield Check(
            subject=subject,
            state="failed",
            finding=f"held back, no new rows would be read: {why}",
            hint=held_back(activity, lag).hint,
        )
    elif connection.primary:
        place = f"{connection.primary.host}:{connection.primary.port or connection.port}"
        finding = f"reads exactly up to the settled position of its primary {place}, by GTID"
        yield Check(subject=subject, finding=finding)
    elif activity.unseen:
        seconds = (REPLICA_LAG if lag is None else lag).total_seconds()
        applied = f"; applied up to {activity.applied:%Y-%m-%d %H:%M:%S} UTC"
        yield Check(
            subject=subject,
            state="note",
            finding=f"{activity.unseen}; reading stays {seconds:g} s behind"
            f" ('extraction.lag_seconds'); no transaction may take longer"
            f"{applied if activity.applied else ''}",
            hint=NAME_PRIMARY if role_of(server).kind == "replica" else None,
        )
    else:
        yield Check(subject=subject, finding="a primary: open transactions are visible")
    if activity.holder and not activity.unseen:
        yield Check(
            subject=subject, state="note", finding=f"currently held back by {activity.holder}"
        )


def check_zone(settings: ExtractionSettings) -> Iterator[Check]:
    """Check the time zone of DATETIME cursors, if one is set."""
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
