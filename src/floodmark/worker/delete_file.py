"""Write the keys of deleted rows to a Parquet file in the lake."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.config.models import LakeSettings
from floodmark.model.manifest import Column, DataFile
from floodmark.model.position import START
from floodmark.model.reconciliation import FoundKey
from floodmark.worker.conversion import arrow_type
from floodmark.worker.lake_writer import open_files


def write_deletes(
    lake: LakeSettings, path: str, columns: Sequence[Column], keys: Sequence[FoundKey]
) -> DataFile:
    """Write keys and the versions that were seen; `columns` are those of both, in this order."""
    rows = [(*found.key, found.version) for found in keys]
    fields = [pa.field(column.name, arrow_type(column.arrow)) for column in columns]
    arrays = [
        pa.array([_value(column, row[at]) for row in rows], field.type)
        for at, (column, field) in enumerate(zip(columns, fields, strict=True))
    ]
    file = open_files(lake)(path)
    try:
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=pa.schema(fields)),
            file,
            compression=lake.codec or "zstd",
            store_schema=False,
        )
        etag = file.finish()
    except BaseException:
        file.abandon()
        raise
    return DataFile(
        path=path,
        rows=len(rows),
        bytes=file.size,
        etag=etag,
        checksum=file.checksum,
        first=START,
        last=START,
    )


def _value(column: Column, value: Any) -> Any:
    """Return a value of a key, which is a number or text, in the type of its column."""
    kind = column.arrow
    if value is None:  # the target holds no version
        return None
    if kind.startswith("decimal128"):
        return Decimal(value)
    if kind == "binary":
        text = str(value)
        return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()
    if kind == "bool":
        return bool(value)
    if kind == "date32":
        return date.fromisoformat(str(value)[:10])
    if kind.startswith("timestamp"):
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return moment.replace(tzinfo=UTC if "UTC" in kind else None)
    return value
