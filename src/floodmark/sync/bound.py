"""Find how far one table may be read in this round, from facts of the server."""

import time
from datetime import timedelta, tzinfo
from functools import partial
from itertools import chain
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from floodmark.config.models import ExtractionSettings
from floodmark.errors import ConfigError
from floodmark.model.bound import Activity, Bound
from floodmark.model.cursor import Cursor, CursorChoice
from floodmark.model.log_state import Clock
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.in_flight import read_ceiling, read_first_gap
from floodmark.planning.access_path import walk_bound
from floodmark.planning.bounds import held_back, id_bound, timestamp_bound, why_held
from floodmark.sync.source import Source


def find_bound(
    server: Source,
    session: MysqlSession,
    source: SourceTable,
    choice: CursorChoice,
    settings: ExtractionSettings,
    start: Position,
    since: float,
) -> tuple[Bound | None, Activity]:
    """Return how far it is safe to read, and what was in flight; None if there is nothing to read.

    A key scan in progress keeps its original bound.
    """
    activity, lag, cursor = server.activity(since), configured_lag(settings), choice.cursor
    if (walking := walk_bound(start)) is not None:
        return Bound(position=walking), activity
    if cursor.kind == "id":
        return _id_bound(server, session, source, cursor.key[0], start, lag, since)
    if cursor.timestamp is not None:
        column, zone = source.column(cursor.timestamp), configured_zone(settings.cursor_time_zone)
        return timestamp_bound(activity, column, zone=zone, lag=lag), activity
    if activity.held:
        return held_back(activity, lag), activity
    moment = activity.now.replace(microsecond=0)
    return Bound(position=Position(moment), fresh=moment), activity


def _id_bound(
    server: Source,
    session: MysqlSession,
    source: SourceTable,
    column: str,
    start: Position,
    lag: timedelta | None,
    since: float,
) -> tuple[Bound | None, Activity]:
    """Return how far ids may be read, given what was in flight after the greatest one was read."""
    find = partial(read_ceiling, table=source, column=column, above=start)
    innodb = source.engine.lower() == "innodb"
    activity, ceiling = server.ceiling(find, since, in_shared_snapshot=innodb)
    if why_held(activity, lag):
        return held_back(activity, lag), activity
    if ceiling is None:
        return None, activity
    looks = chain([activity], iter(server.look, None))

    def look() -> Activity:
        nonlocal activity
        activity = next(looks)
        return activity

    bound = id_bound(
        ceiling,
        look=look,
        first_gap=partial(read_first_gap, session, source, column, start, ceiling),
        pause=time.sleep,
        lag=lag,
    )
    return bound, activity


def cursor_clock(
    source: SourceTable, cursor: Cursor, activity: Activity, zone: tzinfo | None
) -> Clock | None:
    """Return the clock of a time cursor: UTC, the configured zone's, or the server's."""
    if cursor.timestamp is None:
        return None
    if source.column(cursor.timestamp).data_type == "timestamp":
        offset = timedelta(0)
    elif zone is not None:
        offset = activity.now.astimezone(zone).utcoffset() or timedelta(0)
    else:
        offset = activity.offset
    return Clock(offset_seconds=round(offset.total_seconds()), at=activity.now)


def configured_lag(settings: ExtractionSettings) -> timedelta | None:
    """Return `extraction.lag_seconds`; None if it is not set."""
    return None if settings.lag_seconds is None else timedelta(seconds=settings.lag_seconds)


def configured_zone(name: str | None) -> tzinfo | None:
    """Return the zone of DATETIME cursors; None for the server's, ConfigError if there is none."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            f"extraction.cursor_time_zone: unknown time zone {name!r}",
            hint="write it as 'America/New_York' or 'UTC'",
        ) from error
