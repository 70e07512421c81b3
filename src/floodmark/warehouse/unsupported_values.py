"""Values that a target cannot hold, and the rows of a batch that have them."""

import json
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column


class UnsupportedValue(Struct, frozen=True):
    """Why a target cannot hold some rows: the column, the reason, and which rows of a batch."""

    column: str
    reason: str
    found: Callable[[pa.RecordBatch], pa.Array]


def may_be_null(column: Column) -> bool:
    """Whether a column of the lake may hold NULL; in place of a zero date it always may."""
    return column.nullable or column.arrow.startswith(("date", "timestamp"))


def open_keys(table: TargetTable) -> list[UnsupportedValue]:
    """Rows without a value in their key, which nothing could replace later."""
    return [
        UnsupportedValue(name, "the primary key is NULL, or a zero date", _column(name, pc.is_null))
        for name in table.primary_key
        if may_be_null(table.column(name))
    ]


def zero_characters(table: TargetTable, target: str) -> list[UnsupportedValue]:
    """Text with the character U+0000."""
    reason = f"contains the zero character (U+0000), which {target} cannot hold"
    return [
        UnsupportedValue(
            column.name, reason, _column(column.name, lambda a: pc.match_substring(a, "\0"))
        )
        for column in table.columns
        if column.arrow == "string"
    ]


def too_long(column: str, most: int, kind: str) -> UnsupportedValue:
    """Text or bytes of more than so many bytes."""
    return UnsupportedValue(
        column, f"longer than {kind}", lambda batch: _longer(batch, [column], most)
    )


def too_long_together(columns: Sequence[str], most: int, reason: str) -> list[UnsupportedValue]:
    """Texts and bytes that take more than so many bytes together."""
    if not columns:
        return []
    return [
        UnsupportedValue(", ".join(columns), reason, lambda batch: _longer(batch, columns, most))
    ]


def of_any_length(table: TargetTable, names: Sequence[str]) -> list[str]:
    """Those of some columns whose values may have any length."""
    return [name for name in names if table.column(name).arrow in ("string", "binary")]


def unfit(column: str, reason: str, refused: Callable[[str], bool]) -> UnsupportedValue:
    """Text that a rule of the target refuses, value by value."""

    def found(batch: pa.RecordBatch) -> pa.Array:
        return pa.array(
            [text is not None and refused(text) for text in batch.column(column).to_pylist()],
            pa.bool_(),
        )

    return UnsupportedValue(column, reason, found)


def read_json(
    text: str,
    number: Callable[[str], object] = str,
    attributes: Callable[[list[tuple[str, object]]], object] = list,
) -> object:
    """What a text says in JSON, strictly; ValueError if it is none.

    An object becomes a list of its pairs: of a key that comes twice, both values count.
    """
    return json.loads(
        text,
        object_pairs_hook=attributes,
        parse_int=number,
        parse_float=number,
        parse_constant=_no_constant,
    )


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _column(
    name: str, found: Callable[[pa.Array], pa.Array]
) -> Callable[[pa.RecordBatch], pa.Array]:
    return lambda batch: found(batch.column(name))


def _longer(batch: pa.RecordBatch, columns: Sequence[str], most: int) -> pa.Array:
    lengths = [pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in columns]
    total = lengths[0].cast(pa.int64())
    for length in lengths[1:]:
        total = pc.add(total, length.cast(pa.int64()))
    return pc.greater(total, most)
