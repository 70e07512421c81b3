"""What a server says of the transactions in flight.

The order of the reads, and why it is that one: `floodmark.planning.bounds`.
"""

import re
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pymysql
from msgspec import Struct
from pymysql.constants import ER

from floodmark.model.bound import Activity, Ceiling
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.sources.connection import MysqlSession
from floodmark.sources.projection import quote_name
from floodmark.sources.statements import relation
from floodmark.sources.strides import query

# InnoDB shows what it found up to a tenth of a second ago, and goes on showing that for as long as
# somebody asks more often. So we ask in a transaction of our own, with a word of our own, until the
# answer shows us asking.
_STALE_SECONDS = 0.12
_TRIES = 25

_UNDATED = (
    "a prepared transaction, which may be older than the server's last restart (XA RECOVER lists"
    " it, XA COMMIT or XA ROLLBACK ends it, 'lag_seconds' says how old it may be)"
)
_COUNTER = re.compile(r"^\).* AUTO_INCREMENT=(\d+)", re.MULTILINE)
_NOT_ALLOWED = {ER.SPECIFIC_ACCESS_DENIED_ERROR, ER.XAER_RMERR}

_IDLE = "'Sleep', 'Daemon', 'Binlog Dump', 'Binlog Dump GTID'"

# NOW() is the start of this very statement, so what began is never taken for younger than it is.
_STATEMENTS = """
SELECT ID, USER, COMMAND, UTC_TIMESTAMP(6) - INTERVAL {age} MICROSECOND
FROM information_schema.PROCESSLIST
WHERE ID <> CONNECTION_ID() AND COMMAND NOT IN ({idle}) AND USER <> 'unauthenticated user'
"""
_AGE_MARIADB = "CEIL(TIME_MS * 1000)"
_AGE_MYSQL = "(TIME + 1) * 1000000"

# InnoDB writes the operating system's local time. In the hour that is shown twice, the earlier.
_TRANSACTIONS = """
SELECT /* {word} */ trx_mysql_thread_id, trx_is_read_only, COALESCE(trx_query, ''),
    IF(CONVERT_TZ(began - INTERVAL 1 HOUR, '+00:00', 'SYSTEM') = trx_started,
       began - INTERVAL 1 HOUR, began)
FROM (SELECT *, CONVERT_TZ(trx_started, 'SYSTEM', '+00:00') AS began
      FROM information_schema.INNODB_TRX) AS open_transactions
"""


class _Found(Struct, frozen=True):
    """A statement or a transaction in flight."""

    thread: int
    began: datetime
    user: str = ""


def read_activity(session: MysqlSession) -> Activity:
    """Look at what is in flight; ends a transaction that the connection may have open."""
    settings = dict(
        query(
            session,
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN"
            " ('version', 'time_zone', 'system_time_zone', 'read_only', 'wsrep_on')",
        )
    )
    now = _utc(query(session, "SELECT UTC_TIMESTAMP(6)")[0][0])
    running, replicates = _read_statements(session, mariadb="MariaDB" in settings["version"])
    opened, readers, unseen = _read_transactions(session)
    if settings.get("read_only", "OFF") != "OFF" or replicates:
        unseen = "a replica: transactions on its primary cannot be seen"
    if settings.get("wsrep_on", "OFF") != "OFF":
        unseen = "a cluster: transactions on its other nodes cannot be seen"
    statement = _oldest([found for found in running if found.thread not in readers])
    transaction = _oldest(opened)
    undated = any(found.thread == 0 for found in opened) and _has_prepared(session)
    oldest = _oldest([found for found in (statement, transaction) if found])
    zone = settings["time_zone"]
    return Activity(
        now=now,
        oldest_statement=statement.began if statement else None,
        oldest_transaction=transaction.began if transaction else None,
        undated=_UNDATED if undated else None,
        holder=_describe(oldest, is_statement=oldest is statement) if oldest else None,
        unseen=unseen,
        server_offset=_least_offset(session, zone, oldest.began if oldest else now, now),
        server_zone=settings["system_time_zone"] if zone == "SYSTEM" else zone,
    )


