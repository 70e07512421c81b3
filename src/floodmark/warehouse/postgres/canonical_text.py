"""Canonical text of PostgreSQL's values, for checksums."""

from collections.abc import Sequence

from floodmark.warehouse.row_checksums import Family, Field

_MOST_FIELDS = 49  # each is up to two of the 100 arguments of a function


def shown(name: str, family: Family, encoding: str) -> str | None:
    """Return the SQL for a value's canonical text; `concat_ws` converts most types by itself."""
    match family:
        case "text":  # otherwise its length in bytes is another
            return name if encoding == "UTF8" else None
        case "json":
            return f"{name}::text" if encoding == "UTF8" else None
        case "boolean":
            return f"{name}::int"
        case "binary":
            return f"encode({name}, 'hex')"
        case "decimal":  # its length may be needed
            return f"{name}::text"
        case "float":  # the bits of the number
            return f"encode(float8send({name}::float8), 'base64')"
    return name


def sha256_of(data: str) -> str:
    """Return the SQL for the SHA-256 of binary data, in hexadecimal."""
    return f"encode(sha256({data}), 'hex')"


def joined(fields: Sequence[Field]) -> str:
    """Return the SQL for the text of a row.

    `concat_ws` leaves out NULLs, and writes a comma for less than `concat` takes for an argument.
    """
    parts = [
        f"concat_ws(',', {', '.join(map(_arguments, fields[start : start + _MOST_FIELDS]))}, '')"
        for start in range(0, len(fields), _MOST_FIELDS)
    ]
    return " || ".join(parts)


def _arguments(field: Field) -> str:
    text = field.text.removesuffix("::text")  # `concat_ws` converts it faster
    return f"{text}, CASE WHEN {field.column} IS NULL THEN '' END" if field.column else text
