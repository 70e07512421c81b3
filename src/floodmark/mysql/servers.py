"""Read which server a session reached, and its replication role."""

from datetime import datetime, timedelta
from typing import Any

import pymysql
from pymysql.constants import ER

from floodmark.errors import AnotherServer, FloodmarkError
from floodmark.model.server import Channel, Group, Product, Server, identity_expression
from floodmark.model.table import split_name
from floodmark.model.timestamps import as_utc
from floodmark.mysql.connection import MysqlSession, query, query_dicts
from floodmark.mysql.types import quote_name

_READ_ONLY = ("read_only", "super_read_only", "innodb_read_only")
_VARIABLES = (
    *_READ_ONLY,
    "version",
    "server_uuid",
    "server_id",
    "hostname",
    "port",
    "datadir",
    "wsrep_on",
    "gtid_mode",
    "group_replication_group_name",
    "group_replication_single_primary_mode",
    "replica_net_timeout",
    "slave_net_timeout",
    "max_connections",
)
_OFF = ("", "OFF", "0", None)
_DENIED = {
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.DBACCESS_DENIED_ERROR,
}

# When a receiver last received an event, the end of a transaction, or a heartbeat.
_RECEIVED = """
SELECT CHANNEL_NAME, UNIX_TIMESTAMP(NOW(6)) - UNIX_TIMESTAMP(GREATEST(
    LAST_HEARTBEAT_TIMESTAMP, LAST_QUEUED_TRANSACTION_END_QUEUE_TIMESTAMP)),
    LAST_QUEUED_TRANSACTION
FROM performance_schema.replication_connection_status
"""
_MEMBER = """
SELECT MEMBER_STATE, MEMBER_ROLE, COUNT_TRANSACTIONS_IN_QUEUE,
    COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE
FROM performance_schema.replication_group_members m
JOIN performance_schema.replication_group_member_stats s USING (MEMBER_ID)
WHERE MEMBER_ID = @@server_uuid
"""


