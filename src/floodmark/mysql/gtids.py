"""Read and compare GTIDs, and wait until a replica has executed them."""

import re

from floodmark.model.server import Product, Server
from floodmark.mysql.connection import MysqlSession, query_once

_WRITTEN: dict[Product, re.Pattern[str]] = {
    "mariadb": re.compile(r"[\d,-]+"),
    "mysql": re.compile(r"[\w:, -]*:[\w:, -]*"),
}
_MOST_CHARACTERS = 100_000  # a longer set would bloat every manifest


def read_gtids(session: MysqlSession, server: Server) -> str | None:
    """Read the GTIDs of everything visible to a session now; None if the server has none.

    MySQL makes a transaction visible an instant before its GTID is executed. Until then the GTID is
    owned, so owned GTIDs are read first and included. MariaDB writes the GTID to its binary log
    before it makes the transaction visible.
    """
    if server.product == "mariadb":
        found: str = query_once(session, "SELECT @@GLOBAL.gtid_current_pos")[0][0]
        return found or None
    if query_once(session, "SELECT @@GLOBAL.gtid_mode")[0][0] != "ON":
        return None  # some transactions have none
    owned = query_once(session, "SELECT @@GLOBAL.gtid_owned")[0][0] or ""
    executed = query_once(session, "SELECT @@GLOBAL.gtid_executed")[0][0] or ""
    return ",".join([*owned_gtids(owned), *filter(None, [executed.replace("\n", "")])]) or None


def owned_gtids(text: str) -> list[str]:
    """Parse the GTIDs in MySQL's `gtid_owned`: `UUID:12#32:11#33,UUID:TAG:5#40`."""
    found = []
    for group in filter(None, (part.strip() for part in text.split(","))):
        source, *parts = group.split(":")
        tag = ""
        for part in parts:
            number, owner, _ = part.partition("#")
            if owner:
                found.append(f"{source}:{tag}{number}")
            else:
                tag = f"{part}:"
    return found


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
    # A position has the last transaction of each domain, from whichever server. The state of the
    # binary log has the last one of each server.
    sql = "SELECT @@GLOBAL.gtid_current_pos, @@GLOBAL.gtid_binlog_state"
    position, state = map(_numbers, query_once(session, sql)[0])
    reached = {domain: number for (domain, _), number in position.items()}
    answers: list[bool | None] = []
    for (domain, source), number in _numbers(gtids).items():
        logged = max(position.get((domain, source), -1), state.get((domain, source), -1))
        if logged >= number:
            answers.append(True)
        elif logged >= 0 or reached.get(domain, -1) < number:
            answers.append(False)
        else:
            answers.append(None)  # it has later ones of another server, and logged none of these
    if all(answers):
        return True
    return False if False in answers else None


def lacks_of_replica(
    session: MysqlSession, primary: Server, replica: Server, executed: str | None
) -> bool:
    """Whether a replica has executed transactions that its configured primary has not.

    `executed` is the replica's set, read before. Its own transactions do not count.
    """
    if not executed:
        return False
    if primary.product == "mariadb":
        foreign = [gtid for gtid in executed.split(",") if gtid.split("-")[1] != replica.uuid]
        return bool(foreign) and has_executed(session, primary, ",".join(foreign)) is False
    sql = f"SELECT GTID_SUBTRACT('{executed}', @@GLOBAL.gtid_executed)"
    left = query_once(session, sql)[0][0] or ""
    sources = {part.strip().partition(":")[0] for part in left.split(",") if part.strip()}
    return bool(sources - {replica.uuid})


def worth_keeping(gtids: str | None) -> str | None:
    """Return None for a set that is too long to store in every manifest."""
    return gtids if gtids and len(gtids) <= _MOST_CHARACTERS else None


def is_of(product: Product, gtids: str) -> bool:
    """Whether GTIDs are in a product's format."""
    return bool(_WRITTEN[product].fullmatch(gtids))


def _numbers(text: str) -> dict[tuple[str, str], int]:
    """Parse MariaDB's `DOMAIN-SERVER-NUMBER,…` into the number of each domain and server."""
    parts = (gtid.split("-") for gtid in text.split(",") if gtid)
    return {(domain, server): int(number) for domain, server, number in parts}
