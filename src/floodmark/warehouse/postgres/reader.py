"""Read PostgreSQL's rows as Arrow batches, from the text that COPY writes.

A NULL is an empty field, an empty text a pair of quotes. Numbers have as many digits as it takes to
read the same number back.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.csv

from floodmark.model.manifest import Column
from floodmark.warehouse.range_predicates import bytes_of

READ_OPTIONS = "(FORMAT csv, NULL '', ENCODING 'UTF8')"

_BATCH_BYTES = 8_000_000


def read_value(column: Column, name: str, held: str) -> str:
    """Return the expression to select so that a column's values are read exactly from text."""
    if held in ("text", "character varying"):
        return name
    match column.arrow:
        case "binary":
            return f"encode({name}, 'hex')"
        case "bool":
            return f"{name}::int"
        case "timestamp[us, UTC]":
            return f"({name} AT TIME ZONE 'UTC')"
    return name


def read_rows(
    rows: Iterable[bytes | bytearray | memoryview], columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """Read what COPY writes, row by row, in batches of some size."""
    held: list[bytes] = []
    size = 0
    for row in rows:
        held.append(bytes(row))
        size += len(row)
        if size > _BATCH_BYTES:
            yield _batch(b"".join(held), columns)
            held, size = [], 0
    if held:
        yield _batch(b"".join(held), columns)


def _batch(data: bytes, columns: Sequence[Column]) -> pa.RecordBatch:
    names = [f"c{number}" for number in range(len(columns))]
    table = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        # One block: no value may span two.
        read_options=pyarrow.csv.ReadOptions(
            column_names=names, block_size=len(data) + 1, use_threads=False
        ),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.record_batch(
        [
            bytes_of(array) if column.arrow == "binary" else array
            for column, array in zip(columns, arrays, strict=True)
        ],
        names=names,
    )
