"""Convert values that the server sent to the planned types, exactly or not at all."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.errors import UnfitValue
from floodmark.model.extraction import ColumnPlan, ZeroDates

_SIMPLE: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[us, UTC]": pa.timestamp("us", "UTC"),
}
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_YEAR_ONE = pa.scalar("0001-01-01").cast(pa.timestamp("us"))


# Receives the values of quarantined rows, and for each row the column that caused it.
SetAside = Callable[[Sequence[pa.Array], pa.Array], None]


class Conversion:
    """Convert batches of one table to the planned schema, and count zero dates.

    Rows that policy quarantines are left out and passed to `set_aside`, with the text of their
    dates.
    """

    def __init__(
        self,
        columns: Sequence[ColumnPlan],
        policy: ZeroDates,
        set_aside: SetAside = lambda _rows, _columns: None,
    ) -> None:
        self._columns = columns
        self._policy = policy
        self._set_aside = set_aside
        self.schema = pa.schema(
            pa.field(column.name, arrow_type(column.arrow), column.nullable) for column in columns
        )
        self.zero_dates: Counter[str] = Counter()

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch; UnfitValue if a column has values that do not fit."""
        arrays = []
        unfit = pa.nulls(batch.num_rows, pa.string())
        for column, field, array in zip(self._columns, self.schema, batch.columns, strict=True):
            try:
                arrays.append(
                    self._moments(column, array, field.type)
                    if column.zero_dates
                    else _cast(array, field.type)
                )
            except pa.ArrowException as error:
                raise UnfitValue(
                    f"column {column.name!r} has a value that is not {column.arrow}: {error}"
                ) from error
            if self._policy == "quarantine" and column.zero_dates:
                zero = pc.and_(pc.is_valid(array), pc.is_null(arrays[-1]))
                unfit = pc.if_else(pc.and_(zero, pc.is_null(unfit)), column.name, unfit)
        converted = pa.record_batch(arrays, schema=self.schema)
        return converted if unfit.null_count == len(unfit) else self._split(batch, converted, unfit)

    def _split(
        self, batch: pa.RecordBatch, converted: pa.RecordBatch, unfit: pa.Array
    ) -> pa.RecordBatch:
        aside = pc.is_valid(unfit)
        kept = [
            (read if column.zero_dates else value).filter(aside)
            for column, read, value in zip(
                self._columns, batch.columns, converted.columns, strict=True
            )
        ]
        self._set_aside(kept, unfit.filter(aside))
        return converted.filter(pc.invert(aside))

    def _moments(self, column: ColumnPlan, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        plain = pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
        parsed = _parse(texts, plain)
        zeros = parsed.null_count - texts.null_count
        if zeros:
            if self._policy == "error":
                raise UnfitValue(
                    f"column {column.name!r} has zero or partial dates",
                    hint="fix them, or set zero_dates: null",
                )
            self.zero_dates[column.name] += zeros
        return parsed.view(kind)


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a column plan."""
    if match := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _SIMPLE[name]


def is_no_day(text: str) -> bool:
    """Whether a date or time is on no calendar day, so that it becomes NULL."""
    return bool(_parse(pa.array([text]), pa.timestamp("us")).null_count)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def _parse(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse dates or timestamps; those on no calendar day become NULL."""
    if (parsed := _parse_all(texts, kind)) is not None:
        return parsed
    # The common case is a zero month or day; only the date has dashes.
    partial = pc.or_(pc.match_substring(texts, "-00"), pc.starts_with(texts, "0000"))
    complete = pc.if_else(partial, None, texts)
    if (parsed := _parse_all(complete, kind)) is not None:
        return parsed
    # The rest are dates like February 31, which a server stores if configured to.
    return pa.array([_parse_one(text) for text in complete.to_pylist()], pa.timestamp("us")).cast(
        kind
    )


def _parse_all(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        parsed = texts.cast(kind)
    except pa.ArrowInvalid:
        return None
    earliest = pc.min(parsed)
    if earliest.is_valid and pc.less(earliest, _YEAR_ONE.cast(kind)).as_py():
        return None  # year zero was handled above
    return parsed


def _parse_one(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
