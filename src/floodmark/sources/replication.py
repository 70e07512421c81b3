"""GTIDs: what a server has executed, and waiting until another one has executed it too."""

import re

import pymysql
from pymysql.constants import ER

from floodmark.model.server import Product, Server
from floodmark.sources.connection import MysqlSession, query_once

# A GTID that a transaction owns while it commits: UUID, optional tag, number, and its thread.
_OWNED = re.compile(r"([0-9a-f-]{36}(?::[a-z_]\w*)?):(\d+)#\d+", re.IGNORECASE)
_WRITTEN: dict[Product, re.Pattern[str]] = {
    "mariadb": re.compile(r"[\d,-]+"),
    "mysql": re.compile(r"[\w:, -]*:[\w:, -]*"),
}
_MOST_CHARACTERS = 100_000  # of a set to keep: more would weigh on every manifest


def read_gtids(session: MysqlSession, server: Server) -> str | None:
    """Read the GTIDs of everything that a session can see now; None if the server has none.

    MySQL makes a transaction visible an instant before its GTID counts as executed. Until then it
    is owned, so owned GTIDs are read first, and count. MariaDB writes the GTID to its binary log
    before it makes the transaction visible.
    """
    if server.product == "mariadb":
        found: str = query_once(session, "SELECT @@GLOBAL.gtid_current_pos")[0][0]
        return found or None
    try:
        owned = query_once(session, "SELECT @@GLOBAL.gtid_owned")[0][0] or ""
        executed = query_once(session, "SELECT @@GLOBAL.gtid_executed")[0][0] or ""
    except pymysql.MySQLError as error:
        if error.args[0] != ER.UNKNOWN_SYSTEM_VARIABLE:
            raise
        return None
    committing = [f"{source}:{number}" for source, number in _OWNED.findall(owned)]
    return ",".join([*committing, *filter(None, [executed.replace("\n", "")])]) or None


def wait_for_gtids(session: MysqlSession, server: Server, gtids: str, seconds: float) -> bool:
    """Wait until a replica has executed these GTIDs; False if it has not in time."""
    if server.product == "mariadb":
        return bool(
            query_once(session, f"SELECT MASTER_GTID_WAIT('{gtids}', {seconds})")[0][0] == 0
        )
    sql = f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', {seconds})"
    return bool(query_once(session, sql)[0][0] == 0)


def has_executed(session: MysqlSession, server: Server, gtids: str) -> bool | None:
    """Whether a server has executed these GTIDs of another server; None if it cannot tell."""
    if server.product == "mysql":
        sql = f"SELECT GTID_SUBSET('{gtids}', @@GLOBAL.gtid_executed)"
        return bool(query_once(session, sql)[0][0])
    # A position names the last transaction of each domain, whichever server it comes from. The
    # state of the binary log has the last one of each server.
    sql = "SELECT @@GLOBAL.gtid_current_pos, @@GLOBAL.gtid_binlog_state"
    position, state = map(_numbers, query_once(session, sql)[0])
    reached = {domain: number for (domain, _), number in position.items()}
    known = position | state
    unproven = [gtid for gtid, number in _numbers(gtids).items() if known.get(gtid, -1) < number]
    if not unproven:
        return True
    if state or any(reached.get(domain, -1) < _numbers(gtids)[domain, s] for domain, s in unproven):
        return False
    return None


def worth_keeping(gtids: str | None) -> str | None:
    """Leave out a set that is too long to be kept with every manifest."""
    return gtids if gtids and len(gtids) <= _MOST_CHARACTERS else None


def is_of(product: Product, gtids: str) -> bool:
    """Whether GTIDs are written the way that a product writes them."""
    return bool(_WRITTEN[product].fullmatch(gtids))


def _numbers(text: str) -> dict[tuple[str, str], int]:
    """The number reached by each domain and server, of MariaDB's `DOMAIN-SERVER-NUMBER,…`."""
    parts = (gtid.split("-") for gtid in text.split(",") if gtid)
    return {(domain, server): int(number) for domain, server, number in parts}
