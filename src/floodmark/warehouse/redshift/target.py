"""Amazon Redshift as a target: names, SQL and statements."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from floodmark.config.models import LakeSettings, RedshiftConnection, TableSettings
from floodmark.errors import FloodmarkError, SchemaConflict, StatementFailed
from floodmark.model.encryption import Encryption
from floodmark.model.fingerprint import DIGEST_DIGITS, UNIX_EPOCH
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.notice import Notice
from floodmark.storage.objects import ObjectStore
from floodmark.warehouse.grants import GRANTEE_HINT, grants_of
from floodmark.warehouse.redshift.copy import RedshiftCopy, authorization
from floodmark.warehouse.redshift.locks import LockingTarget
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
from floodmark.warehouse.schemas import SchemaTarget
from floodmark.warehouse.sql_dialect import quote
from floodmark.warehouse.unsupported_values import UnsupportedValue

_LONGEST_NAME = 127  # bytes; Redshift truncates longer names
_NO_SETTINGS = TableSettings()

# Another loader created it concurrently: schema, table, column, or its catalog entry.
_EXISTS = {"42P06", "42P07", "42701", "42710", "23505"}
_NO_SCHEMA = "3F000"


class RedshiftTarget(LockingTarget, RedshiftTables, RedshiftCopy, SchemaTarget):
    """A Redshift cluster or workgroup, with the lake in S3."""

    now = "SYSDATE"  # CURRENT_TIMESTAMP works on the leader node only
    hashes_any_length = False  # its functions return up to 65,535 bytes

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
        self._authorization = authorization(connection)
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

    def _after_load(self, table: TargetTable) -> None:
        if not self._analyze:
            return
        try:
            self._execute(f"ANALYZE {self._name(table.name)}")
        except FloodmarkError as error:
            message = f"{table.name} is loaded, but ANALYZE failed: {error.message}"
            self.report(Notice("warning", message, "analyze"))

    def _columns_of(self, name: str) -> dict[str, str]:
        rows = self._query(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a"  # noqa: S608
            " JOIN pg_class AS c ON c.oid = a.attrelid"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            f" WHERE n.nspname = {literal(self._schema)} AND c.relname = {literal(name)}"
            " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        )
        return {name: shown_type(kind) for name, kind in rows}

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
