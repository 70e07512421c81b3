"""Connections to MySQL and MariaDB."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ssl import SSLError
from typing import TYPE_CHECKING, Any, TypeVar

import pymysql
from pymysql.constants import CR, ER

from floodmark.config.client import pymysql_options
from floodmark.config.logins import LOGINS
from floodmark.config.models import MysqlConnection
from floodmark.config.tls import tls_for
from floodmark.config.tls_context import encryption_of
from floodmark.config.tls_errors import tls_failure
from floodmark.errors import AnotherServer, ConfigError, FloodmarkError, UsageError
from floodmark.model.encryption import Encryption
from floodmark.model.extraction import SESSION_SETTINGS
from floodmark.model.server import Server

Rows = TypeVar("Rows")

_ACCESS_DENIED_BY_SOCKET = 1698
_OUT_OF_RANGE = 1690
_IDLE_TOO_LONG = 4031
_CONNECTION_KILLED = 1927
_SECURE_TRANSPORT_REQUIRED = 3159

_STOPPED = "the run was stopped"
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


_REOPENABLE = _LOST - {ER.QUERY_INTERRUPTED} | {CR.CR_CONN_HOST_ERROR, _IDLE_TOO_LONG}
PATIENCE_SECONDS = 30.0  # how long a server may take to restart
_PAUSE_SECONDS = 0.5


if TYPE_CHECKING:
    _Connection = pymysql.connections.Connection[pymysql.cursors.Cursor]
else:
    _Connection = pymysql.connections.Connection


class MysqlSession(_Connection):
    """A session that reconnects if the connection was lost.

    With a `server`, it is an error to reach another one. `ended` sessions stay closed.
    """

    server: Server | None = None
    ended = False
    _most_seconds: float | None = None
    _read_timeout: float | None
    _sock: Any

    @property
    def encryption(self) -> Encryption:
        """The encryption of the current connection."""
        return encryption_of(self._sock)

    def limit_reads(self, seconds: float) -> None:
        """Drop the connection if an answer takes longer than this."""
        self._most_seconds = self._read_timeout = seconds

    def connect(self, sock: Any = None) -> None:
        """Open the connection, and check which server it reached."""
        # PyMySQL waits forever for a server that accepts a connection and sends nothing.
        self._read_timeout = self.connect_timeout
        super().connect(sock)
        try:
            for statement in SESSION_SETTINGS:
                self.query(statement)
            if self.server is not None:
                check_server(self, self.server)
        except BaseException:
            self.close()
            raise
        self._read_timeout = self._most_seconds

    def reopen(self) -> None:
        """Reconnect, with retries; raise the last error if that fails."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.connect()
            except pymysql.err.OperationalError as error:
                if self.ended or not is_lost(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return


def query(session: MysqlSession, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement that can be repeated, and return all its rows."""
    return repeatable(session, lambda: query_once(session, sql))


def query_once(session: MysqlSession, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement and return all its rows; do not reconnect."""
    with session.cursor() as reader:
        reader.execute(sql)
        return list(reader.fetchall())


def query_dicts(
    session: MysqlSession, sql: str, parameters: Sequence[object] = ()
) -> list[dict[str, Any]]:
    """Run a statement that can be repeated, and return all its rows by column name."""

    def run() -> list[dict[str, Any]]:
        with session.cursor(pymysql.cursors.DictCursor) as reader:
            reader.execute(sql, parameters or None)
            return list(reader.fetchall())

    return repeatable(session, run)


def is_lost(error: Exception) -> bool:
    """Whether a connection was lost, or cannot be opened at the moment."""
    if isinstance(error, pymysql.err.InterfaceError):
        return True  # PyMySQL raises it for a closed connection
    return isinstance(error, pymysql.err.OperationalError) and error.args[0] in _REOPENABLE


def check_server(session: MysqlSession, server: Server) -> None:
    """Raise AnotherServer unless a session reached this server."""
    try:
        query_once(session, f"SELECT {server.guard}")
    except pymysql.MySQLError as error:
        if not is_another_server(error):
            raise
        raise AnotherServer(f"server {server.identity}") from error


def is_another_server(error: Exception) -> bool:
    """Whether a statement failed because it reached another server than its guard expects."""
    code, message = (*error.args, "", "")[:2]
    other_product = code == ER.UNKNOWN_SYSTEM_VARIABLE and "server_uuid" in str(message)
    return code == _OUT_OF_RANGE or other_product


def repeatable(session: MysqlSession, run: Callable[[], Rows]) -> Rows:
    """Run something that can be repeated; once more if the connection was lost."""
    try:
        return run()
    except pymysql.MySQLError as error:
        if session.ended or not is_lost(error):
            raise
    session.reopen()
    return run()


@contextmanager
def connect(
    connection: MysqlConnection,
    *,
    server: Server | None = None,
    timeout_seconds: int = 10,
    may_wait: Callable[[], bool] = lambda: False,
) -> Iterator[MysqlSession]:
    """Open a session in UTC and autocommit, and close it; translate MySQL's errors.

    With a `server`, AnotherServer if the session reached another one. While `may_wait`, wait for a
    server that cannot be reached.
    """
    with translated(connection):
        try:
            opened = _open(connection, timeout_seconds, may_wait)
        except RuntimeError as error:  # PyMySQL raises it if 'cryptography' is missing
            raise ConfigError(
                f"MySQL at {_place(connection)}: {error}", hint="pip install 'pymysql[rsa]'"
            ) from error
        try:
            if server is not None:
                check_server(opened, server)
                opened.server = server
            yield opened
        finally:
            if opened.open:
                opened.close()


def _open(
    connection: MysqlConnection, timeout_seconds: int, may_wait: Callable[[], bool]
) -> MysqlSession:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with LOGINS.once(connection, _is_refusal):
                options = pymysql_options(connection)
                return MysqlSession(**options, connect_timeout=timeout_seconds)
        except pymysql.err.OperationalError as error:
            failed_tls = isinstance(getattr(error, "original_exception", None), SSLError)
            if failed_tls or not is_lost(error) or time.monotonic() > deadline or not may_wait():
                raise
        time.sleep(_PAUSE_SECONDS)


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, pymysql.MySQLError) and (*error.args, 0)[0] in _LOGIN_REFUSED


class Sessions:
    """The connections of a run, so that stopping it also ends their queries.

    A server that was reached in this run may restart: later connections wait for it.
    """

    def __init__(self) -> None:
        self._open: dict[MysqlSession, MysqlConnection] = {}
        self._reached: set[tuple[str, int]] = set()
        self._ended = False

    @contextmanager
    def connect(
        self, connection: MysqlConnection, *, server: Server | None = None
    ) -> Iterator[MysqlSession]:
        """Open a connection that `end` closes."""
        place = connection.host, connection.port

        def may_wait() -> bool:
            return place in self._reached and not self._ended

        try:
            with connect(connection, server=server, may_wait=may_wait) as session:
                self._reached.add(place)
                self._open[session] = connection
                try:
                    yield session
                finally:
                    del self._open[session]
        except FloodmarkError as error:
            if self._ended:
                raise FloodmarkError(_STOPPED) from error
            raise

    def end(self) -> None:
        """Kill all of them on the server, even in the middle of a long query."""
        self._ended = True
        for session, connection in list(self._open.items()):
            session.ended = True
            with suppress(FloodmarkError), connect(connection) as other, other.cursor() as cursor:
                cursor.execute(f"KILL {session.thread_id()}")  # type: ignore[no-untyped-call]


@contextmanager
def translated(connection: MysqlConnection, session: MysqlSession | None = None) -> Iterator[None]:
    """Turn MySQL's errors into ours, by their number; those of a session that we ended are one."""
    try:
        yield
    except pymysql.MySQLError as error:
        if session is not None and session.ended:
            raise FloodmarkError(_STOPPED) from error
        raise _translate(error, connection) from error


def _translate(error: pymysql.MySQLError, connection: MysqlConnection) -> FloodmarkError:
    code, *rest = error.args or (0,)
    reason = str(rest[0]) if rest and rest[0] else type(error).__name__
    place = _place(connection)
    message = f"MySQL at {place}: {reason}"
    origin = getattr(error, "original_exception", None)  # why PyMySQL could not connect
    if code == CR.CR_SSL_CONNECTION_ERROR or isinstance(origin, SSLError):
        failure = tls_failure(f"MySQL at {place}", connection, str(origin or reason))
        return failure or FloodmarkError(f"MySQL at {place}: encryption failed: {reason}")
    if is_another_server(error):
        return AnotherServer(f"MySQL at {place}")
    if code == _SECURE_TRANSPORT_REQUIRED:
        return ConfigError(
            f"MySQL at {place} accepts only encrypted connections",
            hint="add 'tls: {}' to the connection",
        )
    if code in _LOGIN_REFUSED:
        hint = "check 'user' and 'password' of the connection, and the user's host"
        if tls_for(connection) is None:
            hint += "; where encryption is required, add 'tls: {}'"
        return ConfigError(f"MySQL at {place} refuses user {connection.user!r}", hint=hint)
    if code in _NOT_ALLOWED:
        return FloodmarkError(message, hint=f"grant user {connection.user!r} the missing privilege")
    if code in _UNREACHABLE:
        return FloodmarkError(
            f"MySQL at {place} does not answer: {reason}",
            hint="check 'host' and 'port' of the connection, and that the server is running",
        )
    if code in _HOST_REFUSED:
        return FloodmarkError(message, hint="allow this machine's address on the server")
    if code == ER.CON_COUNT_ERROR:
        return FloodmarkError(message, hint="raise max_connections, or read fewer windows at once")
    if code == ER.BAD_DB_ERROR:
        return UsageError(message, hint="check the schema's name")
    if code == ER.NO_SUCH_TABLE:
        return UsageError(message, hint="check the table's name")
    if code in _LOST or isinstance(error, pymysql.err.InterfaceError):
        return FloodmarkError(f"MySQL at {place} ended the connection: {reason}", hint="try again")
    return FloodmarkError(f"{message} (error {code})")


def _place(connection: MysqlConnection) -> str:
    return f"{connection.host}:{connection.port}"