def read_server(session: MysqlSession) -> Server:
    """Read a server's identity and role; AnotherServer if a proxy distributes single statements.

    Some proxies send SELECT to a replica and everything else to the primary. Then SHOW would
    describe another server than the one that rows are read from.
    """
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    variables = dict(query(session, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    product: Product = "mariadb" if "MariaDB" in variables["version"] else "mysql"
    # For a session, the last one is the account's own limit, if it has one.
    facts = f"SELECT {identity_expression(product)}, @@max_user_connections"
    identity, user_connections = query(session, facts)[0]
    if identity != _shown_identity(product, variables):
        raise AnotherServer(f"server {identity}")
    return Server(
        identity=identity,
        uuid=variables.get("server_uuid") or variables["server_id"],
        product=product,
        version=variables["version"],
        read_only=tuple(name for name in _READ_ONLY if variables.get(name) not in _OFF),
        channels=_read_channels(session, product, variables),
        unreplicated=_is_unreplicated(session, product, variables),
        group=_read_group(session, variables),
        max_connections=int(variables["max_connections"]),
        max_user_connections=int(user_connections),
    )


def _shown_identity(product: Product, variables: dict[str, str]) -> str:
    """Return the identity from SHOW, in the format of `identity_expression`."""
    place = f"{variables['hostname']}:{variables['port']}"
    if product == "mariadb":
        return f"{variables['server_id']}@{place}{variables['datadir']}"
    return f"{variables['server_uuid']}@{place}"


def _read_channels(
    session: MysqlSession, product: Product, variables: dict[str, str]
) -> tuple[Channel, ...] | None:
    """Read the replication channels, also stopped ones; None if the user may not see them.

    The last receipt is read first: a later one need not be applied when a channel reports that it
    has caught up.
    """
    received = _read_received(session) if product == "mysql" else {}
    try:
        rows = _show_channels(session, product)
    except pymysql.MySQLError as error:
        if error.args[0] not in _DENIED:
            raise
        return None
    if not rows:
        return ()
    timeout = variables.get("replica_net_timeout") or variables.get("slave_net_timeout") or "60"
    return tuple(_channel(row, received, timedelta(seconds=float(timeout))) for row in rows)


def _show_channels(session: MysqlSession, product: Product) -> list[dict[str, Any]]:
    if product == "mariadb":
        return query_dicts(session, "SHOW ALL SLAVES STATUS")
    try:
        return query_dicts(session, "SHOW REPLICA STATUS")
    except pymysql.err.ProgrammingError as error:
        if error.args[0] != ER.PARSE_ERROR:  # before MySQL 8.0.22
            raise
        return query_dicts(session, "SHOW SLAVE STATUS")


def _channel(
    row: dict[str, Any], receipts: dict[str, tuple[timedelta, str]], timeout: timedelta
) -> Channel:
    """Return a channel from its status, with new or old column names."""
    status = {_modern(name): value for name, value in row.items()}
    name = str(status.get("Channel_Name") or status.get("Connection_name") or "")
    behind = status["Seconds_Behind_Source"]
    received = (status["Source_Log_File"], status["Read_Source_Log_Pos"])
    applied = (status["Relay_Source_Log_File"], status["Exec_Source_Log_Pos"])
    source = str(status.get("Source_UUID") or status["Source_Server_Id"])
    silence, last = receipts.get(name, (timeout, ""))
    # A GTID has the server that a transaction comes from: on MySQL its UUID, on MariaDB its id.
    if "Source_UUID" in status:
        gtids = last or status.get("Retrieved_Gtid_Set") or ""
        origins = {part.strip().partition(":")[0] for part in gtids.split(",") if ":" in part}
    else:
        gtids = status.get("Gtid_IO_Pos") or status.get("Gtid_Slave_Pos") or ""
        origins = {part.split("-")[1] for part in gtids.split(",") if part.count("-") > 1}
    return Channel(
        name=name,
        source=source,
        receiving=status["Replica_IO_Running"] == "Yes",
        applying=status["Replica_SQL_Running"] == "Yes",
        caught_up=received == applied,
        behind=None if behind is None else timedelta(seconds=int(behind)),
        silence=silence,
        chained=bool(origins) and source not in origins,
    )


def _modern(name: str) -> str:
    return name.replace("Master", "Source").replace("Slave", "Replica")


def _read_received(session: MysqlSession) -> dict[str, tuple[timedelta, str]]:
    """Return how long ago each channel received something, and the last GTID.

    Empty if the user may not see that.
    """
    try:
        rows = query(session, _RECEIVED)
    except pymysql.MySQLError as error:
        if error.args[0] not in _DENIED | {ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR}:
            raise
        return {}
    return {
        name: (timedelta(seconds=max(0.0, float(age))), last or "")
        for name, age, last in rows
        if age is not None
    }


def _is_unreplicated(session: MysqlSession, product: Product, variables: dict[str, str]) -> bool:
    """Whether the server's GTIDs are all its own, and nothing is replicating."""
    threads = (
        "SELECT 1 FROM information_schema.PROCESSLIST"
        " WHERE USER = 'system user' AND COMMAND <> 'Daemon' LIMIT 1"
    )
    if query(session, threads):
        return False
    if product == "mariadb":
        return not query(session, "SELECT @@GLOBAL.gtid_slave_pos")[0][0]
    if variables.get("gtid_mode") != "ON":
        return False
    executed = query(session, "SELECT @@GLOBAL.gtid_executed")[0][0]
    servers = {part.strip().partition(":")[0] for part in executed.split(",") if part.strip()}
    return servers <= {variables["server_uuid"]}


def _read_group(session: MysqlSession, variables: dict[str, str]) -> Group | None:
    if variables.get("wsrep_on") not in _OFF:
        return _read_cluster(session)
    if variables.get("group_replication_group_name") in _OFF:
        return None
    several = variables.get("group_replication_single_primary_mode") in _OFF
    name = variables["group_replication_group_name"]
    try:
        rows = query(session, _MEMBER)
    except pymysql.MySQLError as error:
        if error.args[0] not in _DENIED:
            raise
        problem = "no SELECT privilege on performance_schema, so its role in the group is not known"
        return Group(kind="group", primary=False, multi_primary=several, problem=problem)
    if not rows:
        problem = "group replication is configured, and not running"
        return Group(kind="group", primary=False, multi_primary=several, problem=problem)
    state, role, certifying, applying = rows[0]
    return Group(
        kind="group",
        name=name,
        primary=role == "PRIMARY",
        multi_primary=several,
        waiting=int(certifying) + int(applying),
        problem=None if state == "ONLINE" else f"this member of the group is {state}",
    )


def _read_cluster(session: MysqlSession) -> Group:
    status = dict(query(session, "SHOW GLOBAL STATUS LIKE 'wsrep_%'"))
    state = status.get("wsrep_local_state_comment", "unknown")
    ready = status.get("wsrep_ready") == "ON" and state == "Synced"
    return Group(
        kind="cluster",
        primary=True,
        multi_primary=True,
        waiting=int(status.get("wsrep_local_recv_queue", 0)),
        problem=None if ready else f"this node of the cluster is not ready: {state}",
    )


def read_heartbeat(session: MysqlSession, table: str, column: str) -> datetime | None:
    """Read the oldest moment in a heartbeat table, taken as UTC; None if it has no row."""
    _, schema, name = split_name(table)
    place = f"{quote_name(schema)}.{quote_name(name)}"
    value = query(session, f"SELECT MIN({quote_name(column)}) FROM {place}")[0][0]  # noqa: S608
    if value is None:
        return None
    try:
        return as_utc(value if isinstance(value, datetime) else datetime.fromisoformat(str(value)))
    except (ValueError, OverflowError):  # a zone can move a date beyond the calendar's end
        raise FloodmarkError(
            f"heartbeat table {table}: {column} holds {value!r}, which is not a time",
            hint="name a TIMESTAMP, a DATETIME or text in UTC as 'column' of 'heartbeat'",
        ) from None
