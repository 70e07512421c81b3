"""A Redshift session: run statements, translate errors by code."""

import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import redshift_connector
from redshift_connector.config import FC_TEXT
from redshift_connector.core import Connection
from redshift_connector.error import Error, InterfaceError, OperationalError
from redshift_connector.utils.oids import RedshiftOID
from redshift_connector.utils.type_utils import text_recv

from floodmark.config.logins import LOGINS
from floodmark.config.models import RedshiftConnection
from floodmark.config.tls import tls_for
from floodmark.config.tls_context import encryption_of
from floodmark.config.tls_errors import tls_failure
from floodmark.errors import (
    DataRefused,
    FloodmarkError,
    LoginRefused,
    PassingConflict,
    StatementFailed,
)
from floodmark.model.encryption import Encryption

CONNECT_SECONDS = 30

# The driver reports a closed connection in many ways, the last being a truncated message.
_LOST = (InterfaceError, OperationalError, OSError, struct.error)

_LOGIN_CLASS = "28"
_PASSING = {"40001", "40P01"}  # could not serialize, deadlock
# Redshift's own: not serializable, a relation that is not in the snapshot, and messages with the
# code of an internal error when another session drops, renames or refreshes an object.
_PASSING_NUMBERS = ("1023", "1018")
_PASSING_WORDS = ("conflict with concurrent transaction", "could not open relation with OID")

# A value that is invalid for its type. Most errors about data have the code of an internal error,
# and are recognized by their text; those of S3 are also "Spectrum Scan Error".
_DATA_CLASS = "22"
_DATA_WORDS = ("Spectrum Scan Error", "stl_load_errors", "JSON", "String value exceeds")
_NO_DATA_WORDS = (
    "S3ServiceException",
    "S3 Query Exception",
    "AccessDenied",
    "Access Denied",
)
_HINTS = {
    "28000": "check 'user' and 'password' of the connection",
    "28P01": "check 'user' and 'password' of the connection",
    "3D000": "check 'database' of the connection",
    "3F000": "check 'schema' of the connection, or create it",
    "42501": "grant the user the missing privilege",
    "57014": "a user or a workload management rule cancelled it; run it again",
}
_IAM_HINT = (
    "with 'iam', the database must have this user: docs/guides/redshift-permissions.md; after an"
    " hour, the temporary password may have expired: run it again"
)
_WORD_HINTS = {
    "PermanentRedirect": "the lake's bucket must be in the region of the cluster: COPY of Parquet"
    " has no REGION option",
    "not authorized to assume": "attach the role of 'iam_role' to the cluster or workgroup",
    "Access Denied": "let the role read the lake: docs/guides/redshift-permissions.md",
}


