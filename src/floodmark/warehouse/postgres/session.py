"""A PostgreSQL session: connect, run statements, translate errors by code."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

import psycopg
from psycopg import errors as postgres_errors

from floodmark.config.client import libpq_options
from floodmark.config.logins import LOGINS
from floodmark.config.models import PostgresConnection
from floodmark.config.tls_errors import tls_failure
from floodmark.errors import (
    ConstraintViolated,
    DuplicateKey,
    FloodmarkError,
    PassingConflict,
    Unrepresentable,
)
from floodmark.model.encryption import Encryption
from floodmark.warehouse.sql_dialect import quote

# Override settings of server, database and role, so that text is read as we write it.
_SETTINGS = {
    "client_encoding": "UTF8",
    "datestyle": "ISO, YMD",
    "extra_float_digits": "1",
    "jit": "off",  # it compiles longer than our statements run
    "row_security": "off",  # fail instead of seeing only the rows that a policy shows
    "search_path": "pg_catalog",
    "standard_conforming_strings": "on",
    "timezone": "UTC",
}
_VERIFIED: dict[bytes, Literal["identity", "ca"]] = {b"verify-full": "identity", b"verify-ca": "ca"}
_CLEARTEXT = "cleartext password"  # we forbid libpq to send it
_PLAIN_REFUSED = "no encryption"  # the server's wording
_CONFLICTS = {"40001", "40P01"}
# A value that is invalid for its type, and a key that is too long for an index.
_REFUSED = ("22", "54")
_ROW_SECURITY = "row-level security"
_GONE = {"57P01", "57P02", "57P03", "57P05", "25P03"}  # shut down, crashed, starting, idle too long
_HINTS = {
    "42501": "grant the user USAGE and CREATE on the schema, and all privileges on its tables",
    "42P10": "create the table without generated columns that the source has, too",
    "428C9": "create the table without generated columns that the source has, too",
    "53100": "free space on the server's disk",
    "53200": "give the server more memory, or load less at once with 'loading: {batch_mb: …}'",
    "53300": "raise max_connections on the server, or sync fewer tables in parallel",
}
_CONSTRAINT = (
    "the target's table has a constraint that the source does not meet: drop that constraint, or"
    " make room for the rows (a partition, say), then sync"
)
# Another session created the same object first.
_EXISTS = (
    postgres_errors.DuplicateTable,
    postgres_errors.DuplicateObject,
    postgres_errors.DuplicateColumn,
    postgres_errors.DuplicateSchema,
    postgres_errors.UniqueViolation,
)


class PostgresSession:
    """One connection, in autocommit: transactions begin and end with statements."""

    def __init__(self, settings: PostgresConnection) -> None:
        self._place = f"{settings.host}:{settings.port}/{settings.database}"
        self._user = settings.user
        self._connection = self._connect(settings)
        # All in one round trip.
        self.run("; ".join(f"SET {name} = '{value}'" for name, value in _SETTINGS.items()))

    def _connect(self, settings: PostgresConnection) -> "psycopg.Connection[tuple[Any, ...]]":
        try:
            with LOGINS.once(settings, _is_refusal):
                return psycopg.connect(
                    host=settings.host,
                    port=settings.port,
                    dbname=settings.database,
                    user=settings.user,
                    password=settings.password.reveal() if settings.password else None,
                    autocommit=True,
                    connect_timeout=15,
                    keepalives_idle=30,
                    keepalives_interval=10,
                    keepalives_count=3,
                    application_name="floodmark",
                    **libpq_options(settings),
                )
        except psycopg.Error as error:
            reason = _one_line(error)
            if failure := tls_failure(f"PostgreSQL at {self._place}", settings, reason):
                raise failure from error
            raise FloodmarkError(
                f"cannot connect to PostgreSQL at {self._place} as {settings.user}: {reason}",
                hint="the password is only sent to a verified server: 'tls: {ca: FILE}'"
                if _CLEARTEXT in reason
                else "write 'tls: {verify: none}', or better 'tls: {ca: FILE}'"
                if _PLAIN_REFUSED in reason
                else "check address, user and password; 'floodmark doctor' tries every connection",
            ) from error

    @property
    def closed(self) -> bool:
        """Whether the connection is closed or lost."""
        return self._connection.closed

    @property
    def pid(self) -> int:
        """The number of the server's process."""
        return self._connection.info.backend_pid

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def encryption(self) -> Encryption:
        """Return the session's protocol, and what libpq verifies."""
        ((protocol,),) = self.query("SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        if not self._connection.pgconn.ssl_in_use:
            return Encryption()
        options = {option.keyword: option.val or b"" for option in self._connection.pgconn.info}
        return Encryption(protocol=protocol, verified=_VERIFIED.get(options[b"sslmode"], "none"))

    def run(
        self, statement: str, values: Sequence[object] = ()
    ) -> "psycopg.Cursor[tuple[Any, ...]]":
        """Run a statement; `$1`, `$2` … stand for the values."""
        with self._translated():
            return psycopg.RawCursor(self._connection).execute(statement.encode(), values or None)

    def query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""
        with self._translated():
            return self.run(statement, values).fetchall()

    def copy_in(self, statement: str, data: Iterable[bytes]) -> int:
        """Run COPY FROM STDIN, and return the number of rows written."""
        with self._translated(), self._connection.cursor() as cursor:
            with cursor.copy(statement.encode()) as copy:
                for part in data:
                    copy.write(part)
            return cursor.rowcount

    @contextmanager
    def copy_out(self, statement: str) -> Iterator[psycopg.Copy]:
        """Run COPY TO STDOUT."""
        with (
            self._translated(),
            self._connection.cursor() as cursor,
            cursor.copy(statement.encode()) as copy,
        ):
            yield copy

    def create(self, statements: Sequence[str], schema: str) -> None:
        """Run DDL statements, all or none; create the schema first if it is missing."""
        with self._translated(), suppress(*_EXISTS):
            try:
                self._create_all(statements)
            except postgres_errors.InvalidSchemaName:
                with suppress(*_EXISTS):
                    self._connection.execute(f"CREATE SCHEMA {quote(schema)}".encode())
                self._create_all(statements)

    def _create_all(self, statements: Sequence[str]) -> None:
        with self._connection.transaction():
            for statement in statements:
                self._connection.execute(statement.encode())

    def commit(self) -> None:
        """Commit the transaction; FloodmarkError if the server rolled it back."""
        with self._translated():
            done = self._connection.execute(b"COMMIT").statusmessage
        if done != "COMMIT":  # a failed transaction answers ROLLBACK without an error
            raise FloodmarkError(f"PostgreSQL answered COMMIT with {done}")

    def roll_back(self) -> None:
        """Roll the transaction back, if there is one and the connection is alive."""
        with suppress(psycopg.Error):
            self._connection.execute(b"ROLLBACK")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate PostgreSQL's errors by their code."""
        try:
            yield
        except psycopg.Error as error:
            code = error.sqlstate or ""
            if self._connection.closed or code in _GONE or code.startswith("08"):
                raise FloodmarkError(
                    f"lost the connection to PostgreSQL at {self._place}: {_one_line(error)}",
                    hint="run the command again: the ledger records whether the load was committed",
                ) from error
            message = f"PostgreSQL: {_one_line(error)}" + (f" ({code})" if code else "")
            if code in _CONFLICTS:
                raise PassingConflict(message) from error
            if code.startswith(_REFUSED):
                raise Unrepresentable(message) from error
            kind = FloodmarkError
            if isinstance(error, psycopg.IntegrityError):
                unique = isinstance(error, postgres_errors.UniqueViolation)
                kind = DuplicateKey if unique else ConstraintViolated
            hint = _HINTS.get(code) or (_CONSTRAINT if kind is not FloodmarkError else None)
            if _ROW_SECURITY in message:
                hint = f"let the user see all rows: ALTER ROLE {quote(self._user)} BYPASSRLS"
            raise kind(message, hint=hint) from error


def _is_refusal(error: Exception) -> bool:
    # Errors while connecting have no code.
    return isinstance(error, psycopg.OperationalError) and "authentication failed" in str(error)


def _one_line(error: psycopg.Error) -> str:
    return " ".join(str(error).split())
