"""Redshift's types: which one holds a column, and which can be widened to which.

A VARCHAR counts bytes, and a character of MySQL may take four of them in UTF-8. There are no
unsigned types. Text longer than the longest VARCHAR is not supported.
"""

import re
from string import ascii_uppercase

from floodmark.model.manifest import Column

LONGEST_VARCHAR = 65_535
LONGEST_VARBYTE = 16_777_216
MOST_SCALE = 37
SUPER = "SUPER"
_MOST_BYTES = 4  # of one character in UTF-8

_TYPES = {
    "bool": "BOOLEAN",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float32": "REAL",
    "float64": "DOUBLE PRECISION",
    "date32": "DATE",
    "timestamp[us]": "TIMESTAMP",
    "timestamp[us, UTC]": "TIMESTAMPTZ",
}
# Extra characters of a decimal: sign, point and leading zero.
_DECIMAL_MARKS = 3
_BINARY_BYTES = {"tinyblob": 255, "blob": 65_535}
_TEXT_CHARACTERS = {"tinytext": 255}
# MariaDB's types that are ASCII text; an INET6 may end in an IPv4 address.
_ASCII = {"time": 17, "uuid": 36, "inet4": 15, "inet6": 45}

_UPPER = {ord(letter): letter.lower() for letter in ascii_uppercase}
_SOURCE = re.compile(r"(\w+)\s*(?:\((.*)\))?", re.DOTALL)
_MEMBER = re.compile(r"'((?:[^']|'')*)'")

# Names of types in Redshift's catalog, and ours.
_SHOWN = {
    "character varying": "VARCHAR",
    "numeric": "DECIMAL",
    "timestamp with time zone": "TIMESTAMPTZ",
    "timestamp without time zone": "TIMESTAMP",
    "binary varying": "VARBYTE",
    "varbinary": "VARBYTE",
}
_WIDER = {
    "SMALLINT": ("INTEGER", "BIGINT", "DOUBLE PRECISION"),
    "INTEGER": ("BIGINT", "DOUBLE PRECISION"),
    "REAL": ("DOUBLE PRECISION",),
    "DATE": ("TIMESTAMP",),
}
_DIGITS = {"SMALLINT": 5, "INTEGER": 10, "BIGINT": 19}
_TEXT_BYTES = {
    "BOOLEAN": 1,
    "SMALLINT": 6,
    "INTEGER": 11,
    "BIGINT": 20,
    "REAL": 25,
    "DOUBLE PRECISION": 25,
    "DATE": 10,
    "TIMESTAMP": 26,
    "TIMESTAMPTZ": 29,
}


def folded(name: str) -> str:
    """Return a name as Redshift stores it: ASCII letters in lower case, even in quotes."""
    return name.translate(_UPPER)


def redshift_type(column: Column, *, json: str = "varchar") -> str:
    """Return the type that holds every value of a column; `json` is the type for JSON."""
    if column.type == "json" and json == "super":
        return SUPER
    if column.arrow.startswith("decimal128"):
        return column.arrow.replace("decimal128", "DECIMAL").replace(" ", "")
    if column.arrow == "string":
        return _varchar(column.type)
    if column.arrow == "binary":
        return _varbyte(column.type)
    return _TYPES[column.arrow]


def fits(column: Column) -> bool:
    """Whether Redshift has a type for a column: for a DECIMAL(38,38) of MariaDB it has none."""
    name, sizes = _parts(redshift_type(column))
    return name != "DECIMAL" or sizes[1] <= MOST_SCALE


def staging_type(column: Column) -> str:
    """Return the type of a column while it is staged.

    COPY reads Parquet like Spectrum, which has no TIMESTAMPTZ. Instants are staged in UTC, the
    session's zone, and become TIMESTAMPTZ when they are inserted.
    """
    kind = redshift_type(column)
    return "TIMESTAMP" if kind == "TIMESTAMPTZ" else kind


def shown_type(text: str) -> str:
    """Convert a type from the spelling of `format_type` to ours."""
    name, bracket, size = text.partition("(")
    return _SHOWN.get(name.strip(), name.strip().upper()) + bracket + size.replace(" ", "")


def widens(old: str, new: str) -> bool:
    """Whether the new type can hold every value of the old one."""
    (old_name, old_sizes), (new_name, new_sizes) = _parts(old), _parts(new)
    if old_name in _DIGITS and new_name == "DECIMAL":
        return new_sizes[0] - new_sizes[1] >= _DIGITS[old_name]
    if old_name != new_name:
        return new in _WIDER.get(old, ())
    if old_name in ("VARCHAR", "VARBYTE"):
        return new_sizes > old_sizes
    if old_name == "DECIMAL":
        (old_digits, old_scale), (new_digits, new_scale) = old_sizes, new_sizes
        return new_scale >= old_scale and new_digits - new_scale >= old_digits - old_scale
    return False


def is_text(held: str, kind: str) -> bool:
    """Whether a column is a VARCHAR that is long enough for a type's values as text.

    The longest VARCHAR counts as long enough: COPY refuses longer text.
    """
    (name, sizes), (kind_name, kind_sizes) = _parts(held), _parts(kind)
    if name != "VARCHAR" or kind_name == "VARCHAR":
        return False
    if kind_name == "DECIMAL":
        return sizes[0] >= kind_sizes[0] + _DECIMAL_MARKS
    if kind_name == "VARBYTE":  # two digits a byte
        return sizes[0] >= min(2 * kind_sizes[0], LONGEST_VARCHAR)
    return sizes[0] >= _TEXT_BYTES.get(kind, LONGEST_VARCHAR)


def can_grow(old: str, new: str) -> bool:
    """Whether Redshift can change a column from the old type to the new one in place."""
    return old.startswith("VARCHAR") and new.startswith("VARCHAR") and widens(old, new)


def _varchar(source: str) -> str:
    kind, argument = _source(source)
    if kind in _ASCII:
        return f"VARCHAR({_ASCII[kind]})"
    if kind == "decimal":
        return f"VARCHAR({int(argument.partition(',')[0]) + _DECIMAL_MARKS})"
    if kind in ("char", "varchar"):
        characters = int(argument or 1)
    elif kind == "enum":
        characters = max(map(len, _members(argument)), default=0)
    elif kind == "set":
        characters = sum(len(member) + 1 for member in _members(argument))
    else:
        characters = _TEXT_CHARACTERS.get(kind, LONGEST_VARCHAR)
    return f"VARCHAR({min(max(characters, 1) * _MOST_BYTES, LONGEST_VARCHAR)})"


def _varbyte(source: str) -> str:
    kind, argument = _source(source)
    if kind in ("binary", "varbinary"):
        return f"VARBYTE({max(int(argument or 1), 1)})"
    return f"VARBYTE({_BINARY_BYTES.get(kind, LONGEST_VARBYTE)})"


def _source(source: str) -> tuple[str, str]:
    """Split a type into its name and its argument: `varchar(20)` has `20`."""
    found = _SOURCE.match(source)
    return (found[1].lower(), found[2] or "") if found else ("", "")


def _members(argument: str) -> list[str]:
    return [member.replace("''", "'") for member in _MEMBER.findall(argument)]


def _parts(kind: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = kind.removesuffix(")").partition("(")
    return name, tuple(int(size) for size in sizes.split(",") if size)
