"""Read rows back from Redshift: through a cursor, or by UNLOAD if there are many."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property

import pyarrow as pa

from floodmark.config.models import LakeSettings, RetrySettings
from floodmark.errors import FloodmarkError, StatementFailed, StorageError
from floodmark.model.lake_layout import UNLOADS, unload_folder
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.notice import Notice
from floodmark.storage.objects import ObjectStore
from floodmark.storage.opening import open_lake
from floodmark.warehouse.range_predicates import bytes_of
from floodmark.warehouse.redshift.types import SUPER
from floodmark.warehouse.redshift.unload import (
    MOST_BYTES,
    read_unloaded,
    size_query,
    unload_statement,
)
from floodmark.warehouse.row_checksums import Family
from floodmark.warehouse.sql_dialect import quote
from floodmark.warehouse.sql_target import SqlTarget

_FETCH_ROWS = 1000  # the limit on single-node clusters
_NUMBER = Column("c0", "int", False, "int32")


class RedshiftReading(SqlTarget):
    """Reads rows back."""

    unload_rows = 200_000
    """Number of rows from which UNLOAD is used instead of a cursor."""

    _lake: str
    _lake_settings: LakeSettings
    _authorization: str

    @cached_property
    def _objects(self) -> ObjectStore:
        """Open the lake when it is first needed; a reader seldom needs it."""
        return open_lake(self._lake_settings, RetrySettings())

    def _read_value(self, column: Column, held: str) -> str:
        name = quote(column.name)
        return f"JSON_SERIALIZE({name})" if held == SUPER else name

    def _shown(self, name: str, family: Family) -> str | None:
        # A VARBYTE is only checked if it is short enough for the digits of FROM_VARBYTE.
        return (
            f"FROM_VARBYTE({name}, 'hex')" if family == "binary" else super()._shown(name, family)
        )

    def _sha256(self, text: str) -> str:
        return f"SHA2({text}, 256)"

    def _sha256_of_bytes(self, name: str) -> str | None:  # noqa: ARG002
        return None  # SHA2 is documented for text only

    def _hash_part(self, digits: str) -> str:
        return f"STRTOL({digits}, 16)"

    def _batches(
        self, statement: str, table: TargetTable, kinds: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        rows, *longest = self._query(size_query(statement, kinds))[0]
        if rows >= self.unload_rows and all((size or 0) <= MOST_BYTES for size in longest):
            return self._unloaded(statement, table, kinds)
        return self._fetched(statement, table.columns)

    def _unloaded(
        self, statement: str, table: TargetTable, kinds: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        columns = table.columns
        folder = f"{unload_folder(table.name)}{secrets.token_hex(8)}/"
        try:
            try:
                unloaded = self._unload(statement, kinds, folder)
            except StatementFailed as error:
                message = f"rows are read through a cursor, as UNLOAD failed: {error.message}"
                self.report(Notice("warning", message, "unload"))
                yield from self._fetched(statement, columns)
            else:
                yield from read_unloaded(self._objects, self._lake, folder, unloaded, columns)
        finally:
            self._remove(folder)

    def _unload(self, statement: str, kinds: Sequence[str], folder: str) -> int:
        """Write a query's rows to a folder of the lake, and return their number."""
        place = f"{self._lake}/{folder}"
        self._execute(unload_statement(statement, kinds, place, self._authorization))
        return int(self._query("SELECT pg_last_unload_count()")[0][0])

    def _remove(self, folder: str) -> None:
        with suppress(StorageError):  # no longer needed; 's3clean' finds it
            for info in list(self._objects.list_objects(folder)):
                self._objects.delete(info.key)

    def _fetched(self, statement: str, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        self._begin()  # without a cursor, the driver holds all rows in memory
        try:
            self._execute(f"DECLARE floodmark_rows CURSOR FOR {statement}")
            while rows := self._query(f"FETCH FORWARD {_FETCH_ROWS} FROM floodmark_rows"):
                arrays = [pa.array(values) for values in zip(*rows, strict=True)]
                yield pa.record_batch(
                    [
                        bytes_of(array.cast(pa.string())) if column.arrow == "binary" else array
                        for column, array in zip(columns, arrays, strict=True)
                    ],
                    names=[f"c{number}" for number in range(len(columns))],
                )
        finally:
            self._rollback()

    def _probe_unload(self) -> Iterator[tuple[str, str]]:
        """Report why UNLOAD fails, if it does; only verification needs it."""
        folder = f"{UNLOADS}{secrets.token_hex(8)}/"
        try:
            unloaded = self._unload("SELECT 1 AS c0", ["INTEGER"], folder)
            for _ in read_unloaded(self._objects, self._lake, folder, unloaded, [_NUMBER]):
                pass
        except FloodmarkError as error:
            yield (
                f"'--verify-data' reads through cursors, as UNLOAD failed: {error.message}",
                "let the role write to the lake: docs/guides/redshift-permissions.md",
            )
        finally:
            self._remove(folder)
