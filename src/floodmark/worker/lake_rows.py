"""Convert rows of a data file to a table's joined schema, as a load into DuckDB does."""

from collections.abc import Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.worker.conversion import arrow_type


def event_schema(table: TargetTable, marks: Mapping[str, str]) -> pa.Schema:
    """Return the schema of events: the table's columns, then `marks` with their types."""
    fields = [(column.name, arrow_type(column.arrow)) for column in table.columns]
    return pa.schema([*fields, *((name, arrow_type(kind)) for name, kind in marks.items())])


def as_events(
    batch: pa.RecordBatch,
    columns: Mapping[str, Column],
    table: TargetTable,
    fills: Mapping[str, str | None],
    marks: Mapping[str, object],
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Convert a batch; `marks` are constants. `columns` and `fills` are by name in lower case."""
    arrays = []
    for column, field in zip(table.columns, schema, strict=False):
        name = column.name.lower()
        if name in fills:
            arrays.append(_constant(fills[name], field.type, batch.num_rows))
        elif name in columns:
            known = columns[name]
            arrays.append(_converted(batch.column(known.name), known.arrow, field.type))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    for name, value in marks.items():
        arrays.append(pa.repeat(pa.scalar(value, schema.field(name).type), batch.num_rows))
    return pa.record_batch(arrays, schema=schema)


def _converted(array: pa.Array, arrow: str, kind: pa.DataType) -> pa.Array:
    if array.type != arrow_type(arrow):  # for example, a time whose zone the file does not name
        array = array.cast(arrow_type(arrow))
    if array.type == kind:
        return array
    if pa.types.is_string(kind):
        return _texts(array)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int16())  # Arrow converts no booleans to decimals
    return array.cast(kind)


def _texts(array: pa.Array) -> pa.Array:
    """Format values as DuckDB does."""
    if pa.types.is_boolean(array.type):
        return pc.if_else(array, "1", "0")
    value = "lower(hex(value))" if pa.types.is_binary(array.type) else "CAST(value AS VARCHAR)"
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("given", pa.table({"value": array}))
        found = database.sql(f"SELECT {value} FROM given").to_arrow_table()  # noqa: S608
        return found.column(0).combine_chunks().cast(pa.string())


def _constant(value: str | None, kind: pa.DataType, rows: int) -> pa.Array:
    """Return a value that is given as text, repeated; bytes are hexadecimal digits."""
    if value is None:
        return pa.nulls(rows, kind)
    if pa.types.is_binary(kind):
        return pa.repeat(pa.scalar(bytes.fromhex(value), kind), rows)
    text = pa.array([value])
    if pa.types.is_timestamp(kind):  # in UTC
        return pa.repeat(text.cast(pa.timestamp("us")).view(kind)[0], rows)
    return pa.repeat(text.cast(kind)[0], rows)
