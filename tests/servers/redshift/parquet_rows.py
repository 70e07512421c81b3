"""Rows of a Parquet file: do they fit a table of Redshift, and how PostgreSQL takes them in."""

import re
from collections.abc import Iterator, Mapping
from functools import reduce
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from servers.redshift.lake_files import File
from servers.redshift.refusals import CopyRefused

_SIZED = re.compile(r"(.+?)\((\d+)(?:,(\d+))?\)")
_KINDS = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "character varying": pa.string(),
    "character": pa.string(),
    "binary varying": pa.binary(),
}
_BATCH_ROWS = 50_000
_LONGEST_ROW = 4 * 1024 * 1024


def check_fit(file: File, columns: Mapping[str, str]) -> None:
    """CopyRefused unless the file's columns are those of the table, by their position."""
    schema = file.parquet.schema_arrow
    if len(schema) != len(columns):
        raise CopyRefused(
            f"Unmatched number of columns between table and file. Table columns: {len(columns)},"
            f" Data columns: {len(schema)}",
            file=file.url,
        )
    for place, (column, kind) in enumerate(columns.items()):
        stored = file.parquet.schema.column(place)
        reason = _mismatch(kind, schema.field(place).type, stored)
        if reason:
            raise CopyRefused(
                f"has an incompatible Parquet schema for column '{column}'. Column type:"
                f" {kind.upper()}, Parquet schema: {stored.physical_type}"
                f" ({stored.logical_type}): {reason}",
                file=file.url,
                column=column,
                kind=kind,
            )


def rows_as_csv(file: File, columns: Mapping[str, str]) -> Iterator[tuple[int, bytes]]:
    """The rows in pieces, each with its number; CopyRefused for a value that is too long."""
    for batch in file.parquet.iter_batches(_BATCH_ROWS):
        _check_rows(file, batch)
        values = []
        for (column, kind), array in zip(columns.items(), batch.columns, strict=True):
            _check_lengths(file, column, kind, array)
            values.append(_as_text(array))
        table = pa.Table.from_arrays(values, names=[str(i) for i in range(len(values))])
        buffer = BytesIO()
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="all_valid")
        pyarrow.csv.write_csv(table, buffer, options)
        yield batch.num_rows, buffer.getvalue()


def _mismatch(kind: str, found: pa.DataType, stored: pq.ColumnSchema) -> str | None:
    if pa.types.is_unsigned_integer(found):
        return "unsigned integers are not supported"
    if kind in ("timestamp without time zone", "timestamp with time zone"):
        if not pa.types.is_timestamp(found):
            return "not a timestamp"
        # Redshift loads such a timestamp without a word, and wrong.
        return "nanoseconds would be corrupted" if found.unit == "ns" else None
    sized = _SIZED.fullmatch(kind)
    if sized and sized[1] == "numeric":
        return _decimal_mismatch(int(sized[2]), int(sized[3]), found, stored)
    wanted = _KINDS.get(sized[1] if sized else kind)
    if wanted is None:
        return "the stand-in does not know this type"
    return None if found == wanted else f"{found} is not {wanted}"


def _decimal_mismatch(
    digits: int, scale: int, found: pa.DataType, stored: pq.ColumnSchema
) -> str | None:
    if not pa.types.is_decimal(found) or (found.precision, found.scale) != (digits, scale):
        return f"{found} is not decimal({digits}, {scale})"
    width = next(n for n in range(1, 17) if 2 ** (8 * n - 1) > 10**digits - 1)
    if (stored.physical_type, stored.length) != ("FIXED_LEN_BYTE_ARRAY", width):
        return f"not known to be read: {stored.physical_type} of another width than {width} bytes"
    return None


def _check_lengths(file: File, column: str, kind: str, array: pa.Array) -> None:
    sized = _SIZED.fullmatch(kind)
    if sized is None or not (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
        return
    longest = pc.max(pc.binary_length(array)).as_py()  # in bytes, also of text
    if longest is not None and longest > int(sized[2]):
        raise CopyRefused(
            f"The length of the data column {column} is longer than the length defined in the"
            f" table. Table: {sized[2]}, Data: {longest}",
            file=file.url,
            column=column,
            kind=sized[1][:10],
            length=sized[2],
        )


def _check_rows(file: File, batch: pa.RecordBatch) -> None:
    """What holds for a row from any source: up to 4 MB, and no null terminator in its text."""
    texts = [column for column in batch.columns if pa.types.is_string(column.type)]
    if any(pc.any(pc.match_substring(text, "\0")).as_py() for text in texts):
        raise CopyRefused("Missing newline: Unexpected character 0x00 found", file=file.url)
    sizes = [
        pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
        for column in batch.columns
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    ]
    if sizes and pc.max(reduce(pc.add, sizes)).as_py() > _LONGEST_ROW:
        raise CopyRefused("Input record length exceeds the limit of 4194304", file=file.url)


def _as_text(array: pa.Array) -> pa.Array:
    if pa.types.is_binary(array.type):
        return pa.array([None if v is None else f"\\x{v.hex()}" for v in array.to_pylist()])
    if pa.types.is_decimal(array.type):
        return pa.array([None if v is None else f"{v:f}" for v in array.to_pylist()], pa.string())
    return array.cast(pa.string())
