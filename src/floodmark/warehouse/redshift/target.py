"""Amazon Redshift: one COPY a load, straight from the lake."""

import json
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from floodmark.config.models import (
    LakeSettings,
    RedshiftConnection,
    TableSettings,
)
from floodmark.errors import (
    ConfigError,
    DataRefused,
    FloodmarkError,
    SchemaConflict,
    StatementFailed,
    StorageError,
    Unrepresentable,
)
from floodmark.model.encryption import Encryption
from floodmark.model.fingerprint import DIGEST_DIGITS, UNIX_EPOCH
from floodmark.model.lake_layout import LOADS
from floodmark.model.load import LoadBatch, LoadChunk, TargetTable
from floodmark.model.manifest import Column
from floodmark.model.notice import Notice
from floodmark.storage.objects import ObjectStore
from floodmark.warehouse.grants import GRANTEE_HINT, grants_of
from floodmark.warehouse.redshift.locks import LockingTarget
from floodmark.warehouse.redshift.reading import RedshiftReading
from floodmark.warehouse.redshift.session import literal, open_session
from floodmark.warehouse.redshift.tables import RedshiftTables
from floodmark.warehouse.redshift.types import (
    MOST_SCALE,
    SUPER,
    fits,
    is_text,
    redshift_type,
    shown_type,
    staging_type,
    widens,
)
from floodmark.warehouse.redshift.types import folded as _folded
from floodmark.warehouse.redshift.unsupported_values import redshift_unsupported_values
from floodmark.warehouse.sql_dialect import NEWEST, STAGING, quote
from floodmark.warehouse.target import TargetFacts
from floodmark.warehouse.unsupported_values import UnsupportedValue, may_be_null

_LONGEST_NAME = 127  # bytes; Redshift truncates longer names
_NO_SETTINGS = TableSettings()
_ERRORS_SHOWN = 3

# Another loader created it concurrently: schema, table, column, or its catalog entry.
_EXISTS = {"42P06", "42P07", "42701", "42710", "23505"}
_NO_SCHEMA = "3F000"
# Keys that cannot be counted by text: 0 and -0.0 are equal, and BOOLEAN has no cast to text.
_NO_TEXT = ("bool", "float32", "float64")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


