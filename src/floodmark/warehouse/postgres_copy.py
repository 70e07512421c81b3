"""Arrow batches as the text that PostgreSQL's COPY reads: exact, and without a loop over rows.

A NULL is nothing at all, an empty text a pair of quotes. Numbers are written with as many digits as
it takes to read the same number back, times with microseconds, bytes in hexadecimal.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from floodmark.errors import FloodmarkError
from floodmark.model.load import TargetTable
from floodmark.warehouse.postgres_types import postgres_type

COPY_OPTIONS = "(FORMAT csv, NULL '', ENCODING 'UTF8')"

_CSV = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
# An escape of the zero character, and not an escaped backslash followed by digits.
_JSON_ZERO = r"(?:^|[^\\])(?:\\\\)*\\u0000"


class Unrepresentable(FloodmarkError):
    """A value that the target's types cannot hold."""


def copy_text(batch: pa.RecordBatch, table: TargetTable) -> pa.Buffer:
    """Write a batch for COPY; Unrepresentable names a value that PostgreSQL cannot hold."""
    arrays = []
    for column, array in zip(table.columns, batch.columns, strict=True):
        if pa.types.is_binary(array.type):
            arrays.append(_hexadecimal(array))
            continue
        if pa.types.is_timestamp(array.type):
            # Without the zone, which is UTC as the session's is: to write it takes twenty times
            # as long.
            arrays.append(array.view(pa.timestamp("us")))
            continue
        if pa.types.is_string(array.type):
            _refuse(pc.match_substring(array, "\0"), batch, table, column.name)
            if postgres_type(column) == "jsonb":
                _refuse(pc.match_substring_regex(array, _JSON_ZERO), batch, table, column.name)
        arrays.append(array)
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(
        pa.record_batch(arrays, names=batch.schema.names), sink, write_options=_CSV
    )
    return sink.getvalue()


def _hexadecimal(array: pa.Array) -> pa.Array:
    r"""Bytes as `\x…`: all of the batch's bytes at once, then cut at twice the offsets."""
    _, offsets, data = array.buffers()
    ends = pa.Array.from_buffers(
        pa.int32(), len(array) + 1, [None, offsets], offset=array.offset
    ).cast(pa.int64())
    first, last = ends[0].as_py(), ends[-1].as_py()
    digits = data[first:last].to_pybytes().hex().encode() if last > first else b""
    doubled = pc.multiply(pc.subtract(ends, first), 2)
    texts = pa.Array.from_buffers(
        pa.large_string(), len(array), [None, doubled.buffers()[1], pa.py_buffer(digits)]
    )
    prefix, nothing = pa.scalar("\\x", texts.type), pa.scalar("", texts.type)
    texts = pc.binary_join_element_wise(prefix, texts, nothing)
    return pc.if_else(array.is_valid(), texts, None)


def _refuse(found: pa.Array, batch: pa.RecordBatch, table: TargetTable, column: str) -> None:
    if not pc.any(found).as_py():
        return
    row = pc.index(found, value=True).as_py()
    raise Unrepresentable(
        f"{table.name}.{column} of the row with {_where(batch, table.primary_key, row)} contains"
        " the zero character (U+0000), which PostgreSQL cannot hold",
        hint="remove it in the source",
    )


def _where(batch: pa.RecordBatch, key: Sequence[str], row: int) -> str:
    names = key or batch.schema.names[:1]
    return ", ".join(f"{name} = {batch.column(name)[row].as_py()!r}" for name in names)
