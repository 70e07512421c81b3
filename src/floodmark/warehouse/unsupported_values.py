"""Find values that a target cannot hold."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column

if TYPE_CHECKING:
    import pyarrow as pa


class UnsupportedValue(Struct, frozen=True):
    """A kind of value that a target cannot hold: the column, the reason, a test for rows."""

    column: str
    reason: str
    found: "Callable[[pa.RecordBatch], pa.Array]"


def may_be_null(column: Column) -> bool:
    """Whether a column of the lake may be NULL; a zero date always becomes NULL."""
    return column.nullable or column.arrow.startswith(("date", "timestamp"))


def open_keys(table: TargetTable) -> list[UnsupportedValue]:
    """Return rows whose key is NULL, which no later row could replace."""
    return [
        UnsupportedValue(name, "the primary key is NULL, or a zero date", _column(name, _is_null))
        for name in table.primary_key
        if may_be_null(table.column(name))
    ]


def zero_characters(table: TargetTable, target: str) -> list[UnsupportedValue]:
    """Return text with the character U+0000."""
    reason = f"contains the zero character (U+0000), which {target} cannot hold"
    return [
        UnsupportedValue(column.name, reason, _column(column.name, _has_zero))
        for column in table.columns
        if column.arrow == "string"
    ]


def too_long(column: str, most: int, kind: str) -> UnsupportedValue:
    """Return text or binary values longer than so many bytes."""
    return UnsupportedValue(
        column, f"longer than {kind}", lambda batch: _longer(batch, [column], most)
    )


def too_long_together(columns: Sequence[str], most: int, reason: str) -> list[UnsupportedValue]:
    """Return rows whose text and binary columns together exceed so many bytes."""
    if not columns:
        return []
    return [
        UnsupportedValue(", ".join(columns), reason, lambda batch: _longer(batch, columns, most))
    ]


def of_any_length(table: TargetTable, names: Sequence[str]) -> list[str]:
    """Return the names of columns whose values may have any length."""
    return [name for name in names if table.column(name).arrow in ("string", "binary")]


def unfit(column: str, reason: str, refused: Callable[[str], bool]) -> UnsupportedValue:
    """Return text that a predicate refuses, value by value."""

    def found(batch: "pa.RecordBatch") -> "pa.Array":
        import pyarrow as pa

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
    """Parse JSON strictly; ValueError if it is invalid.

    An object becomes a list of pairs, so that both values of a duplicate key count.
    """
    return json.loads(
        text,
        object_pairs_hook=attributes,
        parse_int=number,
        parse_float=number,
        parse_constant=_no_constant,
    )


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _is_null(values: "pa.Array") -> "pa.Array":
    import pyarrow.compute as pc

    return pc.is_null(values)


def _has_zero(texts: "pa.Array") -> "pa.Array":
    import pyarrow.compute as pc

    return pc.match_substring(texts, "\0")


def _column(
    name: str, found: "Callable[[pa.Array], pa.Array]"
) -> "Callable[[pa.RecordBatch], pa.Array]":
    return lambda batch: found(batch.column(name))


def _longer(batch: "pa.RecordBatch", columns: Sequence[str], most: int) -> "pa.Array":
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = [pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in columns]
    total = lengths[0].cast(pa.int64())
    for length in lengths[1:]:
        total = pc.add(total, length.cast(pa.int64()))
    return pc.greater(total, most)