class RedshiftTarget(LockingTarget, RedshiftTables, RedshiftReading):
    """A Redshift cluster or workgroup, with the lake in S3."""

    now = "SYSDATE"  # CURRENT_TIMESTAMP works on the leader node only

    def __init__(
        self,
        connection: RedshiftConnection,
        objects: ObjectStore | None,
        lake: LakeSettings,
        settings: TableSettings = _NO_SETTINGS,
        *,
        configured: RedshiftConnection | None = None,
    ) -> None:
        lake.require_s3()
        if objects is not None:
            self._objects = objects
        self._lake_settings = lake
        self._lake = lake.url.rstrip("/")
        self._codec = lake.codec or "snappy"
        self._endpoint = lake.outside_aws
        self._schema = _folded(connection.schema)
        self._authorization = _authorization(connection)
        self._settings = settings
        self.grants = grants_of(connection, settings)
        self._json = connection.json
        self._connection = connection
        self._configured = configured or connection
        self._analyze = connection.analyze
        self._session = open_session(self._log_in)

    def encryption(self) -> Encryption:
        """Return how the connection is encrypted."""
        return self._session.encryption

    def column_type(self, column: Column) -> str:
        """Return Redshift's type for a column."""
        return redshift_type(column, json=self._json)

    def _inserted(self, column: Column, held: str) -> str:
        name = quote(column.name)
        if held == SUPER:
            return f"JSON_PARSE({name})"
        # How Redshift implicitly converts a number to another width is not documented.
        wider = held.startswith("DECIMAL") and held != staging_type(column)
        return f"CAST({name} AS {held})" if wider else name

    def is_text(self, held: str, kind: str) -> bool:
        """Whether a column is a VARCHAR that is long enough."""
        return is_text(held, kind)

    def _as_text(self, name: str, kind: str, held: str) -> str:
        if kind == SUPER:
            return name  # it is staged as text
        if kind.startswith("VARBYTE"):
            return f"FROM_VARBYTE({name}, 'hex')"
        return super()._as_text(name, kind, held)

    def _literal(self, value: str, held: str) -> str:
        if held == SUPER:
            return f"JSON_PARSE({literal(value)})"
        if held.startswith("VARBYTE"):
            return f"TO_VARBYTE({literal(value)}, 'hex')"
        return super()._literal(value, held)

    def _moment(self, name: str, held: str) -> str:  # noqa: ARG002
        start = "CAST('1970-01-01' AS TIMESTAMP)"
        return f"(DATEDIFF(microsecond, {start}, CAST({name} AS TIMESTAMP)) + {UNIX_EPOCH})"

    def _digest(self, text: str) -> str:
        return f"STRTOL(LEFT(SHA2({text}, 256), {DIGEST_DIGITS}), 16)"

    def _hexadecimal(self, name: str) -> str:
        return f"LOWER(FROM_VARBYTE({name}, 'hex'))"

    def _differs(self, name: str, literal: str, held: str) -> str:
        return "TRUE" if held == SUPER else super()._differs(name, literal, held)

    def _key_parts(self, column: Column, place: str = "") -> list[str]:
        name = f"{place}{quote(column.name)}"
        # Text comparison ignores trailing blanks, and in some databases case.
        return [name, f"MD5({name})"] if column.arrow == "string" else [name]

    def _counted_parts(self, column: Column) -> list[str]:
        parts = self._key_parts(column)
        return [*parts, f"LENGTH({parts[0]})"] if column.arrow == "string" else parts

    def widens(self, old: str, new: str) -> bool:
        """Whether the new type can hold every value of the old one."""
        return widens(old, new)

    def _text(self, value: str) -> str:
        return literal(value)

    def _unsupported_values(self, table: TargetTable) -> Sequence[UnsupportedValue]:
        return redshift_unsupported_values(table, json=self._json)

    def _named(self, table: TargetTable) -> TargetTable:
        names = [table.name, *(column.name for column in table.columns)]
        for name in [*names, *([table.deleted_at] if table.deleted_at else [])]:
            if len(name.encode()) > _LONGEST_NAME:
                raise SchemaConflict(
                    f"the name {name!r} is longer than the {_LONGEST_NAME} bytes that Redshift"
                    " keeps",
                    hint="give the table a shorter 'target_name', or leave the column out with"
                    " 'exclude'",
                )
        for column in table.columns:
            if not fits(column):
                raise SchemaConflict(
                    f"{table.name}.{column.name} is {column.type}, but Redshift allows at most"
                    f" {MOST_SCALE} digits after the point",
                    hint=f"leave it out: exclude: [{column.name}]",
                )
        # Redshift folds ASCII letters of names to lower case, even in quotes.
        return structs.replace(
            table,
            name=_folded(table.name),
            columns=tuple(structs.replace(c, name=_folded(c.name)) for c in table.columns),
            primary_key=tuple(map(_folded, table.primary_key)),
            version=_folded(table.version) if table.version else None,
            deleted_at=_folded(table.deleted_at) if table.deleted_at else None,
        )

    def _stage_chunks(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int:
        for name in (STAGING, NEWEST):
            self._execute(f"DROP TABLE IF EXISTS {name}")
        # COPY matches columns by position: the order here is that of the files. Compression does
        # not pay for rows that are read once; without an encoding, Redshift would choose one.
        columns = ", ".join(
            f"{quote(c.name)} {staging_type(c)} ENCODE RAW" for c in batch.table.columns
        )
        self._execute(f"CREATE TEMPORARY TABLE {STAGING} ({columns})")
        self._copy_chunks(STAGING, batch, chunks)
        return self._count_rows(STAGING)

    def _copy_chunks(self, into: str, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> None:
        if any(chunk.paths for chunk in chunks):
            name = _UNSAFE.sub("_", batch.table_name)
            files = [pair for c in chunks for pair in zip(c.paths, c.sizes, strict=True)]
            self._copy(into, f"{LOADS}{batch.session_id}/{name}/", files)

    def _insert_at_once(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int | None:
        """Copy straight into a table if no row is replaced, which writes rows only once."""
        table, target = batch.table, self._name(batch.table.name)
        merges = bool(table.primary_key) and not batch.reload
        key = [table.column(name) for name in table.primary_key]
        if not self._takes_files(table) or any(may_be_null(c) or c.arrow in _NO_TEXT for c in key):
            return None
        if merges and self._query(f"SELECT 1 FROM {target} LIMIT 1"):  # noqa: S608
            return None
        held = 0 if merges else self._count_rows(target)
        self._copy_chunks(target, batch, chunks)
        rows = self._count_rows(target) - held
        if merges:
            # By text: Redshift may assume that a declared key is unique.
            keys = ", ".join(self._key_text(column) for column in key)
            if self._count_rows(f"(SELECT DISTINCT {keys} FROM {target}) AS keys") < rows:  # noqa: S608
                self._execute(f"DELETE FROM {target}")  # noqa: S608
                return None
        return rows

    def _takes_files(self, table: TargetTable) -> bool:
        """Whether a table has the columns of the data files, in the same order and types."""
        wanted = [(column.name, staging_type(column)) for column in table.columns]
        return list(self._columns_of(table.name).items()) == wanted

    def _key_text(self, column: Column) -> str:
        name = quote(column.name)
        if column.arrow == "string":
            return f"MD5({name})"
        return self._as_text(name, staging_type(column), "VARCHAR(64)")

    def probe(self) -> TargetFacts:
        """Also COPY a file from the lake: only that tests role, region and codec."""
        facts = super().probe()
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"n": [1]}), sink, compression=self._codec)
        data = sink.getvalue().to_pybytes()
        folder = f"{LOADS}probe_{secrets.token_hex(8)}/"
        file = f"{folder}1.parquet"
        self._objects.put(file, data)
        self._execute("CREATE TEMPORARY TABLE floodmark_probe (n BIGINT)")
        try:
            self._copy("floodmark_probe", folder, [(file, len(data))])
        finally:
            self._execute("DROP TABLE floodmark_probe")
            for info in list(self._objects.list_objects(folder)):
                self._objects.delete(info.key)
        return structs.replace(facts, remarks=tuple(self._probe_unload()))

    def _copy(self, into: str, folder: str, files: Sequence[tuple[str, int]]) -> None:
        """COPY files of the lake into a table, using a manifest in a folder of the lake."""
        key = f"{folder}{secrets.token_hex(8)}.manifest"
        source = literal(f"{self._lake}/{key}")
        self._objects.put(key, copy_manifest(self._lake, files))
        try:
            self._execute(
                f"COPY {into} FROM {source} {self._authorization} FORMAT AS PARQUET MANIFEST"
            )
        except StatementFailed as error:
            # The transaction failed; load errors can be queried only outside of it.
            self._rollback()
            found = self._load_errors()
            failed = Unrepresentable if found or isinstance(error, DataRefused) else FloodmarkError
            hint = error.hint or f"the files are named in {self._lake}/{key}"
            if self._endpoint and failed is FloodmarkError:
                hint += f"; Redshift can only read S3 on AWS, not the lake's {self._endpoint}"
            raise failed(
                "\n  ".join([f"COPY failed: {error.message}", *found]), hint=hint
            ) from error
        with suppress(StorageError):  # no longer needed, but harmless
            self._objects.delete(key)

    def _after_load(self, table: TargetTable) -> None:
        if not self._analyze:
            return
        try:
            self._execute(f"ANALYZE {self._name(table.name)}")
        except FloodmarkError as error:
            message = f"{table.name} is loaded, but ANALYZE failed: {error.message}"
            self.report(Notice("warning", message, "analyze"))

    def _load_errors(self) -> list[str]:
        """Return Redshift's records of this session's failed COPY, if there are any."""
        with suppress(FloodmarkError):
            rows = self._query(
                "SELECT TRIM(column_name), TRIM(column_type), TRIM(column_length),"  # noqa: S608
                " TRIM(error_message), TRIM(file_name) FROM sys_load_error_detail"
                " WHERE session_id = pg_backend_pid() ORDER BY start_time DESC"
                f" LIMIT {_ERRORS_SHOWN}"
            )
            return [_load_error(*row) for row in rows]
        return []

    def _stage(self, table: TargetTable, paths: Sequence[str]) -> int:
        raise NotImplementedError("COPY also needs the files' sizes")

    def _columns_of(self, name: str) -> dict[str, str]:
        rows = self._query(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a"  # noqa: S608
            " JOIN pg_class AS c ON c.oid = a.attrelid"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            f" WHERE n.nspname = {literal(self._schema)} AND c.relname = {literal(name)}"
            " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        )
        return {name: shown_type(kind) for name, kind in rows}

    def _name(self, table: str) -> str:
        return f"{quote(self._schema)}.{quote(table)}"

    def _ledger_key(self, columns: Sequence[str]) -> str:  # noqa: ARG002
        return ""  # it would not be enforced: locks protect the ledger

    def _create(self, *statements: str) -> None:
        try:
            self._define(*statements)
        except StatementFailed as error:
            if error.code != _NO_SCHEMA:
                raise
            self._define(f"CREATE SCHEMA IF NOT EXISTS {quote(self._schema)}")
            self._define(*statements)

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

    def _define(self, *statements: str) -> None:
        try:
            if len(statements) == 1:
                self._execute(statements[0])
            else:
                self._run_together(statements)
        except StatementFailed as error:
            if error.code not in _EXISTS:
                raise

    def _execute(self, statement: str, values: Sequence[object] = ()) -> int:
        try:
            return self._session.execute(statement, values)
        except StatementFailed as error:
            if statement.startswith("GRANT "):
                error.hint = error.hint or GRANTEE_HINT
            raise

    def _query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._session.run(statement, values)

    def _begin(self) -> None:
        self._execute("BEGIN")

    def _commit(self) -> None:
        self._execute("COMMIT")

    def _rollback(self) -> None:
        self._session.roll_back()


def copy_manifest(lake: str, files: Sequence[tuple[str, int]]) -> bytes:
    """Return the manifest of a COPY: files and their sizes.

    Without `mandatory`, COPY would silently skip a missing file.
    """
    entries = [
        {"url": f"{lake}/{path}", "mandatory": True, "meta": {"content_length": size}}
        for path, size in files
    ]
    return json.dumps({"entries": entries}, indent=1).encode()


def _authorization(connection: RedshiftConnection) -> str:
    """Return the authorization clause of a COPY. With keys, Parquet needs the older syntax."""
    key, secret = connection.access_key_id, connection.secret_access_key
    if connection.iam_role and not (key or secret):
        role = connection.iam_role
        return "IAM_ROLE default" if role == "default" else f"IAM_ROLE {literal(role)}"
    if key and secret and not connection.iam_role:
        given = f"aws_access_key_id={key.reveal()};aws_secret_access_key={secret.reveal()}"
        if connection.session_token:
            given += f";token={connection.session_token.reveal()}"
        return f"CREDENTIALS {literal(given)}"
    raise ConfigError(
        f"Redshift at {connection.host} has no authorization to read the lake",
        hint="set 'iam_role' of the connection, or else both 'access_key_id' and"
        " 'secret_access_key'",
    )


def _load_error(
    column: str | None, kind: str | None, length: str | None, message: str, file: str | None
) -> str:
    size = f"({length})" if length else ""
    place = f"column {column} {kind or ''}{size}: " if column else ""
    return f"{place}{message}" + (f" in {file}" if file else "")