def read_ceiling(
    session: MysqlSession, table: SourceTable, column: str, above: Position
) -> Ceiling | None:
    """The greatest id above a position, and the time after it was read; None if there is none."""
    name = quote_name(column)
    found = query(
        session,
        f"SELECT {name} FROM {relation(table)}"  # noqa: S608
        f" WHERE {'TRUE' if above.is_start else f'{name} > {_lowest(above)}'}"
        f" ORDER BY {name} DESC LIMIT 1",
    )
    read_at = _utc(query(session, "SELECT UTC_TIMESTAMP(6)")[0][0])
    return Ceiling(int(found[0][0]), read_at) if found else None


def read_next_id(session: MysqlSession, table: SourceTable, column: str) -> int:
    """The least id that a new row may get; the counter is told by SHOW CREATE TABLE, uncached."""
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
    """The first id missing between a position and the ceiling; None if none is."""
    name = quote_name(column)
    full = _lowest(above)  # nothing is missing up to here
    while full < ceiling.id:
        size = min(stride, ceiling.id - full)
        found = query(
            session,
            f"SELECT COUNT(DISTINCT {name}) FROM {relation(table)}"  # noqa: S608
            f" WHERE {name} > {full} AND {name} <= {full + size}",
        )
        if found[0][0] == size:
            full += size
        elif size == 1:
            return full + 1
        else:
            stride = size // 2
    return None


def _lowest(position: Position) -> int:
    """The id of a position; at the start 0, since AUTO_INCREMENT counts from 1."""
    return position.id if isinstance(position.id, int) else 0


def _read_statements(session: MysqlSession, *, mariadb: bool) -> tuple[list[_Found], bool]:
    """What is running, and whether anything replicates from another server."""
    age = _AGE_MARIADB if mariadb else _AGE_MYSQL
    rows = query(session, _STATEMENTS.format(age=age, idle=_IDLE))
    running = [
        _Found(int(thread), _utc(began), str(user))
        for thread, user, _, began in rows
        if user != "system user"
    ]
    return running, len(running) < len(rows)


def _read_transactions(session: MysqlSession) -> tuple[list[_Found], set[int], str | None]:
    """Transactions that may write, threads that may not, and why they cannot be seen if so."""
    own = query(session, "SELECT CONNECTION_ID()")[0][0]
    query(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    try:
        for _ in range(_TRIES):
            word = f"floodmark {secrets.token_hex(8)}"
            rows = query(session, _TRANSACTIONS.format(word=word))
            if any(thread == own and word in text for thread, _, text, _ in rows):
                break
            time.sleep(_STALE_SECONDS)
        else:
            return [], set(), "somebody asks for innodb_trx so often that it is never up to date"
    except pymysql.err.OperationalError as error:
        if error.args[0] != ER.SPECIFIC_ACCESS_DENIED_ERROR:
            raise
        return [], set(), "the user lacks the PROCESS privilege"
    finally:
        query(session, "ROLLBACK")
    writers = [_Found(int(row[0]), _utc(row[3])) for row in rows if not row[1]]
    return writers, {int(row[0]) for row in rows if row[1]}, None


def _has_prepared(session: MysqlSession) -> bool:
    """Whether there are prepared transactions of two phases, or there may be."""
    try:
        return bool(query(session, "XA RECOVER"))
    except pymysql.MySQLError as error:
        if error.args[0] not in _NOT_ALLOWED:
            raise
        return True


def _least_offset(session: MysqlSession, zone: str, oldest: datetime, now: datetime) -> timedelta:
    """The least offset from UTC that the server's clock had since then or is about to have."""
    moments = [oldest, now, *(now + timedelta(hours=hours) for hours in (1, 2, 3))]
    shown = ", ".join(
        f"CONVERT_TZ('{moment:%Y-%m-%d %H:%M:%S}', '+00:00', '{zone}')" for moment in moments
    )
    walls = query(session, f"SELECT {shown}")[0]
    offsets = (
        _utc(wall) - moment.replace(microsecond=0)
        for wall, moment in zip(walls, moments, strict=True)
    )
    return min(offsets)


def _oldest(found: Sequence[_Found]) -> _Found | None:
    return min(found, key=lambda one: one.began, default=None)


def _describe(found: _Found, *, is_statement: bool) -> str:
    what = f"a statement of {found.user}" if is_statement else "a transaction"
    return f"{what}, thread {found.thread}, begun {found.began:%Y-%m-%d %H:%M:%S} UTC"


def _utc(value: Any) -> datetime:
    moment: datetime = value
    return moment.replace(tzinfo=UTC)
