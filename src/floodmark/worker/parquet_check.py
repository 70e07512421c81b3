"""Check whether Parquet files of another system match a table, and convert them.

A file with the columns and types that we write is used unchanged. A file with the same values in
other types (nanoseconds, INT96, wider numbers, decimals as integers) is rewritten, every value cast
exactly. Anything else does not match: nothing is guessed, least of all a time zone.
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

_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}  # that every target reads
_BATCH_ROWS = 65_536
_TEXT_BYTES = 4  # of an offset: even an empty text takes them


class ForeignFile(Struct, frozen=True, kw_only=True):
    """A Parquet file of another system.

    `names` are its columns in order. It is `exact` if it can be used unchanged; `mismatches` are
    the reasons, with both sides, why it cannot be used at all.
    """

    rows: int
    names: tuple[str, ...]
    exact: bool
    mismatches: tuple[str, ...]


def inspect_file(
    data: bytes, columns: Sequence[Column], key: Sequence[str], most_bytes: int
) -> ForeignFile:
    """Compare a file with the columns and the primary key of a table.

    FloodmarkError if it cannot be read, or takes more than `most_bytes` unpacked.
    """
    with _opened(data) as file:
        _refuse_huge(file, most_bytes)
        expected = {column.name: column for column in columns}
        found = {field.name: field.type for field in file.schema_arrow}
        physical = _physical_types(file)
        mismatches = [
            f"{name} is missing in the file, but {column.arrow} in the source"
            for name, column in expected.items()
            if name not in found
        ]
        mismatches += [
            f"{name} exists in the file ({_shown(kind, physical.get(name))}) but not in the source"
            for name, kind in found.items()
            if name not in expected
        ]
        both = [name for name in found if name in expected]
        mismatches += [
            f"{name} is {_shown(found[name], physical.get(name))} in the file, but"
            f" {expected[name].arrow} in the source"
            for name in both
            if not _castable(found[name], arrow_type(expected[name].arrow), physical.get(name))
        ]
        exact = len(found) == file.metadata.num_columns and _codecs(file) <= _CODECS
        exact = exact and all(
            _exact(found[name], arrow_type(expected[name].arrow), physical.get(name))
            for name in both
        )
        rows = file.metadata.num_rows
        if not mismatches:
            mismatches += [
                f"{name} is in the primary key, but NULL in {nulls:,} of {rows:,} rows"
                for name, nulls in _count_nulls(file, key).items()
            ]
        if not mismatches and not exact:
            mismatches += _failed_casts(file, columns)
        return ForeignFile(
            rows=rows,
            names=tuple(found),
            exact=exact,
            mismatches=tuple(mismatches),
        )


def rewrite(data: bytes, columns: Sequence[Column]) -> bytes:
    """Return a file with the same rows, in the types and the order that we write."""
    # A column that is NOT NULL now may have been nullable when the file was written.
    schema = pa.schema((c.name, arrow_type(c.arrow)) for c in columns)
    sink = pa.BufferOutputStream()
    with (
        _opened(data) as file,
        # Every target reads Snappy.
        pq.ParquetWriter(sink, schema, compression="snappy", store_schema=False) as writer,
    ):
        for batch in file.iter_batches(_BATCH_ROWS):
            arrays = [_cast(batch.column(field.name), field.type) for field in schema]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _refuse_huge(file: pq.ParquetFile, most_bytes: int) -> None:
    """Refuse by the footer: repeated values take little space in a file, but not in memory."""
    facts = file.metadata
    groups = (facts.row_group(number) for number in range(facts.num_row_groups))
    width = sum(_width(field.type) for field in file.schema_arrow)
    unpacked = max(facts.num_rows * width, sum(group.total_byte_size for group in groups))
    if unpacked > most_bytes:
        raise FloodmarkError(
            f"its {facts.num_rows:,} rows take {unpacked >> 20:,} MB unpacked, more than"
            f" {most_bytes >> 20:,} MB",
            hint="to adopt it, raise 'loading: {adopt_mb: …}'",
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
    return +nulls  # drops zero counts


@contextmanager
def _opened(data: bytes) -> Iterator[pq.ParquetFile]:
    try:
        # INT96 would become nanoseconds, which distant years overflow.
        with pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us") as file:
            yield file
    except (OSError, ValueError, KeyError, MemoryError, pa.ArrowException) as error:
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise FloodmarkError(f"not a readable Parquet file: {reason}") from error


def _failed_casts(file: pq.ParquetFile, columns: Sequence[Column]) -> list[str]:
    failed: dict[str, str] = {}
    for batch in file.iter_batches(_BATCH_ROWS):
        for column in columns:
            try:
                _cast(batch.column(column.name), arrow_type(column.arrow))
            except pa.ArrowException as error:
                problem = f"{column.name} has a value that is not {column.arrow}: {error}"
                failed.setdefault(column.name, problem)
    return list(failed.values())


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(kind)


def _exact(found: pa.DataType, expected: pa.DataType, physical: str | None) -> bool:
    if pa.types.is_decimal(expected) and physical != "FIXED_LEN_BYTE_ARRAY":
        return False
    return bool(found == expected) and physical != "INT96"


def _castable(found: pa.DataType, expected: pa.DataType, physical: str | None) -> bool:
    """Whether a cast either keeps every value or fails, without assumptions."""
    kinds = pa.types
    if kinds.is_dictionary(found):
        found = found.value_type
    if physical == "INT96":  # an instant, in every writer
        return bool(expected == pa.timestamp("us", "UTC"))
    if found == expected:
        return True
    if kinds.is_timestamp(found) and kinds.is_timestamp(expected):
        return (found.tz is None) == (expected.tz is None)
    if kinds.is_integer(found):
        return bool(kinds.is_integer(expected) or kinds.is_decimal(expected))
    if kinds.is_decimal(found):
        return bool(kinds.is_decimal(expected))
    if kinds.is_float32(found):
        return bool(kinds.is_float64(expected))
    if kinds.is_large_string(found):
        return bool(kinds.is_string(expected))
    return bool(
        (kinds.is_large_binary(found) or kinds.is_fixed_size_binary(found))
        and kinds.is_binary(expected)
    )


def _physical_types(file: pq.ParquetFile) -> dict[str, str]:
    columns = (file.schema.column(n) for n in range(file.metadata.num_columns))
    return {column.path: column.physical_type for column in columns}


def _codecs(file: pq.ParquetFile) -> set[str]:
    groups = (file.metadata.row_group(n) for n in range(file.metadata.num_row_groups))
    return {g.column(n).compression for g in groups for n in range(g.num_columns)}


def _shown(kind: pa.DataType, physical: str | None) -> str:
    return f"{kind} (INT96)" if physical == "INT96" else str(kind)
