"""Parquet files that another system wrote: whether they fit a table, and how they are made to fit.

A file whose columns lie in it just as we write them is taken as it is. One that holds the same
values in other types (nanoseconds, INT96, wider numbers, decimals as integers) is written anew,
every value cast exactly. Anything else does not fit: nothing is guessed, above all no time zone.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from floodmark.errors import FloodmarkError
from floodmark.model.manifest import Column
from floodmark.worker.conversion import arrow_type

_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}  # what every target reads
_BATCH_ROWS = 65_536
_TEXT_BYTES = 4  # of an offset: what even an empty text takes


class ForeignFile(Struct, frozen=True, kw_only=True):
    """What a file of another system holds.

    `names` are its columns in their order. It is `exact` if it can be taken as it is; `mismatches`
    say, with both sides, why it cannot be taken at all.
    """

    rows: int
    names: tuple[str, ...]
    exact: bool
    mismatches: tuple[str, ...]


def look_into(
    data: bytes, columns: Sequence[Column], key: Sequence[str], most_bytes: int
) -> ForeignFile:
    """Hold a file against the columns and the primary key of a table.

    FloodmarkError if it cannot be read, or takes more than `most_bytes` unpacked.
    """
    with _opened(data) as file:
        _refuse_huge(file, most_bytes)
        wanted = {column.name: column for column in columns}
        found = {field.name: field.type for field in file.schema_arrow}
        physical = _physical_types(file)
        mismatches = [
            f"{name} is missing in the file, and {column.arrow} by the source"
            for name, column in wanted.items()
            if name not in found
        ]
        mismatches += [
            f"{name} is {_shown(kind, physical.get(name))} in the file, and nothing by the source"
            for name, kind in found.items()
            if name not in wanted
        ]
        both = [name for name in found if name in wanted]
        mismatches += [
            f"{name} is {_shown(found[name], physical.get(name))} in the file, and"
            f" {wanted[name].arrow} by the source"
            for name in both
            if not _castable(found[name], arrow_type(wanted[name].arrow), physical.get(name))
        ]
        exact = len(found) == file.metadata.num_columns and _codecs(file) <= _CODECS
        exact = exact and all(
            _exact(found[name], arrow_type(wanted[name].arrow), physical.get(name)) for name in both
        )
        if not mismatches:
            mismatches += [
                f"{name} has {nulls:,} NULLs, and is in the primary key"
                for name, nulls in _count_nulls(file, key).items()
            ]
        if not mismatches and not exact:
            mismatches += _failed_casts(file, columns)
        return ForeignFile(
            rows=file.metadata.num_rows,
            names=tuple(found),
            exact=exact,
            mismatches=tuple(mismatches),
        )


def write_anew(data: bytes, columns: Sequence[Column]) -> bytes:
    """The same rows in the types and the order in which we write them."""
    # A column that may not be NULL by now may have been so when the file was written.
    schema = pa.schema((c.name, arrow_type(c.arrow)) for c in columns)
    sink = pa.BufferOutputStream()
    with (
        _opened(data) as file,
        # Snappy is what every target reads.
        pq.ParquetWriter(sink, schema, compression="snappy", store_schema=False) as writer,
    ):
        for batch in file.iter_batches(_BATCH_ROWS):
            arrays = [_cast(batch.column(field.name), field.type) for field in schema]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _refuse_huge(file: pq.ParquetFile, most_bytes: int) -> None:
    """Go by the footer: a value that repeats takes next to nothing in a file, but not in memory."""
    facts = file.metadata
    groups = (facts.row_group(number) for number in range(facts.num_row_groups))
    width = sum(_width(field.type) for field in file.schema_arrow)
    unpacked = max(facts.num_rows * width, sum(group.total_byte_size for group in groups))
    if unpacked > most_bytes:
        raise FloodmarkError(
            f"its {facts.num_rows:,} rows take {unpacked >> 20:,} MB unpacked, more than"
            f" {most_bytes >> 20:,} MB",
            hint="if that is right, 'loading: {adopt_mb: …}' lets it pass",
        )


def _width(kind: pa.DataType) -> int:
    try:
        return int(kind.bit_width + 7) // 8
    except ValueError:
        return _TEXT_BYTES


def _count_nulls(file: pq.ParquetFile, names: Sequence[str]) -> Counter[str]:
    nulls: Counter[str] = Counter()
    for batch in file.iter_batches(_BATCH_ROWS, columns=list(names)) if names else ():
        nulls.update({name: batch.column(name).null_count for name in names})
    return +nulls  # without those that have none


@contextmanager
def _opened(data: bytes) -> Iterator[pq.ParquetFile]:
    try:
        # A year far away does not fit into nanoseconds, which INT96 would else become.
        with pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us") as file:
            yield file
    except (OSError, ValueError, KeyError, MemoryError, pa.ArrowException) as error:
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise FloodmarkError(f"not a Parquet file that can be read: {reason}") from error


def _failed_casts(file: pq.ParquetFile, columns: Sequence[Column]) -> list[str]:
    failed: dict[str, str] = {}
    for batch in file.iter_batches(_BATCH_ROWS):
        for column in columns:
            try:
                _cast(batch.column(column.name), arrow_type(column.arrow))
            except pa.ArrowException as error:
                problem = f"{column.name} holds a value that is no {column.arrow}: {error}"
                failed.setdefault(column.name, problem)
    return list(failed.values())


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(kind)


def _exact(found: pa.DataType, wanted: pa.DataType, physical: str | None) -> bool:
    if pa.types.is_decimal(wanted) and physical != "FIXED_LEN_BYTE_ARRAY":
        return False
    return bool(found == wanted) and physical != "INT96"


def _castable(found: pa.DataType, wanted: pa.DataType, physical: str | None) -> bool:
    """Whether a cast keeps every value or fails, and takes nothing for granted."""
    kinds = pa.types
    if kinds.is_dictionary(found):
        found = found.value_type
    if physical == "INT96":  # a moment, by all who write it
        return bool(wanted == pa.timestamp("us", "UTC"))
    if found == wanted:
        return True
    if kinds.is_timestamp(found) and kinds.is_timestamp(wanted):
        return (found.tz is None) == (wanted.tz is None)
    if kinds.is_integer(found):
        return bool(kinds.is_integer(wanted) or kinds.is_decimal(wanted))
    if kinds.is_decimal(found):
        return bool(kinds.is_decimal(wanted))
    if kinds.is_float32(found):
        return bool(kinds.is_float64(wanted))
    if kinds.is_large_string(found):
        return bool(kinds.is_string(wanted))
    return bool(
        (kinds.is_large_binary(found) or kinds.is_fixed_size_binary(found))
        and kinds.is_binary(wanted)
    )


def _physical_types(file: pq.ParquetFile) -> dict[str, str]:
    columns = (file.schema.column(n) for n in range(file.metadata.num_columns))
    return {column.path: column.physical_type for column in columns}


def _codecs(file: pq.ParquetFile) -> set[str]:
    groups = (file.metadata.row_group(n) for n in range(file.metadata.num_row_groups))
    return {g.column(n).compression for g in groups for n in range(g.num_columns)}


def _shown(kind: pa.DataType, physical: str | None) -> str:
    return f"{kind} (INT96)" if physical == "INT96" else str(kind)
