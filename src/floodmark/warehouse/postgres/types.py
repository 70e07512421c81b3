"""PostgreSQL's types, as its catalog spells them."""

import re

from floodmark.model.manifest import Column

_TYPES = {
    "bool": "boolean",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float32": "real",
    "float64": "double precision",
    "string": "text",
    "binary": "bytea",
    "date32": "date",
    "timestamp[us]": "timestamp without time zone",
    "timestamp[us, UTC]": "timestamp with time zone",
}
_WIDER = {
    "smallint": ("integer", "bigint", "double precision"),
    "integer": ("bigint", "double precision"),
    "real": ("double precision",),
    "date": ("timestamp without time zone",),
    "character varying": ("text",),
}
_ARROW_DIGITS = 38
_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}
_ANY_NUMBER = "numeric"  # without digits: exact, of any size
_DECIMAL = re.compile(r"(?:decimal128|decimal|numeric)\((\d+), ?(\d+)\)")
_VARYING = re.compile(r"character varying\((\d+)\)")


def postgres_type(column: Column) -> str:
    """Return the type that holds every value of a source column."""
    # Decimals that are too wide for Arrow are text in the lake.
    if decimal := _DECIMAL.match(column.arrow) or _DECIMAL.match(column.type):
        return f"numeric({decimal[1]},{decimal[2]})"
    return "jsonb" if column.type == "json" else _TYPES[column.arrow]


def staging_type(column: Column) -> str:
    """Return the type in which a column is staged: its own, or text that the server casts."""
    kind = postgres_type(column)
    return kind if can_be_copied(kind) else "text"


def can_be_copied(kind: str) -> bool:
    """Whether values of a type can be sent to the server without a cast."""
    decimal = decimal_of(kind)
    return kind != _ANY_NUMBER and (decimal is None or decimal[0] <= _ARROW_DIGITS)


def widens(old: str, new: str) -> bool:
    """Whether the new type can hold every value of the old one."""
    if new in _WIDER.get(old, ()):
        return True
    if varying := _VARYING.fullmatch(old):
        longer = _VARYING.fullmatch(new)
        return new == "text" or (longer is not None and int(longer[1]) >= int(varying[1]))
    wide = decimal_of(new)
    narrow = (_DIGITS[old], 0) if old in _DIGITS else decimal_of(old)
    if wide is None or narrow is None:
        return narrow is not None and new == _ANY_NUMBER
    return wide[1] >= narrow[1] and wide[0] - wide[1] >= narrow[0] - narrow[1]


def decimal_of(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type; None for any other."""
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else None
