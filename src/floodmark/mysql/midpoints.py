"""Find values between two others, to divide a range without reading it.

The order of these values is only about the server's: that of text depends on its collation. So they
are only used to look for rows, and the server tells where a row is.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from string import ascii_lowercase, ascii_uppercase, digits
from uuid import UUID

from msgspec import Struct

from floodmark.model.cursor import key_kind
from floodmark.model.schema import SourceColumn

Value = int | str

_DIGITS = 8  # characters or bytes after the common prefix: more than enough to tell rows apart
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - all times are in UTC
_MICROSECOND = timedelta(microseconds=1)
_FOLDED = str.maketrans(ascii_uppercase, ascii_lowercase)


class Numbered(Struct, frozen=True):
    """Numbers for values, from `low` to before `high`, and the value of each number."""

    low: int
    high: int
    value: Callable[[int], Value]


def numbered(column: SourceColumn, low: Value, high: Value) -> Numbered | None:
    """Number the values of a column between two others; None if we cannot."""
    match key_kind(column):
        case "integer" if column.data_type != "year":
            return Numbered(int(low), int(high), lambda number: number)
        case "decimal":
            places = column.scale or 0
            first, last = (int(str(end).replace(".", "")) for end in (low, high))
            return Numbered(first, last, lambda number: _decimal(number, places))
        case "binary":
            return _bytes(*(bytes.fromhex(str(end).removeprefix("0x")) for end in (low, high)))
        case "text":
            return _text(str(low), str(high), folded=not (column.collation or "").endswith("_bin"))
        case "quoted":
            return _quoted(column.data_type, str(low), str(high))
        case _:
            return None


def _decimal(number: int, places: int) -> str:
    sign, text = "-" if number < 0 else "", str(abs(number)).zfill(places + 1)
    return f"{sign}{text[:-places]}.{text[-places:]}"


def _bytes(low: bytes, high: bytes) -> Numbered:
    prefix = low[: _common(low, high)]

    def number(end: bytes) -> int:
        return int.from_bytes(end[len(prefix) :][:_DIGITS].ljust(_DIGITS, b"\0"))

    return Numbered(
        number(low), number(high), lambda n: f"0x{(prefix + n.to_bytes(_DIGITS)).hex()}"
    )


def _text(low: str, high: str, *, folded: bool) -> Numbered:
    """Number texts by their first letters and digits after what both begin with.

    Values have only those of ASCII, which every character set has, and those of the ends. If we do
    not know the order of the ends' characters, values begin with that of the low end, with letters
    and digits, then with that of the high end.
    """
    letters = digits + ("" if folded else ascii_uppercase) + ascii_lowercase
    base = len(letters) + 1  # 0 is the end of the text
    if folded:
        low, high = low.translate(_FOLDED), high.translate(_FOLDED)
    prefix = low[: _common(low, high)]

    def number(text: str) -> int:
        rest = text[len(prefix) :][:_DIGITS]
        places = [bisect_right(letters, character) for character in rest]
        found = 0
        for place in (*places, *[0] * (_DIGITS - len(places))):
            found = found * base + place
        return found

    def text(number: int, begin: str = prefix) -> str:
        found = ""
        for _ in range(_DIGITS):
            number, place = divmod(number, base)
            found = letters[place - 1] + found if place else ""
        return begin + found

    one, other = (end[: len(prefix) + 1] for end in (low, high))
    if one[len(prefix) :] in letters and other[len(prefix) :] in letters:
        return Numbered(number(low), number(high), text)
    begins, size = (one, prefix, other), base**_DIGITS
    return Numbered(0, len(begins) * size - 1, lambda n: text(n % size, begins[n // size]))


def _micros(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def _moment(micros: int) -> str:
    return str(_EPOCH + micros * _MICROSECOND)


def _common(low: Sequence[object], high: Sequence[object]) -> int:
    """Return how many characters or bytes both begin with."""
    pairs = enumerate(zip(low, high, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(low), len(high)))


def _quoted(data_type: str, low: str, high: str) -> Numbered | None:
    try:
        match data_type:
            case "date":
                first, last = (date.fromisoformat(end).toordinal() for end in (low, high))
                return Numbered(first, last, lambda number: str(date.fromordinal(number)))
            case "datetime" | "timestamp":
                return Numbered(_micros(low), _micros(high), _moment)
            case "uuid":
                return Numbered(UUID(low).int, UUID(high).int, lambda number: str(UUID(int=number)))
    except ValueError:  # a zero or partial date
        return None
    return None
