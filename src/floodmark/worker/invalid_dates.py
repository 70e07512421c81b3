"""Quarantine rows with invalid dates in files of the lake that the manifest lists."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from floodmark.model.cursor import Cursor
from floodmark.model.extraction import ColumnPlan
from floodmark.model.manifest import DataFile
from floodmark.worker.conversion import arrow_type
from floodmark.worker.job import ExtractionJob
from floodmark.worker.lake_writer import open_files
from floodmark.worker.parquet_writer import ParquetFiles, ParquetLayout
from floodmark.worker.position_range import Span

_REASON = "a zero or partial date"
_NO_CURSOR = Cursor(kind="none")


class Quarantine:
    """Write quarantined rows of a window, in the file format that loading also uses.

    In columns with invalid dates, all values are text as the server sent them.
    """

    def __init__(self, job: ExtractionJob, part: int, attempt: int) -> None:
        self._job = job
        self._row = pa.struct(pa.field(column.name, _kept_type(column)) for column in job.columns)
        self._schema = pa.schema(
            [(name, pa.string()) for name in ("table_name", "manifest", "file", "key", "column")]
            + [("reason", pa.string()), ("row", self._row)]
        )
        self._files = ParquetFiles(
            ParquetLayout(
                schema=self._schema,
                create=open_files(job.lake),
                name=lambda number: job.quarantine_key(part, attempt, number),
                span=lambda: Span(_NO_CURSOR, ordered=False),
                cursor=(),
                file_bytes=job.file_bytes,
                row_group_bytes=job.row_group_bytes,
                codec=job.lake.codec,
            )
        )

    def add(self, rows: Sequence[pa.Array], columns: pa.Array) -> None:
        """Add rows: their values, and for each the column with the invalid date."""
        values = pa.StructArray.from_arrays(list(rows), fields=list(self._row))
        nothing = pa.nulls(len(values), pa.string())
        named = {
            "table_name": pa.array([str(self._job.table)] * len(values), pa.string()),
            "manifest": nothing,
            "file": nothing,
            "key": self._keys(values),
            "column": columns,
            "reason": pa.array([_REASON] * len(values), pa.string()),
            "row": values,
        }
        self._files.write(pa.record_batch(list(named.values()), schema=self._schema))

    def finish(self) -> tuple[DataFile, ...]:
        """Complete the files, and return them."""
        return self._files.finish()

    def abandon(self) -> None:
        """Discard the open file."""
        self._files.abandon()

    def _keys(self, values: pa.StructArray) -> pa.Array:
        names = self._job.primary_key
        if not names:
            return pa.nulls(len(values), pa.string())
        parts = pa.record_batch([values.field(name) for name in names], names=list(names))
        keys = [msgspec.json.encode(key).decode() for key in parts.to_pylist()]
        return pa.array(keys, pa.string())


def _kept_type(column: ColumnPlan) -> pa.DataType:
    return pa.string() if column.zero_dates else arrow_type(column.arrow)
