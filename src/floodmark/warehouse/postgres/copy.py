"""COPY data files into PostgreSQL, and rows out of it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from floodmark.errors import ConstraintViolated
from floodmark.model.load import LoadBatch, LoadChunk, TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.lake_reader import LakeFiles
from floodmark.warehouse.postgres.session import PostgresSession
from floodmark.warehouse.postgres.types import can_be_copied, staging_type
from floodmark.warehouse.sql_dialect import NEWEST, STAGING, check_written, quote
from floodmark.warehouse.sql_target import SqlTarget

if TYPE_CHECKING:
    import pyarrow as pa


class PostgresCopy(SqlTarget):
    """Copies data files into the target or a staging table, and reads rows back."""

    _files: LakeFiles
    _session: PostgresSession

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
        from floodmark.warehouse.postgres.binary_copy import COPY_OPTIONS, copy_bytes

        names = [column.name for column in table.columns]
        statement = f"COPY {into} ({', '.join(map(quote, names))}) FROM STDIN {COPY_OPTIONS}"
        rows = 0

        def batches() -> "Iterator[pa.RecordBatch]":
            nonlocal rows
            for batch in self._files.batches_of(paths, names):
                rows += batch.num_rows
                yield batch

        written = self._session.copy_in(statement, copy_bytes(batches(), table, kinds))
        check_written(table.name, rows, written)
        return rows

    def _batches(
        self,
        statement: str,
        table: TargetTable,
        kinds: Sequence[str],  # noqa: ARG002
    ) -> "Iterator[pa.RecordBatch]":
        from floodmark.warehouse.postgres.reader import READ_OPTIONS, read_rows

        with self._session.copy_out(f"COPY ({statement}) TO STDOUT {READ_OPTIONS}") as copy:
            yield from read_rows(copy, table.columns)

    def _read_value(self, column: Column, held: str) -> str:
        from floodmark.warehouse.postgres.reader import read_value

        return read_value(column, quote(column.name), held)


def staging_columns(table: TargetTable) -> str:
    """Return the column definitions of a staging table."""
    return ", ".join(f"{quote(column.name)} {staging_type(column)}" for column in table.columns)
