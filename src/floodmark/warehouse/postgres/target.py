"""PostgreSQL as a target: SQL, tables and locks."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any

from msgspec import structs

from floodmark.config.models import PostgresConnection, TableSettings
from floodmark.errors import NameTooLong
from floodmark.model.encryption import Encryption
from floodmark.model.load import LoadBatch, TargetTable
from floodmark.model.manifest import Column
from floodmark.model.row_checksums import HASH_DIGITS
from floodmark.model.schema_change import Mismatch
from floodmark.warehouse.conversion import held_as
from floodmark.warehouse.grants import grantees, granting, grants_of, refuse_unknown
from floodmark.warehouse.lake_reader import LakeFiles
from floodmark.warehouse.postgres import types as postgres_types
from floodmark.warehouse.postgres.canonical_text import joined, sha256_of, shown
from floodmark.warehouse.postgres.catalog import (
    columns_query,
    computed_query,
    key_query,
    loose_collations_query,
    not_null_query,
)
from floodmark.warehouse.postgres.copy import PostgresCopy
from floodmark.warehouse.postgres.fingerprints import digest, moment
from floodmark.warehouse.postgres.session import PostgresSession
from floodmark.warehouse.postgres.unsupported_values import postgres_unsupported_values
from floodmark.warehouse.postgres.upsert import newest_staged, replacement
from floodmark.warehouse.row_checksums import Family, Field
from floodmark.warehouse.schemas import SchemaTarget
from floodmark.warehouse.sql_dialect import LEDGER, check_written, quote
from floodmark.warehouse.target import Dropped
from floodmark.warehouse.unsupported_values import UnsupportedValue

NO_SETTINGS = TableSettings()
_LONGEST_NAME = 63  # bytes; PostgreSQL truncates longer names


class PostgresTarget(PostgresCopy, SchemaTarget):
    """A schema of a PostgreSQL database; created when first needed."""

    # Of this type, the planner sees that it limits nothing, and lets workers add up.
    fence = " OFFSET bigint '0'"
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
        self._session = PostgresSession(settings)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def encryption(self) -> Encryption:
        """Return the session's protocol, and what libpq verifies."""
        return self._session.encryption()

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
        return moment(name, held)

    def _digest(self, text: str) -> str:
        return digest(text)

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

    def _insert_staged(self, batch: LoadBatch, found: dict[str, str], rows: int) -> None:
        """Upsert in one statement if the target's table has the key: a third of the work."""
        table = batch.table
        if batch.reload or not table.primary_key or self._key_of(table.name) is None:
            super()._insert_staged(batch, found, rows)
            return
        columns = ", ".join(quote(column.name) for column in table.columns)
        keys = ", ".join(map(quote, table.primary_key))
        staged = newest_staged(table)
        update, stays = replacement(batch, found)
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

    def _count_staged(self, name: str) -> None:
        self._execute(f"ANALYZE {name}")

    def _temporary(self, name: str) -> str:
        return f"pg_temp.{name}"

    # Otherwise the planner merges both queries, and computes every hash twice.
    hash_fence = fence

    def _shown(self, name: str, family: Family) -> str | None:
        return shown(name, family, self._encoding)

    def _sha256(self, text: str) -> str:
        return sha256_of(f"textsend(({text})::text)")  # in UTF-8, as the session is

    def _sha256_of_bytes(self, name: str) -> str:
        return sha256_of(name)

    def count_respelled(self, documents: Sequence[str]) -> int:
        """Convert them to JSONB and back."""
        statement = "SELECT count(*) FROM unnest($1::text[]) AS given(t) WHERE t::jsonb::text <> t"
        return int(self._query(statement, [list(documents)])[0][0])

    def _hash(self, text: str) -> str:
        # Bits are read once, and each part is a piece of them.
        first = f"substr(sha256(textsend({text})), 1, {HASH_DIGITS})"
        return f"('x' || encode({first}, 'hex'))::bit({8 * HASH_DIGITS})"

    def _hash_parts(self) -> tuple[str, str]:
        bits = 4 * HASH_DIGITS
        return f"h::bit({bits})::bigint", f"substring(h, {bits + 1})::bigint"

    def _joined(self, fields: Sequence[Field]) -> str:
        return joined(fields)

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
        return dict(self._query(columns_query(self._schema, name)))

    def _key_of(self, name: str) -> tuple[str, ...] | None:
        rows = self._query(key_query(self._schema, name))
        return tuple(row[0] for row in rows) or None

    def _not_null(self, name: str) -> dict[str, bool]:
        return dict(self._query(not_null_query(self._schema, name)))

    def _compare(
        self, table: TargetTable, found: dict[str, str], dropped: Dropped
    ) -> list[Mismatch]:
        return [
            *super()._compare(table, found, dropped),
            *self._loose_keys(table),
            *self._computed(table, found),
        ]

    def _computed(self, table: TargetTable, found: dict[str, str]) -> Iterator[Mismatch]:
        """Yield columns that PostgreSQL computes, so that rows cannot bring their values."""
        names = [column.name for column in table.columns]
        for name, change in self._query(computed_query(self._schema, table.name)):
            if name in names:
                yield Mismatch(
                    column=name,
                    source="a column with values",
                    target=f"{found[name]} GENERATED ALWAYS",
                    hint=f"run ALTER TABLE {self._name(table.name)} ALTER COLUMN {quote(name)}"
                    f" {change} in the target",
                )

    def _loose_keys(self, table: TargetTable) -> Iterator[Mismatch]:
        """Yield key columns whose collation would make different keys of the source one."""
        rows = self._query(loose_collations_query(self._schema, table.name))
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
        self._session.create(statements, self._schema)

    def _grants_on(self, table: str) -> Sequence[str]:
        return granting(self._name(table), self.grants, {})  # groups and users are roles

    def check_grants(self, name: str) -> None:
        """Check that the roles exist that the table will be granted to."""
        roles = {who.name for who in grantees(self.grants) if who.kind != "public"}
        if roles and not self._columns_of(name):
            known = {role for (role,) in self._query("SELECT rolname FROM pg_roles")}
            refuse_unknown("PostgreSQL", name, sorted(roles - known))

    def _execute(self, statement: str, values: Sequence[object] = ()) -> int:
        return self._session.run(statement, values).rowcount

    def _query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._session.query(statement, values)

    def _begin(self) -> None:
        # So that reads after the lock see what its last holder committed.
        self._execute("BEGIN ISOLATION LEVEL READ COMMITTED")

    def _commit(self) -> None:
        self._session.commit()

    def _rollback(self) -> None:
        self._session.roll_back()


def _lock_number(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:8], signed=True)
