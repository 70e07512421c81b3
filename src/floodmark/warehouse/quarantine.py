"""Quarantine rows that a target cannot hold, and load the others.

Files are inspected only if the target refuses a row. Each file with unsupported rows is split: they
go to a file in quarantine, the others to a copy that is loaded instead.

Both names are derived from load epoch, manifest and file. A crash before the target's commit leaves
files that do not count; the next load of the same manifest writes them again. The number of
quarantined rows is committed with the rows, in the ledger.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import NoReturn

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct, structs

from floodmark.errors import FloodmarkError, StorageError, Unrepresentable
from floodmark.model.load import LoadBatch, LoadChunk
from floodmark.storage.objects import ObjectStore
from floodmark.warehouse.lake_reader import LakeFiles
from floodmark.warehouse.target import Target
from floodmark.warehouse.unsupported_values import UnsupportedValue

_SHOWN = 3


class Quarantine(Struct, frozen=True, kw_only=True):
    """The folders for quarantined rows and for copies without them, and the limit of rows."""

    objects: ObjectStore
    folder: str
    copies: str
    most_rows: int


def load_what_fits(target: Target, batch: LoadBatch, quarantine: Quarantine) -> int:
    """Load a batch, quarantine rows that the target cannot hold; return the rows loaded."""
    try:
        return target.load(batch)
    except Unrepresentable:
        fitting = set_aside(batch, target.unsupported_values(batch.table), quarantine)
        if fitting == batch:
            raise  # for an unknown reason
        rows = target.load(fitting)
    with suppress(StorageError):  # no longer needed, but harmless
        for info in quarantine.objects.list_objects(quarantine.copies):
            quarantine.objects.delete(info.key)
    return rows


def set_aside(
    batch: LoadBatch, unsupported_values: Sequence[UnsupportedValue], quarantine: Quarantine
) -> LoadBatch:
    """Write unsupported rows to quarantine, and return the batch without them.

    FloodmarkError, with the first of them, if there are more than allowed.
    """
    row_filter = _RowFilter(batch, unsupported_values, quarantine)
    return structs.replace(batch, chunks=tuple(map(row_filter.split, batch.chunks)))


class _RowFilter:
    def __init__(
        self,
        batch: LoadBatch,
        unsupported_values: Sequence[UnsupportedValue],
        quarantine: Quarantine,
    ) -> None:
        self._batch = batch
        self._table = batch.table
        self._unsupported_values = unsupported_values
        self._quarantine = quarantine
        self._files = LakeFiles(quarantine.objects, None)
        self._rows = 0
        self._first: list[str] = []

    def split(self, chunk: LoadChunk) -> LoadChunk:
        """Split those files of a chunk that contain unsupported rows."""
        paths, sizes, before = [], [], self._rows
        for number, (path, size) in enumerate(zip(chunk.paths, chunk.sizes, strict=True)):
            fits, records = self._inspect(path, str(chunk.head))
            if not records:
                paths.append(path)
                sizes.append(size)
                continue
            name = f"{chunk.head.epoch:08d}-{chunk.head.sequence:08d}/{number:05d}.parquet"
            self._write(f"{self._quarantine.folder}{name}", iter(records))
            if any(mask.true_count for mask in fits):
                paths.append(f"{self._quarantine.copies}{name}")
                kept = (b.filter(m) for b, m in zip(self._batches(path), fits, strict=True))
                sizes.append(self._write(paths[-1], kept))
        return structs.replace(
            chunk,
            paths=tuple(paths),
            sizes=tuple(sizes),
            quarantined_rows=self._rows - before,
        )

    def _batches(self, path: str) -> Iterator[pa.RecordBatch]:
        return self._files.batches(path, [column.name for column in self._table.columns])

    def _inspect(
        self, path: str, manifest: str
    ) -> tuple[list[pa.BooleanArray], list[pa.RecordBatch]]:
        """Return masks of a file's supported rows, one a batch, and records of the other rows."""
        fits, records = [], []
        for batch in self._batches(path):
            reasons = self._reasons(batch)
            fits.append(pc.is_null(reasons))
            if len(unsupported_values := reasons.drop_null()):
                rows = batch.filter(pc.is_valid(reasons))
                records.append(self._records(rows, unsupported_values, path, manifest))
                self._count(records[-1])
        return fits, records

    def _reasons(self, batch: pa.RecordBatch) -> pa.Array:
        """Return, for each row, the number of its first unsupported value, or NULL."""
        reasons = pa.nulls(batch.num_rows, pa.int32())
        for number, unsupported_value in enumerate(self._unsupported_values):
            found = pc.fill_null(unsupported_value.found(batch), False)
            first = pc.and_(found, pc.is_null(reasons))
            reasons = pc.if_else(first, pa.scalar(number, pa.int32()), reasons)
        return reasons

    def _records(
        self, rows: pa.RecordBatch, reasons: pa.Array, path: str, manifest: str
    ) -> pa.RecordBatch:
        unsupported_values = [self._unsupported_values[number] for number in reasons.to_pylist()]
        return pa.record_batch(
            {
                "table_name": pa.array([self._batch.table_name] * rows.num_rows, pa.string()),
                "manifest": pa.array([manifest] * rows.num_rows, pa.string()),
                "file": pa.array([path] * rows.num_rows, pa.string()),
                "key": pa.array(list(self._keys(rows)), pa.string()),
                "column": pa.array(
                    [unsupported_value.column for unsupported_value in unsupported_values],
                    pa.string(),
                ),
                "reason": pa.array(
                    [unsupported_value.reason for unsupported_value in unsupported_values],
                    pa.string(),
                ),
                "row": pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema)),
            }
        )

    def _keys(self, rows: pa.RecordBatch) -> Iterator[str | None]:
        if not self._table.primary_key:
            yield from [None] * rows.num_rows
            return
        for key in rows.select(self._table.primary_key).to_pylist():
            yield msgspec.json.encode(key).decode()

    def _count(self, records: pa.RecordBatch) -> None:
        self._rows += records.num_rows
        for record in records.slice(0, _SHOWN - len(self._first)).drop_columns("row").to_pylist():
            row = "a row" if record["key"] is None else f"the row with key {record['key']}"
            self._first.append(f"{row}: {record['column']}: {record['reason']}")
        if self._rows > self._quarantine.most_rows:
            self._give_up()

    def _give_up(self) -> NoReturn:
        first, last = self._batch.chunks[0].head, self._batch.chunks[-1].head
        message = (
            f"{self._batch.table_name}: more than the limit of {self._quarantine.most_rows:,} rows"
            f" have values that the target cannot hold, so manifests {first} to {last} were not"
            " loaded; the first are"
        )
        raise FloodmarkError(
            "\n  ".join([message, *self._first]),
            hint="fix them in the source and reset the table, or allow more in quarantine with"
            " 'loading: {quarantine_limit: …}'",
        )

    def _write(self, key: str, batches: Iterator[pa.RecordBatch]) -> int:
        """Write a Parquet file, and return its size."""
        sink, first = pa.BufferOutputStream(), next(batches)
        # Every target reads Snappy.
        with pq.ParquetWriter(
            sink, first.schema, compression="snappy", store_schema=False
        ) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)
        data = sink.getvalue().to_pybytes()
        self._quarantine.objects.put(key, data)
        return len(data)
