"""Read many rows back from Redshift by UNLOAD, through a scratch folder of the lake.

A cursor's result is kept on the leader node, which limits its size. UNLOAD writes Parquet from
every node, but no VARBYTE: that is unloaded as hexadecimal text, up to the longest VARCHAR.
"""

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.errors import FloodmarkError, ObjectNotFound
from floodmark.model.manifest import Column
from floodmark.storage.objects import ObjectStore
from floodmark.warehouse.range_predicates import bytes_of
from floodmark.warehouse.redshift.session import literal
from floodmark.warehouse.redshift.types import LONGEST_VARCHAR

MOST_BYTES = LONGEST_VARCHAR // 2  # of a VARBYTE, in hexadecimal digits
_FILE_MB = 64  # a file is read at once


def size_query(statement: str, kinds: Sequence[str]) -> str:
    """Return the query for the number of rows, and the length of the longest VARBYTE."""
    longest = [f"MAX(OCTET_LENGTH({name}))" for name, kind in _names(kinds) if _is_bytes(kind)]
    values = ", ".join(["COUNT(*)", *longest])
    return f"SELECT {values} FROM ({statement}) AS found"  # noqa: S608


def unload_statement(statement: str, kinds: Sequence[str], place: str, authorization: str) -> str:
    """Return the UNLOAD of a query with columns c0, c1 …, into files below a place in S3."""
    values = ", ".join(f"{_unloaded(name, kind)} AS {name}" for name, kind in _names(kinds))
    query = f"SELECT {values} FROM ({statement}) AS found"  # noqa: S608
    return (
        f"UNLOAD ({literal(query)}) TO {literal(place)} {authorization}"
        f" FORMAT AS PARQUET MANIFEST MAXFILESIZE {_FILE_MB} MB"
    )


def read_unloaded(
    objects: ObjectStore, lake: str, folder: str, rows: int, columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """Read unloaded rows from a folder of the lake; FloodmarkError if some are missing."""
    found = 0
    for path in _files(objects, lake, folder) if rows else ():
        source = pa.BufferReader(objects.get(path).data)
        # The timestamp encoding is not documented; INT96 in nanoseconds would overflow.
        with pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
            for batch in file.iter_batches():
                found += batch.num_rows
                yield _read_back(batch, columns)
    if found != rows:
        raise FloodmarkError(
            f"Redshift unloaded {rows:,} rows, but its files in {lake}/{folder} hold {found:,}",
            hint="run it again",
        )


def _files(objects: ObjectStore, lake: str, folder: str) -> Iterator[str]:
    try:
        entries = json.loads(objects.get(f"{folder}manifest").data)["entries"]
    except (ObjectNotFound, ValueError, KeyError) as error:
        raise FloodmarkError(
            f"Redshift wrote no manifest of its files to {lake}/{folder}", hint="run it again"
        ) from error
    for entry in entries:
        yield str(entry["url"]).removeprefix(f"{lake}/")


def _read_back(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    arrays = [
        bytes_of(array.cast(pa.string())) if column.arrow == "binary" else array
        for column, array in zip(columns, batch.columns, strict=True)
    ]
    return pa.record_batch(arrays, names=batch.schema.names)


def _unloaded(name: str, kind: str) -> str:
    if _is_bytes(kind):
        return f"FROM_VARBYTE({name}, 'hex')"
    # The zone is not unloaded; sessions use UTC.
    return f"CAST({name} AS TIMESTAMP)" if kind == "TIMESTAMPTZ" else name


def _is_bytes(kind: str) -> bool:
    return kind.startswith("VARBYTE")


def _names(kinds: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"c{number}", kind) for number, kind in enumerate(kinds)]
