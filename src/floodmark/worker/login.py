"""Fail at once if a login is refused; wait for a server that restarts.

connectorx retries a login for half a minute whatever the error, which may lock the user out, and
Spark would repeat that four times. The driver has just reached the server, so a worker that cannot
reach it waits a while: it may be restarting.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from ssl import SSLError
from typing import Any

import pymysql
from pymysql.constants import CR, ER

from floodmark.config.client import pymysql_options
from floodmark.config.models import MysqlConnection
from floodmark.errors import NoLogin

PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.5
_CONNECT_SECONDS = 10
_ACCESS_DENIED_BY_SOCKET = 1698

_UNREACHABLE = {CR.CR_CONN_HOST_ERROR, CR.CR_UNKNOWN_HOST}
_REFUSED = {
    ER.ACCESS_DENIED_ERROR,
    ER.HOST_IS_BLOCKED,
    ER.HOST_NOT_PRIVILEGED,
    _ACCESS_DENIED_BY_SOCKET,
}
_MAY_PASS = {
    ER.CON_COUNT_ERROR,
    ER.TOO_MANY_USER_CONNECTIONS,
    ER.USER_LIMIT_REACHED,
    ER.SERVER_SHUTDOWN,
    CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST,
}


def check_login(connection: MysqlConnection) -> None:
    """Raise NoLogin if a server refuses a login, unless a retry by connectorx may succeed."""
    try:
        log_in(connection, read_timeout=_CONNECT_SECONDS).close()
    except pymysql.MySQLError as error:
        if (*error.args, 0)[0] not in _MAY_PASS:
            raise


def log_in(
    connection: MysqlConnection, patience: float = PATIENCE_SECONDS, **options: Any
) -> "pymysql.connections.Connection[Any]":
    """Connect with PyMySQL; wait for a server that cannot be reached, then raise NoLogin."""
    options = {**pymysql_options(connection), "connect_timeout": _CONNECT_SECONDS, **options}
    deadline = time.monotonic() + patience
    with _final_refusals(connection):
        while True:
            try:
                return pymysql.connect(**options)
            except pymysql.MySQLError as error:
                if not _is_unreachable(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)


def _is_unreachable(error: pymysql.MySQLError) -> bool:
    failed_tls = isinstance(getattr(error, "original_exception", None), SSLError)
    return (*error.args, 0)[0] in _UNREACHABLE and not failed_tls


@contextmanager
def _final_refusals(connection: MysqlConnection) -> Iterator[None]:
    """Translate errors that a retry would not change into NoLogin."""
    try:
        yield
    except pymysql.MySQLError as error:
        code, reason = (*error.args, "", "")[:2]
        place = f"MySQL at {connection.host}:{connection.port}"
        if _is_unreachable(error):
            raise NoLogin(
                f"{place} does not answer: {reason}",
                hint="check that the server runs, and that workers reach it, then sync again",
            ) from error
        if code in _REFUSED:
            raise NoLogin(
                f"{place} refuses user {connection.user!r}: {reason}",
                hint="check 'user' and 'password' of the connection, and the user's host",
            ) from error
        raise
