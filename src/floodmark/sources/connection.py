"""Connections to MySQL and MariaDB."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ssl import SSLError
from typing import TypeAlias

import pymysql
from pymysql.constants import CR, ER

from floodmark.config.client import pymysql_options
from floodmark.config.models import MysqlConnection
from floodmark.errors import ConfigError, FloodmarkError, UsageError
from floodmark.model.extraction import SESSION_SETTINGS

MysqlSession: TypeAlias = "pymysql.Connection[pymysql.cursors.Cursor]"

_ACCESS_DENIED_BY_SOCKET = 1698
_CONNECTION_KILLED = 1927
_SECURE_TRANSPORT_REQUIRED = 3159

_LOGIN_REFUSED = {ER.ACCESS_DENIED_ERROR, _ACCESS_DENIED_BY_SOCKET}
_NOT_ALLOWED = {
    ER.DBACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
}
_UNREACHABLE = {CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_UNKNOWN_HOST}
_HOST_REFUSED = {ER.HOST_IS_BLOCKED, ER.HOST_NOT_PRIVILEGED}
_LOST = {
    CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST,
    ER.QUERY_INTERRUPTED,
    ER.SERVER_SHUTDOWN,
    _CONNECTION_KILLED,
}


@contextmanager
def connect(connection: MysqlConnection, *, timeout_seconds: int = 10) -> Iterator[MysqlSession]:
    """Open a connection in UTC and autocommit, and close it; MySQL's errors become ours."""
    with translated(connection):
        try:
            opened: MysqlSession = pymysql.connect(
                **pymysql_options(connection), connect_timeout=timeout_seconds
            )
        except RuntimeError as error:  # PyMySQL's way to say that 'cryptography' is missing
            raise ConfigError(
                f"MySQL at {_place(connection)}: {error}", hint="pip install 'pymysql[rsa]'"
            ) from error
        try:
            for statement in SESSION_SETTINGS:
                opened.query(statement)
            yield opened
        finally:
            if opened.open:
                opened.close()


class Sessions:
    """The connections of a run: whoever stops it ends what they are waiting for."""

    def __init__(self) -> None:
        self._open: dict[MysqlSession, MysqlConnection] = {}
        self._ended = False

    @contextmanager
    def connect(self, connection: MysqlConnection) -> Iterator[MysqlSession]:
        """Open a connection that `end` knows of."""
        try:
            with connect(connection) as session:
                self._open[session] = connection
                try:
                    yield session
                finally:
                    del self._open[session]
        except FloodmarkError as error:
            if self._ended:
                raise FloodmarkError("the run was stopped") from error
            raise

    def end(self) -> None:
        """Have the server end them all, also those in the middle of a long query."""
        self._ended = True
        for session, connection in list(self._open.items()):
            with suppress(FloodmarkError), connect(connection) as other, other.cursor() as cursor:
                cursor.execute(f"KILL {session.thread_id()}")  # type: ignore[no-untyped-call]


@contextmanager
def translated(connection: MysqlConnection) -> Iterator[None]:
    """Turn MySQL's errors into ours, by their number."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise _translate(error, connection) from error


def _translate(error: pymysql.MySQLError, connection: MysqlConnection) -> FloodmarkError:
    code, *rest = error.args or (0,)
    reason = str(rest[0]) if rest else type(error).__name__
    place = _place(connection)
    message = f"MySQL at {place}: {reason}"
    origin = getattr(error, "original_exception", None)  # what PyMySQL could not connect for
    if code == CR.CR_SSL_CONNECTION_ERROR or isinstance(origin, SSLError):
        return FloodmarkError(
            f"MySQL at {place} cannot be reached encrypted: {reason}",
            hint="check 'tls' of the connection, and the server's certificate",
        )
    if code == _SECURE_TRANSPORT_REQUIRED:
        return ConfigError(
            f"MySQL at {place} accepts only encrypted connections",
            hint="add 'tls: {}' to the connection",
        )
    if code in _LOGIN_REFUSED:
        hint = "check 'user' and 'password' of the connection, and the user's host"
        if connection.tls is None:
            hint += "; where encryption is required, add 'tls: {}'"
        return ConfigError(f"MySQL at {place} refuses user {connection.user!r}", hint=hint)
    if code in _NOT_ALLOWED:
        return FloodmarkError(message, hint=f"grant user {connection.user!r} what is missing")
    if code in _UNREACHABLE:
        return FloodmarkError(
            f"MySQL at {place} does not answer: {reason}",
            hint="check 'host' and 'port' of the connection, and that the server runs",
        )
    if code in _HOST_REFUSED:
        return FloodmarkError(message, hint="allow this machine's address on the server")
    if code == ER.CON_COUNT_ERROR:
        return FloodmarkError(message, hint="raise max_connections, or read fewer windows at once")
    if code == ER.BAD_DB_ERROR:
        return UsageError(message, hint="check the schema's name")
    if code == ER.NO_SUCH_TABLE:
        return UsageError(message, hint="check the table's name")
    if code in _LOST:
        return FloodmarkError(f"MySQL at {place} ended the connection: {reason}", hint="try again")
    return FloodmarkError(f"{message} (error {code})")


def _place(connection: MysqlConnection) -> str:
    return f"{connection.host}:{connection.port}"
