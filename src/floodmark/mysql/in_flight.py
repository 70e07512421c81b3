"""Read what is in flight on a server: statements, transactions, and ids that they may use.

See `floodmark.planning.bounds` for the order of the reads and its reasons.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pymysql
from msgspec import Struct
from pymysql.constants import ER

from floodmark.model.bound import Activity, Ceiling
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.model.server import Server
from floodmark.mysql.connection import (
    MysqlSession,
    is_lost,
    query,
    query_once,
    repeatable,
)
from floodmark.mysql.gtids import read_gtids
from floodmark.mysql.predicates import relation
from floodmark.mysql.types import quote_name

Answer = TypeVar("Answer")

# InnoDB refreshes the cache of this table only if nobody read it for a tenth of a second. So we
# read it in our own transaction, with a unique comment, until the result shows that very query; and
# in one process at a time, or several would keep the cache stale for each other.
_STALE_SECONDS = 0.12
_GIVE_UP_SECONDS = 10.0
_LOCK_NAME = "floodmark.in_flight"
_LOCK_SECONDS = 60

NO_PROCESS = "no PROCESS privilege, so open transactions cannot be seen"
NEVER_FRESH = (
    "another client reads information_schema.innodb_trx so often that it is never up to date, so"
    " open transactions cannot be seen"
)
_UNDATED = (
    "a prepared XA transaction, which may be older than the server's last restart ({end};"
    " 'lag_seconds' says how old it may be)"
)
_COUNTER = re.compile(r"^\).* AUTO_INCREMENT=(\d+)", re.MULTILINE)
_PLAIN = re.compile(rb"[\w.:@/-]+")
_MOST_NAMED = 3
_NOT_ALLOWED = {ER.SPECIFIC_ACCESS_DENIED_ERROR, ER.XAER_RMERR}

_SNAPSHOT_ENDED = {ER.TABLE_DEF_CHANGED, ER.SP_DOES_NOT_EXIST}

_IDLE = "'Sleep', 'Daemon', 'Binlog Dump', 'Binlog Dump GTID'"

# NOW() is the start of this very statement, so no start is ever computed too late.
# Replication threads belong to 'system user'; they are judged by their channel.
_STATEMENTS = """
SELECT ID, USER, UTC_TIMESTAMP(6) - INTERVAL {age} MICROSECOND
FROM information_schema.PROCESSLIST
WHERE ID <> CONNECTION_ID() AND COMMAND NOT IN ({idle})
  AND USER NOT IN ('unauthenticated user', 'system user') AND {guard}
"""
_AGE_MARIADB = "CEIL(TIME_MS * 1000)"
_AGE_MYSQL = "(TIME + 1) * 1000000"

# InnoDB uses the operating system's local time. In a repeated hour, take the earlier one.
_TRANSACTIONS = """
SELECT /* {comment} */ trx_mysql_thread_id, trx_is_read_only, COALESCE(trx_query, ''),
    IF(CONVERT_TZ(began - INTERVAL 1 HOUR, '+00:00', 'SYSTEM') = trx_started,
       began - INTERVAL 1 HOUR, began)
FROM (SELECT *, CONVERT_TZ(trx_started, 'SYSTEM', '+00:00') AS began
      FROM information_schema.INNODB_TRX) AS open_transactions
WHERE {guard}
"""


class _InFlight(Struct, frozen=True):
    """A statement or transaction in flight."""

    thread: int
    began: datetime
    user: str = ""


def read_activity(session: MysqlSession, server: Server) -> Activity:
    """Read what is in flight on a server; end any open transaction of the session."""
    settings = dict(
        query_once(
            session,
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('time_zone', 'system_time_zone')",
        )
    )
    now = read_clock(session)
    running = _read_statements(session, server)
    opened, readers, held = _read_transactions(session, server)
    gtids = read_gtids(session, server)
    statement = _oldest([found for found in running if found.thread not in readers])
    transaction = _oldest(opened)
    prepared = _read_prepared(session, server) if opened else []
    undated = any(found.thread == 0 for found in opened) and prepared != []
    oldest = _oldest([found for found in (statement, transaction) if found])
    zone = settings["time_zone"]
    offset, least = _offsets(session, zone, oldest.began if oldest else now, now)
    return Activity(
        now=now,
        oldest_statement=statement.began if statement else None,
        oldest_transaction=transaction.began if transaction else None,
        undated=_UNDATED.format(end=_ends_prepared(prepared)) if undated else None,
        holder=_describe(session, oldest, prepared) if oldest else None,
        unseen=held if held == NO_PROCESS else None,
        held=held if held == NEVER_FRESH else None,
        offset=offset,
        server_offset=least,
        server_zone=settings["system_time_zone"] if zone == "SYSTEM" else zone,
        gtids=gtids,
    )


def read_clock(session: MysqlSession) -> datetime:
    """Read the server's clock, in UTC."""
    return _utc(query_once(session, "SELECT UTC_TIMESTAMP(6)")[0][0])


