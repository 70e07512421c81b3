"""Find a common type for the versions of a column.

A manifest has the schema of its time. The target table must hold the rows of all manifests that are
still to be loaded, so each column gets the narrowest type that represents every value exactly.
"""

import re
from collections.abc import Sequence

from msgspec import structs

from floodmark.model.load import TargetTable
from floodmark.model.manifest import Chunk, Column

_INTEGER_DIGITS = {"int16": 5, "int32": 10, "int64": 19}
_EXACT_IN_DOUBLE = ("int16", "int32", "float32", "float64")
_DECIMAL = re.compile(r"decimal(?:128)?\((\d+)(?:, ?(\d+))?\)")
_ARROW_DIGITS = 38
# Maximum length of a value as text, in characters.
_TEXT_WIDTHS = {
    "bool": 1,
    "float32": 25,
    "float64": 25,
    "date32": 10,
    "timestamp[us]": 26,
    "timestamp[us, UTC]": 29,
}
_LONGEST_VARCHAR = 16_383  # of MySQL, in characters of four bytes
_SIZED = re.compile(r"(\w+)\((\d+)\)")


def joined_table(name: str, chunks: Sequence[Chunk]) -> TargetTable:
    """Return the target table for the rows of all these chunks, in the last one's column order.

    Column names are case-insensitive, as in the source.
    """
    newest = chunks[-1]
    columns = {column.name.lower(): column for column in newest.columns}
    for chunk in reversed(chunks[:-1]):
        for column in chunk.columns:
            known = columns.get(column.name.lower())
            columns[column.name.lower()] = (
                structs.replace(column, nullable=True) if known is None else join(known, column)
            )
    return TargetTable(
        name=name,
        columns=tuple(columns.values()),
        primary_key=newest.primary_key,
        version=newest.version,
    )


def join(one: Column, other: Column) -> Column:
    """Return a column named as `one` whose type represents every value of both exactly."""
    nullable = one.nullable or other.nullable
    if (one.type, one.arrow) == (other.type, other.arrow):
        return structs.replace(one, nullable=nullable)
    kind, arrow = _join_types(one, other)
    return Column(one.name, kind, nullable, arrow)


def _join_types(one: Column, other: Column) -> tuple[str, str]:
    arrows = {one.arrow, other.arrow}
    numbers = [_digits(column) for column in (one, other)]
    if len(arrows) == 1 and one.arrow not in ("string", "binary"):
        return one.type, one.arrow
    if "bool" in arrows and arrows & set(_INTEGER_DIGITS):
        return next((c.type, c.arrow) for c in (one, other) if c.arrow != "bool")
    if arrows <= set(_INTEGER_DIGITS):
        widest = max(arrows, key=lambda arrow: _INTEGER_DIGITS[arrow])
        return next((c.type, c.arrow) for c in (one, other) if c.arrow == widest)
    if numbers[0] and numbers[1]:
        scale = max(numbers[0][1], numbers[1][1])
        digits = max(whole - part for whole, part in (numbers[0], numbers[1])) + scale
        wide = digits > _ARROW_DIGITS
        return f"decimal({digits},{scale})", "string" if wide else f"decimal128({digits}, {scale})"
    if arrows <= set(_EXACT_IN_DOUBLE):
        return "double", "float64"
    if arrows == {"date32", "timestamp[us]"}:
        return "datetime(6)", "timestamp[us]"
    if arrows == {"binary"}:
        return _sized(one, other, "varbinary", "longblob"), "binary"
    return _sized(one, other, "varchar", "longtext"), "string"


def _sized(one: Column, other: Column, sized: str, longest: str) -> str:
    widths = [_width(column) for column in (one, other)]
    if one.arrow != other.arrow:  # bytes become hexadecimal digits
        widths = [
            2 * width if width and column.arrow == "binary" else width
            for width, column in zip(widths, (one, other), strict=True)
        ]
    if None in widths or "json" in (one.type, other.type):
        return longest
    width = max(width or 0 for width in widths)
    return f"{sized}({width})" if width <= _LONGEST_VARCHAR else longest


def _width(column: Column) -> int | None:
    """Return the maximum length of a value in characters or bytes; None if unknown."""
    if number := _digits(column):
        return number[0] + 3  # sign, point and leading zero
    if column.arrow in _TEXT_WIDTHS:
        return _TEXT_WIDTHS[column.arrow]
    sized = _SIZED.match(column.type)
    if sized and sized[1] in ("char", "varchar", "binary", "varbinary"):
        return int(sized[2])
    return None


def _digits(column: Column) -> tuple[int, int] | None:
    """Return the precision and scale of a number; None if it is not an exact number."""
    if column.arrow in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[column.arrow], 0
    # A decimal that is too wide for Arrow is text in the lake.
    if found := _DECIMAL.match(column.arrow) or _DECIMAL.match(column.type):
        return int(found[1]), int(found[2] or 0)
    return None
