"""Canonical text for values that databases format in different ways."""

import json
from decimal import Context, Decimal, DecimalException, Inexact
from typing import Any

import msgspec

# More digits than PostgreSQL's NUMERIC has: 131,072 before the point, 16,383 after it.
_MOST_DIGITS = 200_000
_EXACT = Context(prec=_MOST_DIGITS, traps=[Inexact])
_FEW_DIGITS = 4000  # Python's integers refuse to be longer


def plain_json(text: str) -> str:
    """Return JSON text in canonical form: blanks, order of keys, format of numbers.

    A database with a JSON type keeps the value, not its text. Invalid JSON is returned unchanged.
    """
    try:
        return _ENCODER.encode(_DECODER.decode(text)).decode()
    except (ValueError, DecimalException, RecursionError):  # half a surrogate, for example
        return write_slowly(text)


def write_slowly(text: str) -> str:
    """Return the same text as `plain_json`, also of what its faster parser refuses."""
    try:
        return _write(json.loads(text, parse_float=_reduced, parse_int=_reduced))
    except (ValueError, DecimalException, RecursionError):
        return text


def _reduced(text: str) -> Decimal:
    return Decimal(text).normalize(_EXACT)


def _number(text: str) -> int | Decimal:
    value = _reduced(text)
    if value.adjusted() > _FEW_DIGITS:
        raise ValueError
    return int(value) if _is_whole(value) else value


def _is_whole(number: Decimal) -> bool:
    return bool(number == 0 or 0 <= int(number.as_tuple().exponent) <= _MOST_DIGITS)


def _write(value: Any) -> str:
    match value:
        case dict():
            members = (f"{_write(key)}:{_write(value[key])}" for key in sorted(value))
            return "{" + ",".join(members) + "}"
        case list():
            return "[" + ",".join(map(_write, value)) + "]"
        case Decimal() if not value:
            return "0"  # no database keeps JSON's -0
        case Decimal():
            return format(value, "f") if _is_whole(value) else str(value)
    return json.dumps(value, ensure_ascii=False)


_DECODER = msgspec.json.Decoder(float_hook=_number)
_ENCODER = msgspec.json.Encoder(order="sorted", decimal_format="number")
