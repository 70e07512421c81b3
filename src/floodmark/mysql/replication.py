"""GTIDs: what a server has executed, and waiting until another one has executed it too."""

import re

from floodmark.model.server import Product, Server
from floodmark.mysql.connection import MysqlSession, query_once

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
    if query_once(session, "SELECT @@GLOBAL.gtid_mode")[0][0] != "ON":
        return None  # some transactions have none
    owned = query_once(session, "SELECT @@GLOBAL.gtid_owned")[0][0] or ""
    executed = query_once(session, "SELECT @@GLOBAL.gtid_executed")[0][0] or ""
    return ",".join([*owned_gtids(owned), *filter(None, [executed.replace("\n", "")])]) or None


def owned_gtids(text: str) -> list[str]:
    """The GTIDs in what MySQL says of owned ones: `UUID:12#32:11#33,UUID:TAG:5#40`."""
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
    # A position names the last transaction of each domain, whichever server it comes from. The
    # state of the binary log has the last one of each server that was logged there.
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
            answers.append(None)  # it has gone on with another server's, and logged none of these
    if all(answers):
        return True
    return False if False in answers else None


def lacks_of_replica(
    session: MysqlSession, primary: Server, replica: Server, executed: str | None
) -> bool:
    """Whether a replica has executed transactions that the server called its primary has not.

    `executed` is what the replica had executed, read before. Its own transactions do not count.
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
    """Leave out a set that is too long to be kept with every manifest."""
    return gtids if gtids and len(gtids) <= _MOST_CHARACTERS else None


def is_of(product: Product, gtids: str) -> bool:
    """Whether GTIDs are written the way that a product writes them."""
    return bool(_WRITTEN[product].fullmatch(gtids))


def _numbers(text: str) -> dict[tuple[str, str], int]:
    """The number reached by each domain and server, of MariaDB's `DOMAIN-SERVER-NUMBER,…`."""
    parts = (gtid.split("-") for gtid in text.split(",") if gtid)
    return {(domain, server): int(number) for domain, server, number in parts}
