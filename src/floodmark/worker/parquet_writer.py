"""Write batches of rows to Parquet files of a suitable size."""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from floodmark.model.manifest import DataFile
from floodmark.worker.lake_writer import LakeFile
from floodmark.worker.position_range import Span

# A dictionary pays if values repeat this often on average.
_REPEATS = 8
_SAMPLE_ROWS = 8192


class ParquetLayout(Struct, frozen=True, kw_only=True):
    """Settings of all files of a window."""

    schema: pa.Schema
    create: Callable[[str], LakeFile]
    name: Callable[[int], str]
    span: Callable[[], Span]
    cursor: tuple[str, ...]
    file_bytes: int
    row_group_bytes: int
    codec: str | None = None


class ParquetFiles:
    """Write rows to one file after another, and start the next when one is large enough.

    Rows are buffered until they fill a row group, so memory depends on its size, not on the number
    of rows.
    """

    def __init__(self, layout: ParquetLayout) -> None:
        self._layout = layout
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._dictionaries: list[str] | None = None
        self._open: _ParquetFile | None = None
        self._finished: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        if not batch.num_rows:
            return
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= self._layout.row_group_bytes:
            self._write_held()

    def finish(self) -> tuple[DataFile, ...]:
        """Complete the last file, and return all files."""
        self._write_held()
        self._finish_open()
        return tuple(self._finished)

    def abandon(self) -> None:
        """Discard the open file. Finished files stay; no manifest will list them."""
        if self._open:
            self._open.abandon()

    def _write_held(self) -> None:
        if not self._held:
            return
        if self._dictionaries is None:
            self._dictionaries = repeating_columns(self._held[0].slice(0, _SAMPLE_ROWS))
        if self._open is None:
            name = self._layout.name(len(self._finished))
            self._open = _ParquetFile(self._layout, name, self._dictionaries)
        self._open.write(self._held)
        self._held, self._held_bytes = [], 0
        if self._open.size >= self._layout.file_bytes:
            self._finish_open()

    def _finish_open(self) -> None:
        if self._open:
            self._finished.append(self._open.finish())
            self._open = None


class _ParquetFile:
    def __init__(self, layout: ParquetLayout, name: str, dictionaries: list[str]) -> None:
        self._name = name
        self._span = layout.span()
        self._rows = 0
        self._file = layout.create(name)
        self._writer = pq.ParquetWriter(
            self._file,
            layout.schema,
            compression=layout.codec or "zstd",
            # Snappy has no levels.
            compression_level=None if layout.codec == "snappy" else 1,
            use_dictionary=dictionaries,
            write_statistics=list(layout.cursor),
            store_schema=False,
        )

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._rows += table.num_rows
        for batch in batches:
            self._span.add(batch)

    def finish(self) -> DataFile:
        self._writer.close()
        etag = self._file.finish()
        return DataFile(
            path=self._name,
            rows=self._rows,
            bytes=self._file.size,
            etag=etag,
            checksum=self._file.checksum,
            first=self._span.first,
            last=self._span.last,
        )

    def abandon(self) -> None:
        self._writer.is_open = False  # or it writes to the closed file when it is collected
        self._file.abandon()


def repeating_columns(sample: pa.RecordBatch) -> list[str]:
    """Return the columns whose values repeat often enough for a dictionary."""
    return [
        field.name
        for field, column in zip(sample.schema, sample.columns, strict=True)
        if not pa.types.is_nested(field.type)
        and pc.count_distinct(column).as_py() * _REPEATS <= len(column) - column.null_count
    ]
