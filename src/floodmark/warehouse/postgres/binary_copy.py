"""Encode Arrow batches for PostgreSQL's binary COPY: exactly, without a loop over rows.

Neither side has to format or parse digits. The server needs a third of the time that text takes.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pgpq import ArrowToPostgresBinaryEncoder
from pgpq.encoders import StringEncoderBuilder
from pgpq.schema import Jsonb

from floodmark.errors import Unrepresentable
from floodmark.model.load import TargetTable
from floodmark.warehouse.postgres.types import decimal_of

COPY_OPTIONS = "(FORMAT binary)"
_ROWS_AT_ONCE = 2048  # the server writes them while the next ones are encoded

_ARROW = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}
# An escape of the zero character, and not an escaped backslash followed by digits.
_JSON_ZERO = r"(?:^|[^\\])(?:\\\\)*\\u0000"


def copy_bytes(
    batches: Iterable[pa.RecordBatch], table: TargetTable, kinds: Sequence[str]
) -> Iterator[bytes]:
    """Encode batches for a table with columns of these types.

    Raise Unrepresentable for a value that PostgreSQL cannot hold.
    """
    names = [column.name for column in table.columns]
    schema = pa.schema(list(zip(names, map(arrow_type, kinds), strict=True)))
    encoder = ArrowToPostgresBinaryEncoder.new_with_encoders(
        schema,
        {
            field.name: StringEncoderBuilder.new_with_output(field, Jsonb())
            if kind == "jsonb"
            else ArrowToPostgresBinaryEncoder.infer_encoder(field)
            for field, kind in zip(schema, kinds, strict=True)
        },
    )
    yield encoder.write_header()
    for batch in batches:
        for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
            part = batch.slice(first, _ROWS_AT_ONCE)
            _refuse_zeros(part, table, kinds)
            yield encoder.write_batch(part.cast(schema))
    yield encoder.finish()


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type whose encoding matches a PostgreSQL type."""
    if decimal := decimal_of(kind):
        return pa.decimal128(*decimal)
    return _ARROW.get(kind, pa.string())


def _refuse_zeros(batch: pa.RecordBatch, table: TargetTable, kinds: Sequence[str]) -> None:
    for name, array, kind in zip(batch.schema.names, batch.columns, kinds, strict=True):
        if pa.types.is_string(array.type):
            _refuse(pc.match_substring(array, "\0"), batch, table, name)
            if kind == "jsonb":
                _refuse(pc.match_substring_regex(array, _JSON_ZERO), batch, table, name)


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