class SnapshotLost(Exception):
    """The snapshot has ended."""


def begin_snapshot(session: MysqlSession) -> None:
    """Begin a consistent snapshot."""

    def begin() -> None:
        query_once(session, "ROLLBACK")
        query_once(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    repeatable(session, begin)


def end_snapshot(session: MysqlSession) -> None:
    """End the snapshot, so that the server can purge old row versions."""
    with suppress(pymysql.MySQLError):  # the server has ended it already
        query_once(session, "ROLLBACK")


def in_snapshot(session: MysqlSession, read: Callable[[MysqlSession], Answer]) -> Answer:
    """Read in a snapshot; SnapshotLost if it has ended, or the table was altered since.

    The savepoint releases the metadata lock, so that others can alter the table.
    """
    try:
        query_once(session, "SAVEPOINT before_reading")
        answer = read(session)
        query_once(session, "ROLLBACK TO SAVEPOINT before_reading")
    except pymysql.MySQLError as error:
        if is_lost(error) or error.args[0] in _SNAPSHOT_ENDED:
            raise SnapshotLost from error
        raise
    return answer


def read_ceiling(
    session: MysqlSession, table: SourceTable, column: str, above: Position
) -> int | None:
    """Return the greatest id above a position; None if there is none."""
    name = quote_name(column)
    found = query_once(
        session,
        f"SELECT {name} FROM {relation(table)}"  # noqa: S608
        f" WHERE {'TRUE' if above.is_start else f'{name} > {_lowest(above)}'} AND {_guard(session)}"
        f" ORDER BY {name} DESC LIMIT 1",
    )
    return int(found[0][0]) if found else None


def read_next_id(session: MysqlSession, table: SourceTable, column: str) -> int:
    """Return the least id that a new row may get; SHOW CREATE TABLE has the uncached counter."""
    if table.column(column).auto_increment:
        ((_, text, *_),) = query(session, f"SHOW CREATE TABLE {relation(table)}")
        found = _COUNTER.search(text)
        return int(found[1]) if found else 1
    greatest = query(session, f"SELECT MAX({quote_name(column)}) FROM {relation(table)}")[0][0]  # noqa: S608
    return 1 if greatest is None else int(greatest) + 1


def read_first_gap(
    session: MysqlSession,
    table: SourceTable,
    column: str,
    above: Position,
    ceiling: Ceiling,
    *,
    stride: int = 65_536,
) -> int | None:
    """Return the first missing id between a position and the ceiling; None if there is none."""
    name = quote_name(column)
    full = _lowest(above)  # nothing is missing up to here
    while full < ceiling.id:
        size = min(stride, ceiling.id - full)
        found = query(
            session,
            f"SELECT COUNT(DISTINCT {name}) FROM {relation(table)}"  # noqa: S608
            f" WHERE {name} > {full} AND {name} <= {full + size} AND {_guard(session)}",
        )
        if found[0][0] == size:
            full += size
        elif size == 1:
            return full + 1
        else:
            stride = size // 2
    return None


def _lowest(position: Position) -> int:
    """Return the id of a position; 0 at the start, as AUTO_INCREMENT counts from 1."""
    return position.id if isinstance(position.id, int) else 0


def _guard(session: MysqlSession) -> str:
    return session.server.guard if session.server else "TRUE"


def _read_statements(session: MysqlSession, server: Server) -> list[_InFlight]:
    """Read the running statements."""
    age = _AGE_MARIADB if server.product == "mariadb" else _AGE_MYSQL
    rows = query_once(session, _STATEMENTS.format(age=age, idle=_IDLE, guard=server.guard))
    return [_InFlight(int(thread), _utc(began), str(user)) for thread, user, began in rows]


def _read_transactions(
    session: MysqlSession, server: Server
) -> tuple[list[_InFlight], set[int], str | None]:
    """Return transactions that may write, read-only threads, and why they cannot be seen, if so."""
    own = query_once(session, "SELECT CONNECTION_ID()")[0][0]
    with _one_at_a_time(session):
        query_once(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        try:
            rows = _read_fresh(session, server, own)
        except pymysql.err.OperationalError as error:
            if error.args[0] != ER.SPECIFIC_ACCESS_DENIED_ERROR:
                raise
            return [], set(), NO_PROCESS
        finally:
            query_once(session, "ROLLBACK")
    if rows is None:
        return [], set(), NEVER_FRESH
    writers = [_InFlight(int(row[0]), _utc(row[3])) for row in rows if not row[1]]
    return writers, {int(row[0]) for row in rows if row[1]}, None


def _read_fresh(session: MysqlSession, server: Server, own: int) -> list[tuple[Any, ...]] | None:
    """Read until the result is up to date; None if other clients keep it stale."""
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while True:
        comment = f"floodmark {secrets.token_hex(8)}"
        rows = query_once(session, _TRANSACTIONS.format(comment=comment, guard=server.guard))
        if any(row[0] == own and comment in row[2] for row in rows):
            return rows
        if time.monotonic() > deadline:
            return None
        # Vary the pause, to get between clients that read at regular intervals.
        time.sleep(_STALE_SECONDS + secrets.randbelow(100) / 1000)


@contextmanager
def _one_at_a_time(session: MysqlSession) -> Iterator[None]:
    """Hold a named lock on the server, so that only one of our processes reads at a time.

    Some clusters do not support it; then read without it.
    """
    try:
        query_once(session, f"SELECT GET_LOCK('{_LOCK_NAME}', {_LOCK_SECONDS})")
    except pymysql.MySQLError as error:
        if is_lost(error):
            raise
        yield
        return
    try:
        yield
    finally:
        query_once(session, f"SELECT RELEASE_LOCK('{_LOCK_NAME}')")


def _read_prepared(session: MysqlSession, server: Server) -> list[str] | None:
    """Return the ids of prepared XA transactions in SQL syntax; None if they cannot be seen."""
    spelled = "FORMAT='SQL'" if server.product == "mariadb" else "CONVERT XID"
    try:
        rows = query_once(session, f"XA RECOVER {spelled}")
    except pymysql.MySQLError as error:
        if error.args[0] not in _NOT_ALLOWED:
            raise
        return None
    return [str(row[3]) if server.product == "mariadb" else _xid(*row) for row in rows]


def _xid(kind: int, length: int, _: int, digits: str) -> str:
    """Return an XA id in SQL syntax, given the hexadecimal digits of both parts."""
    data = bytes.fromhex(digits.removeprefix("0x"))
    name, branch = data[:length], data[length:]
    if (kind, branch) == (1, b"") and _PLAIN.fullmatch(name):
        return f"'{name.decode()}'"
    return f"X'{name.hex()}',X'{branch.hex()}',{kind}"


def _ends_prepared(prepared: list[str] | None) -> str:
    """Say what ends prepared transactions; MySQL does not tell which of them is in the way."""
    if not prepared:
        return "XA RECOVER lists it, XA COMMIT or XA ROLLBACK ends it"
    *others, last = (f"XA ROLLBACK {xid}" for xid in prepared[:_MOST_NAMED])
    more = f", of {len(prepared)} that XA RECOVER lists" if len(prepared) > _MOST_NAMED else ""
    return f"{' or '.join([*others, last])} ends it, or XA COMMIT{more}"


def read_offset(session: MysqlSession, moment: datetime) -> timedelta:
    """Return the UTC offset of the server's clock at a moment, by its present zone."""
    zone = query_once(session, "SELECT @@GLOBAL.time_zone")[0][0]
    return _offsets(session, zone, moment, moment)[0]


def _offsets(
    session: MysqlSession, zone: str, oldest: datetime, now: datetime
) -> tuple[timedelta, timedelta]:
    """Return the present UTC offset of the server's clock, and the least since then or soon."""
    moments = [now, oldest, *(now + timedelta(hours=hours) for hours in (1, 2, 3))]
    shown = ", ".join(
        f"CONVERT_TZ('{moment:%Y-%m-%d %H:%M:%S}', '+00:00', '{zone}')" for moment in moments
    )
    walls = query_once(session, f"SELECT {shown}")[0]
    offsets = [
        _utc(wall) - moment.replace(microsecond=0)
        for wall, moment in zip(walls, moments, strict=True)
    ]
    return offsets[0], min(offsets)


def _oldest(found: Sequence[_InFlight]) -> _InFlight | None:
    return min(found, key=lambda one: one.began, default=None)


def _describe(session: MysqlSession, found: _InFlight, prepared: list[str] | None) -> str:
    """Say who runs it, since when, and how to end it."""
    if found.thread == 0:
        return f"a prepared XA transaction ({_ends_prepared(prepared)})"
    # An idle transaction has no statement, but its session is listed.
    sql = f"SELECT USER, HOST FROM information_schema.PROCESSLIST WHERE ID = {found.thread}"  # noqa: S608
    owner = "".join(f" of {user}@{host}" for user, host in query_once(session, sql))
    what = "a statement" if found.user else "a transaction"
    began = f"{found.began:%Y-%m-%d %H:%M:%S} UTC"
    end = f"KILL {found.thread} ends it"
    if prepared and not found.user:  # on MariaDB it is listed with its session, and outlives it
        end += f"; if it is a prepared XA transaction, {_ends_prepared(prepared)}"
    return f"{what}{owner}, thread {found.thread}, running since {began} ({end})"


def _utc(value: Any) -> datetime:
    moment: datetime = value
    return moment.replace(tzinfo=UTC)
