"""PostgreSQL."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

import psycopg
import pyarrow as pa
from msgspec import structs
from psycopg import errors as postgres_errors

from floodmark.config.client import libpq_options
from floodmark.config.logins import LOGINS
from floodmark.config.models import PostgresConnection, TableSettings
from floodmark.config.tls_errors import tls_failure
from floodmark.errors import (
    ConstraintViolated,
    DuplicateKey,
    FloodmarkError,
    NameTooLong,
    PassingConflict,
    Unrepresentable,
)
from floodmark.model.encryption import Encryption
from floodmark.model.fingerprint import DAY, DIGEST_DIGITS, moment_number
from floodmark.model.load import LoadBatch, LoadChunk, TargetTable
from floodmark.model.manifest import Column
from floodmark.model.row_checksums import HASH_DIGITS
from floodmark.model.schema_change import Mismatch
from floodmark.warehouse.conversion import held_as
from floodmark.warehouse.grants import grantees, granting, grants_of, refuse_unknown
from floodmark.warehouse.lake_reader import LakeFiles
from floodmark.warehouse.postgres import types as postgres_types
from floodmark.warehouse.postgres.binary_copy import COPY_OPTIONS, copy_bytes
from floodmark.warehouse.postgres.canonical_text import joined, sha256_of, shown
from floodmark.warehouse.postgres.reader import READ_OPTIONS, read_rows, read_value
from floodmark.warehouse.postgres.types import can_be_copied, staging_type
from floodmark.warehouse.postgres.unsupported_values import postgres_unsupported_values
from floodmark.warehouse.row_checksums import Family
from floodmark.warehouse.sql_dialect import LEDGER, NEWEST, STAGING, check_written, quote
from floodmark.warehouse.sql_target import SqlTarget
from floodmark.warehouse.target import Dropped
from floodmark.warehouse.unsupported_values import UnsupportedValue

NO_SETTINGS = TableSettings()
_LONGEST_NAME = 63  # bytes; PostgreSQL truncates longer names

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
_EXACT_YEARS = (1930, 2070, 2000)  # first, last, and that in the middle
_MIDDLE = moment_number(datetime(2000, 1, 1, tzinfo=UTC))
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


class PostgresTarget(SqlTarget):
    """A schema of a PostgreSQL database; created when first needed."""

    fence = " OFFSET 0"
    joins_ranges = True
    lines = "string_agg(concat(n, ',', v), E'\\n')"

    def __init__(
        self,
        settings: PostgresConnection,
        files: LakeFiles,
        table_settings: TableSettings = NO_SETTINGS,
    ) -> None:
        self._files = files
        self.grants = grants_of(settings, table_settings)
        self._schema = settings.schema
        self._json = settings.json
        self._place = f"{settings.host}:{settings.port}/{settings.database}"
        self._user = settings.user
        try:
            with LOGINS.once(settings, _is_refusal):
                self._connection = psycopg.connect(
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
        # All in one round trip.
        self._execute("; ".join(f"SET {name} = '{value}'" for name, value in _SETTINGS.items()))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def encryption(self) -> Encryption:
        """Return the session's protocol, and what libpq verifies."""
        ((protocol,),) = self._query("SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        if not self._connection.pgconn.ssl_in_use:
            return Encryption()
        options = {option.keyword: option.val or b"" for option in self._connection.pgconn.info}
        return Encryption(protocol=protocol, verified=_VERIFIED.get(options[b"sslmode"], "none"))

    def column_type(self, column: Column) -> str:
        """Return PostgreSQL's name for a column's type."""
        if column.type == "json" and self._json == "text":
            return "text"
        return postgres_types.postgres_type(column)

    def widens(self, old: str, new: str) -> bool:
        """Whether the new type can hold every value of the old one."""
        return postgres_types.widens(old, new)

    def is_text(self, held: str, kind: str) -> bool:  # noqa: ARG002
        """Whether a column is text of any length."""
        return held in ("text", "character varying")

    def _as_text(self, name: str, kind: str, held: str) -> str:
        return f"encode({name}, 'hex')" if kind == "bytea" else super()._as_text(name, kind, held)

    def _literal(self, value: str, held: str) -> str:
        return f"decode('{value}', 'hex')" if held == "bytea" else super()._literal(value, held)

    def _moment(self, name: str, held: str) -> str:
        if held == "date":
            return f"(CAST({name} - DATE '0001-01-01 BC' AS bigint) * {DAY})"
        # The difference in seconds is a double: in these years, it has enough digits for
        # microseconds. date_part would parse its first argument for each row.
        zone = "tz" if "with time zone" in held else ""
        kind = f"TIMESTAMP{'TZ' if zone else ''}"
        first, last, middle = (f"{kind} '{year}-01-01'" for year in _EXACT_YEARS)
        seconds = f"ts{zone}range_subdiff({name}, {middle})"
        exact = f"CAST({seconds} * 1000000 AS bigint) + {_MIDDLE}"
        day, time = f"CAST({name} AS date)", f"CAST({name} AS time)"
        days = f"CAST({day} - DATE '0001-01-01 BC' AS bigint) * {DAY}"
        rest = f"CAST(date_part('epoch', {time}) * 1000000 AS bigint)"
        near = f"{name} >= {first} AND {name} < {last}"
        return f"(CASE WHEN {near} THEN {exact} ELSE {days} + {rest} END)"

    def _digest(self, text: str) -> str:
        digits = f"left(encode(sha256(convert_to({text}, 'UTF8')), 'hex'), {DIGEST_DIGITS})"
        return f"CAST(CAST('x' || {digits} AS bit({4 * DIGEST_DIGITS})) AS bigint)"

    def _hexadecimal(self, name: str) -> str:
        return f"encode({name}, 'hex')"

    def _staged_as(self, table: TargetTable) -> TargetTable:
        """Stage JSON as text where the target's column is text."""
        found = self._columns_of(table.name)
        held = held_as(table, found).columns
        return structs.replace(
            table,
            columns=tuple(
                structs.replace(column, type="longtext")
                if column.type == "json" and self.is_text(found.get(kept.name, ""), "")
                else column
                for column, kept in zip(table.columns, held, strict=True)
            ),
        )

    def _unsupported_values(self, table: TargetTable) -> Sequence[UnsupportedValue]:
        return postgres_unsupported_values(self._staged_as(table))

    def _insert_at_once(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int | None:
        """Copy straight into the target if no row can be replaced, which writes rows only once."""
        table, target = batch.table, self._name(batch.table.name)
        if not self._replaces_nothing(batch):
            return None
        found = self._columns_of(table.name)
        if not self._takes_files(table, found):
            return None
        kinds = [found[column.name] for column in table.columns]
        self._execute("SAVEPOINT nothing_inserted")
        try:
            return self._copy(target, table, kinds, [path for c in chunks for path in c.paths])
        except ConstraintViolated:
            # Most likely a duplicate key: then the newest row must be found by staging.
            self._execute("ROLLBACK TO nothing_inserted")
            return None

    def _takes_files(self, table: TargetTable, found: dict[str, str]) -> bool:
        """Whether values of the data files can be sent to the target's columns as they are."""
        kinds = [found.get(column.name, "") for column in table.columns]
        return all(
            held and can_be_copied(held) and not self._needs_conversion(self.column_type(c), held)
            for c, held in zip(table.columns, kinds, strict=True)
        )

    def _replaces_nothing(self, batch: LoadBatch) -> bool:
        if not batch.table.primary_key or batch.reload:
            return True
        empty = f"SELECT NOT EXISTS (SELECT 1 FROM {self._name(batch.table.name)})"  # noqa: S608
        # Without the key in the target, duplicates would go unnoticed.
        return self._key_of(batch.table.name) is not None and bool(self._query(empty)[0][0])

    def _stage(self, table: TargetTable, paths: Sequence[str]) -> int:
        for name in (STAGING, NEWEST):
            self._execute(f"DROP TABLE IF EXISTS {self._temporary(name)}")
        self._execute(f"CREATE TEMPORARY TABLE {STAGING} ({staging_columns(table)}) ON COMMIT DROP")
        rows = self._copy(STAGING, table, [staging_type(c) for c in table.columns], paths)
        for column in table.columns:
            kind = self.column_type(column)
            if staging_type(column) != kind:
                name = quote(column.name)
                self._execute(
                    f"ALTER TABLE {STAGING} ALTER {name} TYPE {kind} USING {name}::{kind}"
                )
        return rows

    def _copy(
        self, into: str, table: TargetTable, kinds: Sequence[str], paths: Sequence[str]
    ) -> int:
        """Copy data files into a table whose columns are of these types."""
        names = [column.name for column in table.columns]
        statement = f"COPY {into} ({', '.join(map(quote, names))}) FROM STDIN {COPY_OPTIONS}"
        rows = 0

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in self._files.batches_of(paths, names):
                rows += batch.num_rows
                yield batch

        with self._translated(), self._connection.cursor() as cursor:
            with cursor.copy(statement.encode()) as copy:
                for data in copy_bytes(batches(), table, kinds):
                    copy.write(data)
            check_written(table.name, rows, cursor.rowcount)
        return rows

    def _insert_staged(self, batch: LoadBatch, found: dict[str, str], rows: int) -> None:
        """Upsert in one statement if the target's table has the key: a third of the work."""
        table = batch.table
        if batch.reload or not table.primary_key or self._key_of(table.name) is None:
            super()._insert_staged(batch, found, rows)
            return
        columns = ", ".join(quote(column.name) for column in table.columns)
        keys = ", ".join(map(quote, table.primary_key))
        newest = f", {quote(table.version)} DESC NULLS LAST" if table.version else ""
        staged = f"SELECT DISTINCT ON ({keys}) {columns} FROM {STAGING} ORDER BY {keys}{newest}"  # noqa: S608
        update, stays = _replacement(batch, found)
        kept_back = (
            f"{self._name(table.name)} AS t JOIN ({staged}) AS excluded USING ({keys})"
            f" WHERE {stays}"
        )
        # Count first: once rows are written, it is unknown which ones were there before.
        early = update == "NOTHING" or batch.keep_newer_target_rows
        before = self._count_rows(kept_back) if early else 0
        written = self._execute(
            f"INSERT INTO {self._name(table.name)} AS t ({columns}) {staged}"
            f" ON CONFLICT ({keys}) DO {update}"
        )
        if written != rows:  # a duplicate key, or a newer row was kept
            after = self._count_rows(kept_back) if stays and not early else 0
            check_written(table.name, self._count_keys(table) - before - after, written)

    def _read_value(self, column: Column, held: str) -> str:
        return read_value(column, quote(column.name), held)

    def _batches(
        self,
        statement: str,
        table: TargetTable,
        kinds: Sequence[str],  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch]:
        copied = f"COPY ({statement}) TO STDOUT {READ_OPTIONS}".encode()
        with self._translated(), self._connection.cursor() as cursor, cursor.copy(copied) as copy:
            yield from read_rows(copy, table.columns)

    def _count_staged(self, name: str) -> None:
        self._execute(f"ANALYZE {name}")

    def _temporary(self, name: str) -> str:
        return f"pg_temp.{name}"

    # Otherwise the planner merges both queries, and computes every hash twice.
    hash_fence = " OFFSET 0"

    def _shown(self, name: str, family: Family) -> str | None:
        return shown(name, family, self._encoding)

    def _sha256(self, text: str) -> str:
        return sha256_of(f"convert_to(({text})::text, 'UTF8')")

    def _sha256_of_bytes(self, name: str) -> str:
        return sha256_of(name)

    def _hash_part(self, digits: str) -> str:
        return f"('x' || {digits})::bit({4 * HASH_DIGITS})::bigint"

    def _joined(self, texts: Sequence[str]) -> str:
        return joined(texts)

    def _sums(self, statement: str) -> list[tuple[Any, ...]]:
        # The planner takes a hash for as cheap as an addition, and would not use more processors.
        for setting in ("parallel_tuple_cost", "parallel_setup_cost"):
            self._execute(f"SET {setting} = 0")
        return self._query(statement)

    def _as_digits(self, number: str) -> str:
        return number

    @cached_property
    def _encoding(self) -> str:
        return str(self._query("SHOW server_encoding")[0][0])

    def _columns_of(self, name: str) -> dict[str, str]:
        rows = self._query(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod)"  # noqa: S608
            f" FROM pg_attribute a {self._of_table(name)}"
            " WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        )
        return dict(rows)

    def _key_of(self, name: str) -> tuple[str, ...] | None:
        rows = self._query(
            "SELECT a.attname"  # noqa: S608
            f" FROM pg_attribute a {self._of_table(name)}"
            " JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary AND i.indimmediate"
            " WHERE a.attnum = ANY (i.indkey::int2[])"
        )
        return tuple(row[0] for row in rows) or None

    def _not_null(self, name: str) -> dict[str, bool]:
        rows = self._query(
            "SELECT a.attname, a.atthasdef OR a.attidentity <> ''"  # noqa: S608
            f" FROM pg_attribute a {self._of_table(name)}"
            " WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull"
        )
        return dict(rows)

    def _compare(
        self, table: TargetTable, found: dict[str, str], dropped: Dropped
    ) -> list[Mismatch]:
        return [*super()._compare(table, found, dropped), *self._loose_keys(table)]

    def _loose_keys(self, table: TargetTable) -> Iterator[Mismatch]:
        """Yield key columns whose collation would make different keys of the source one."""
        rows = self._query(
            "SELECT a.attname, l.collname, format_type(a.atttypid, a.atttypmod)"  # noqa: S608
            f" FROM pg_attribute a {self._of_table(table.name)}"
            " JOIN pg_collation l ON l.oid = a.attcollation AND NOT l.collisdeterministic"
        )
        for name, collation, kind in rows:
            if name in table.primary_key:
                yield Mismatch(
                    column=name,
                    source="a key",
                    target=f"{kind} with the nondeterministic collation {collation}, for which"
                    " different keys are equal,",
                    hint=f"run ALTER TABLE {self._name(table.name)} ALTER COLUMN {quote(name)}"
                    f' TYPE {kind} COLLATE pg_catalog."default"',
                )

    def _of_table(self, name: str) -> str:
        schema = self._text(self._schema)
        return (
            f"JOIN pg_class c ON c.oid = a.attrelid AND c.relname = {self._text(name)}"
            " AND c.relkind IN ('r', 'p')"
            f" JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = {schema}"
        )

    def _name(self, table: str) -> str:
        return f"{quote(self._schema)}.{quote(table)}"

    def _table_key(self, table: TargetTable) -> str:
        return f", PRIMARY KEY ({', '.join(map(quote, table.primary_key))})"

    def _named(self, table: TargetTable) -> TargetTable:
        names = [table.name, *(column.name for column in table.columns)]
        for name in [*names, *([table.deleted_at] if table.deleted_at else [])]:
            if len(name.encode()) > _LONGEST_NAME:
                raise NameTooLong(
                    f"the name {name!r} is longer than the {_LONGEST_NAME} bytes that PostgreSQL"
                    " keeps",
                    name,
                )
        return table

    def _lock_ledger(self) -> None:
        self._execute(f"LOCK TABLE {self._name(LEDGER)} IN EXCLUSIVE MODE")

    def _lock_table(self, batch: LoadBatch) -> None:
        names = (f"from {batch.table_name}", f"into {self._ledger_name(batch.table.name)}")
        for number in sorted(_lock_number(f"{self._schema}\0{name}") for name in names):
            self._query(f"SELECT pg_advisory_xact_lock({number})")
        # Wait for sessions that lock the whole ledger, as loads of the previous version did.
        self._execute(f"LOCK TABLE {self._name(LEDGER)} IN ROW SHARE MODE")

    def _widen(self, table: str, column: str, kind: str) -> None:
        self._execute(f"ALTER TABLE {self._name(table)} ALTER {quote(column)} TYPE {kind}")

    def _create(self, *statements: str) -> None:
        with self._translated(), suppress(*_EXISTS):
            try:
                self._create_all(statements)
            except postgres_errors.InvalidSchemaName:
                with suppress(*_EXISTS):
                    self._connection.execute(f"CREATE SCHEMA {quote(self._schema)}".encode())
                self._create_all(statements)

    def _create_all(self, statements: Sequence[str]) -> None:
        with self._connection.transaction():
            for statement in statements:
                self._connection.execute(statement.encode())

    def _grants_on(self, table: str) -> Sequence[str]:
        return granting(self._name(table), self.grants, {})  # groups and users are roles

    def check_grants(self, name: str) -> None:
        """Check that the roles exist that the table will be granted to."""
        roles = {who.name for who in grantees(self.grants) if who.kind != "public"}
        if roles and not self._columns_of(name):
            known = {role for (role,) in self._query("SELECT rolname FROM pg_roles")}
            refuse_unknown("PostgreSQL", name, sorted(roles - known))

    def scratch_schemas(self, prefix: str) -> list[str]:
        """Look them up in the catalog."""
        rows = self._query("SELECT nspname FROM pg_namespace")
        return sorted(str(name) for (name,) in rows if str(name).startswith(prefix))

    def drop_scratch(self, schema: str) -> None:
        """Drop a schema, if it exists."""
        self._begin()
        try:
            self._execute(f"DROP SCHEMA IF EXISTS {quote(schema)} CASCADE")
            self._commit()
        except BaseException:
            self._rollback()
            raise

    def _make_schema(self) -> None:
        name = self._text(self._schema)
        if not self._query(f"SELECT 1 FROM pg_namespace WHERE nspname = {name}"):  # noqa: S608
            self._execute(f"CREATE SCHEMA {quote(self._schema)}")

    def _execute(self, statement: str, values: Sequence[object] = ()) -> int:
        return self._run(statement, values).rowcount

    def _query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._translated():
            return self._run(statement, values).fetchall()

    def _run(self, statement: str, values: Sequence[object]) -> "psycopg.Cursor[tuple[Any, ...]]":
        with self._translated():
            return psycopg.RawCursor(self._connection).execute(statement.encode(), values or None)

    def _begin(self) -> None:
        # So that reads after the lock see what its last holder committed.
        self._execute("BEGIN ISOLATION LEVEL READ COMMITTED")

    def _commit(self) -> None:
        with self._translated():
            done = self._connection.execute(b"COMMIT").statusmessage
        if done != "COMMIT":  # a failed transaction answers ROLLBACK without an error
            raise FloodmarkError(f"PostgreSQL answered COMMIT with {done}")

    def _rollback(self) -> None:
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


def _lock_number(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:8], signed=True)


def staging_columns(table: TargetTable) -> str:
    """Return the column definitions of a staging table."""
    return ", ".join(f"{quote(column.name)} {staging_type(column)}" for column in table.columns)


def _replacement(batch: LoadBatch, found: Iterable[str]) -> tuple[str, str]:
    """Return the ON CONFLICT action for rows of the same key, and the condition for rows to keep.

    Columns that the staged row does not have are reset.
    """
    table, keep_newer_target_rows = batch.table, batch.keep_newer_target_rows
    names = [column.name for column in table.columns]
    values = [f"{quote(n)} = excluded.{quote(n)}" for n in names if n not in table.primary_key]
    values += [f"{quote(name)} = DEFAULT" for name in found if name not in names]
    update = f"UPDATE SET {', '.join(values)}"
    if not values or (not table.version and keep_newer_target_rows):
        return "NOTHING", "TRUE"
    if not table.version or (batch.wins and not keep_newer_target_rows):
        return update, ""
    version, newer = quote(table.version), ">" if keep_newer_target_rows else ">="
    replaced = f"t.{version} IS NULL OR excluded.{version} {newer} t.{version}"
    return f"{update} WHERE {replaced}", f"({replaced}) IS NOT TRUE"


def _is_refusal(error: Exception) -> bool:
    # Errors while connecting have no code.
    return isinstance(error, psycopg.OperationalError) and "authentication failed" in str(error)


def _one_line(error: psycopg.Error) -> str:
    return " ".join(str(error).split())
