"""Canonical text for values that databases format in different ways."""

import json
from decimal import Context, Decimal, DecimalException
from typing import Any

_EXACT = Context(prec=100_000)


def plain_json(text: str) -> str:
    """Return JSON text in canonical form: blanks, order of keys, format of numbers.

    A database with a JSON type keeps the value, not its text. Invalid JSON is returned unchanged.
    """
    try:
        return _write(json.loads(text, parse_float=Decimal, parse_int=Decimal))
    except (ValueError, DecimalException, RecursionError):
        return text


def _write(value: Any) -> str:
    match value:
        case dict():
            members = (f"{_write(key)}:{_write(value[key])}" for key in sorted(value))
            return "{" + ",".join(members) + "}"
        case list():
            return "[" + ",".join(map(_write, value)) + "]"
        case Decimal():
            return str(value.normalize(_EXACT)) if value else "0"  # no database keeps JSON's -0
    return json.dumps(value, ensure_ascii=False)
