"""Canonical text of PostgreSQL's values, for checksums."""

from collections.abc import Sequence

from floodmark.warehouse.row_checksums import Family

_MOST_ARGUMENTS = 100  # of a function


def shown(name: str, family: Family, encoding: str) -> str | None:
    """Return the SQL for a value's canonical text; `concat` converts most types by itself."""
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


def joined(texts: Sequence[str]) -> str:
    """Return the SQL that concatenates values as text; a NULL is empty."""
    texts = [text.removesuffix("::text") for text in texts]  # `concat` converts them faster
    groups = [
        f"concat({', '.join(texts[start : start + _MOST_ARGUMENTS])})"
        for start in range(0, len(texts), _MOST_ARGUMENTS)
    ]
    return groups[0] if len(groups) == 1 else joined(groups)