class RedshiftSession:
    """One connection, in autocommit: transactions begin and end with statements."""

    def __init__(self, connection: RedshiftConnection, *, note_refusal: bool = True) -> None:
        self._place = f"Redshift at {connection.host}:{connection.port}"
        self._by_iam = connection.iam is not None
        keys = (connection.access_key_id, connection.secret_access_key, connection.session_token)
        self._secrets = tuple(secret.reveal() for secret in keys if secret is not None)
        self._connection = self._connect(connection, note_refusal=note_refusal)
        self._connection.autocommit = True
        # Keep the hexadecimal digits; the driver would decode the bytes as UTF-8.
        self._connection.redshift_types[RedshiftOID.VARBYTE] = (FC_TEXT, text_recv)
        self.busy_since: float | None = None
        """When the running statement began."""
        self._given_up = ""
        try:
            self.run("SET timezone TO 'UTC'")
            self.pid = int(self.run("SELECT pg_backend_pid()")[0][0])
            if connection.query_group:
                self.run(f"SET query_group TO {literal(connection.query_group)}")
            if connection.statement_timeout:
                self.run(f"SET statement_timeout TO {int(connection.statement_timeout * 1000)}")
        except BaseException:
            self.close()
            raise

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self._connection.in_transaction)

    def run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows; `$1`, `$2` … stand for the values.

        PassingConflict if another transaction interfered, StatementFailed if Redshift refuses.
        """
        return self._run(statement, values)[0]

    def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        """Run a statement and return the number of rows it wrote, -1 if unknown."""
        return self._run(statement, values)[1]

    def _run(self, statement: str, values: Sequence[object]) -> tuple[list[tuple[Any, ...]], int]:
        self.busy_since = time.monotonic()
        try:
            cursor = self._connection.cursor()
            if values:
                cursor.paramstyle = "qmark"  # leaves the server's own $1 alone
                cursor.execute(statement, tuple(values))
            else:
                cursor.execute(statement)
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            return rows, int(cursor.rowcount)
        except _LOST as error:
            if (failure := self._failure(error)) is not None:
                raise failure from error
            raise FloodmarkError(
                f"the connection to {self._place} was lost{self._given_up}",
                hint="run it again: what was committed is in the ledger, and is not loaded twice",
            ) from error
        except Error as error:
            raise self._failure(error) or FloodmarkError(self._redacted(str(error))) from error
        finally:
            self.busy_since = None

    def give_up(self, reason: str) -> None:
        """Abort a statement of another thread, as if the connection had been lost."""
        self._given_up = f": {reason}"
        with suppress(OSError):
            self._connection._usock.shutdown(socket.SHUT_RDWR)  # noqa: SLF001

    @property
    def encryption(self) -> Encryption:
        """Return how the connection is encrypted."""
        return encryption_of(self._connection._usock)  # noqa: SLF001 - it shows it nowhere else

    def roll_back(self) -> None:
        """Roll the transaction back, if there is one and the connection is alive."""
        with suppress(FloodmarkError):
            self.run("ROLLBACK")

    def close(self) -> None:
        """Close the connection; no error if it is lost already."""
        with suppress(*_LOST):
            self._connection.close()

    def _connect(self, connection: RedshiftConnection, *, note_refusal: bool) -> Connection:
        password = connection.password.reveal() if connection.password else ""
        tls = tls_for(connection)
        try:
            with LOGINS.once(connection, _is_refusal, note=note_refusal):
                made = redshift_connector.connect(
                    host=connection.host,
                    port=connection.port,
                    database=connection.database,
                    user=connection.user,
                    password=password,
                    ssl=tls is not None,
                    # Without it, the driver would accept a certificate for another host name.
                    sslmode="verify-ca" if tls and tls.verify == "ca" else "verify-full",
                    timeout=CONNECT_SECONDS,
                    # A firewall or NAT may silently drop an idle connection.
                    tcp_keepalive_idle=30,
                    tcp_keepalive_interval=10,
                    tcp_keepalive_count=3,
                    application_name=connection.application_name,
                    # No statement is repeated, and tables may change in between.
                    max_prepared_statements=0,
                )
        except (*_LOST, Error) as error:
            if (failure := self._failure(error)) is not None:
                raise failure from error
            reason = error.args[-1] if error.args else error
            if failure := tls_failure(self._place, connection, str(reason)):
                raise failure from error
            raise FloodmarkError(
                f"cannot connect to {self._place}: {reason}",
                hint="check 'host' and 'port' of the connection, and the network",
            ) from error
        made._usock.settimeout(None)  # noqa: SLF001 - a COPY takes as long as it takes
        return made

    def _failure(self, error: Exception) -> FloodmarkError | None:
        """Translate the server's error; None if it did not send one."""
        answer = error.args[0] if error.args else None
        if not isinstance(answer, dict):
            return None
        code, message = str(answer.get("C", "")), str(answer.get("M", ""))
        parts = [message, *_context(str(answer.get("D", "")))]
        text = self._redacted("; ".join(filter(None, parts)))
        if code in _PASSING or _is_passing(message):
            return PassingConflict(
                f"{self._place}: conflict with another transaction: {text}",
                hint="run it again when fewer sessions write to the same tables",
            )
        failed: type[StatementFailed] = StatementFailed
        if _is_about_data(code, text):
            failed = DataRefused
        words = (hint for word, hint in _WORD_HINTS.items() if word in text)
        hint = _HINTS.get(code) or next(words, None)
        if code.startswith(_LOGIN_CLASS):
            failed, hint = LoginRefused, _IAM_HINT if self._by_iam else hint
        return failed(f"{self._place}: {text}", code, hint=hint)

    def _redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def open_session(
    log_in: Callable[[], RedshiftConnection], *, note_refusal: bool = True
) -> RedshiftSession:
    """Open a session; if the login is refused and `log_in` returns another one, try that.

    With `note_refusal=False`, other sessions may still try a login that is refused here.
    """
    connection = log_in()
    try:
        return RedshiftSession(connection, note_refusal=note_refusal)
    except LoginRefused:
        renewed = log_in()
        if renewed == connection:
            raise
    return RedshiftSession(renewed, note_refusal=note_refusal)


def _is_refusal(error: Exception) -> bool:
    answer = error.args[0] if error.args else None
    return isinstance(answer, dict) and str(answer.get("C", "")).startswith(_LOGIN_CLASS)


def literal(text: str) -> str:
    """Return a text literal; in Redshift, a backslash starts an escape."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _is_passing(message: str) -> bool:
    number = message.partition(" ")[0].strip(":")
    return number in _PASSING_NUMBERS or any(word in message for word in _PASSING_WORDS)


def _is_about_data(code: str, text: str) -> bool:
    if any(word in text for word in _NO_DATA_WORDS):
        return False
    return code.startswith(_DATA_CLASS) or any(word in text for word in _DATA_WORDS)


def _context(detail: str) -> list[str]:
    """Return the useful lines of an error's detail, which Redshift formats as a table."""
    lines = [line.strip() for line in detail.splitlines() if set(line.strip()) - {"-"}]
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if "context" in fields:
        return [fields["context"].strip()]
    return lines[:1]
