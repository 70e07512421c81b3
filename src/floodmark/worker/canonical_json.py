"""One spelling for values that databases may write in several ways."""

import json
from decimal import Context, Decimal, DecimalException
from typing import Any

_EXACT = Context(prec=100_000)


def plain_json(text: str) -> str:
    """A JSON text without the liberties of its writer: blanks, order of keys, forms of numbers.

    A database that knows JSON keeps what it says, not how it was written. What is no JSON stays as
    it is.
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
