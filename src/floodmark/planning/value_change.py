"""Determine what a change of a column's type does to rows that were already read.

When a column's type changes, the server converts the values of all rows without updating their
change times. Only a change that provably keeps every value counts as the same.
"""

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from floodmark.model.manifest import Column

ValueChange = Literal["same", "perhaps cut", "unknown"]

_TYPE = re.compile(r"(\w+)(?:\((\d+)(?:, ?(\d+))?\))?")
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_HASH = "char(64)"
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_EXACT_BITS = {"float": 24, "double": 53}
_TEXT_BYTES = {"tinytext": 2**8 - 1, "text": 2**16 - 1, "mediumtext": 2**24 - 1}
_TEXT_BYTES["longtext"] = 2**32 - 1
_BLOB_BYTES = {name.replace("text", "blob"): size for name, size in _TEXT_BYTES.items()}
_CHARACTER_BYTES = 4
_LISTS = ("enum", "set")


class _Type(Struct, frozen=True):
    """A parsed MySQL type."""

    kind: str
    size: int | None
    scale: int
    unsigned: bool
    zerofill: bool
    members: tuple[str, ...]
    arrow: str

    @property
    def digits(self) -> tuple[int, int] | None:
        """The number of digits of an exact number before and after the decimal point."""
        if self.kind in _INTEGER_BITS:
            bits = _INTEGER_BITS[self.kind] - (not self.unsigned)
            return len(str(2**bits)), 0
        return ((self.size or 10) - self.scale, self.scale) if self.kind == "decimal" else None


def value_change(before: Column | None, now: Column) -> ValueChange:
    """Return what a schema change may have done to the values of rows that were already read."""
    if before is None:
        return "unknown"
    if (before.type, before.arrow, before.source) == (now.type, now.arrow, now.source):
        return "same"
    if before.source and now.source:
        return _hash_change(_parse(before.source), _parse(now.source))
    if before.type == now.type and not before.source:
        return "same"  # switched to or from boolean (0 or 1); or hashed by an older version
    if before.type == _HASH:
        return "unknown"  # it may have been a hash
    return _change(_parse(before.type, before.arrow), _parse(now.type, now.arrow))


def exchanged(before: Sequence[Column], now: Sequence[Column]) -> set[str]:
    """Return the columns, in lower case, that swapped places with another one of the same type.

    They may have swapped names.
    """
    old, new = ({column.name.lower(): column for column in each} for each in (before, now))
    were = [name for name in old if name in new]
    are = [name for name in new if name in old]
    places = {name: place for place, name in enumerate(were)}
    return {
        name
        for name, other in zip(are, were, strict=True)
        if name != other
        and are[places[name]] == other
        and (old[name].type, old[name].source) == (old[other].type, old[other].source)
    }


def _parse(type_: str, arrow: str = "") -> _Type:
    text = type_.lower()
    found = _TYPE.match(text)
    kind, size, scale = found.groups() if found else (text, None, None)
    listed = kind in _LISTS
    return _Type(
        kind=kind,
        size=int(size) if size else None,
        scale=int(scale or 0),
        unsigned=not listed and ("unsigned" in text or "zerofill" in text),
        zerofill=not listed and "zerofill" in text,
        members=tuple(_MEMBER.findall(type_)) if listed else (),
        arrow=arrow,
    )


def _hash_change(before: _Type, now: _Type) -> ValueChange:
    """Return what happens to a hash, which is computed from the server's text of a value."""
    if before == now:
        return "same"
    number = before.digits and now.digits and before.scale == now.scale
    text = now.kind in ("varchar", *_TEXT_BYTES) and before.kind in ("varchar", *_TEXT_BYTES)
    shown_alike = not before.zerofill and not now.zerofill and (number or text)
    return _change(before, now) if shown_alike else "unknown"


def _change(before: _Type, now: _Type) -> ValueChange:
    integers = before.kind in _INTEGER_BITS and now.kind in _INTEGER_BITS
    if _keeps_number(before, now) or _keeps_time(before, now) or _keeps_list(before, now):
        return "same"
    if integers:
        return "perhaps cut"  # clamped to the range of the type
    return _text_change(before, now)


def _keeps_number(before: _Type, now: _Type) -> bool:
    if before.kind == "bit":
        bits = now.size if now.kind == "bit" else _integer_bits(now)
        return (before.size or 1) <= (bits or 0)
    if now.unsigned and not before.unsigned:
        return False
    if before.kind in _INTEGER_BITS and now.kind in _INTEGER_BITS:
        return (_integer_bits(before) or 0) <= (_integer_bits(now) or 0)
    if before.kind in _INTEGER_BITS and now.kind in _EXACT_BITS:
        # Targets format floating-point numbers differently, so they must stay numbers.
        return now.size is None and (_integer_bits(before) or 0) <= _EXACT_BITS[now.kind]
    if before.kind in _EXACT_BITS and now.kind in _EXACT_BITS:
        return now.size is None and _EXACT_BITS[before.kind] <= _EXACT_BITS[now.kind]
    if before.digits and now.kind == "decimal" and now.digits:
        # A decimal too wide for Arrow is text in the lake, with all its decimal places.
        as_text = "string" in (before.arrow, now.arrow)
        alike = before.arrow == now.arrow and before.scale == now.scale and not now.zerofill
        (whole, part), (room, scale) = before.digits, now.digits
        return whole <= room and part <= scale and (alike or not as_text)
    return False


def _integer_bits(type_: _Type) -> int | None:
    bits = _INTEGER_BITS.get(type_.kind)
    return bits and bits - (not type_.unsigned)


def _keeps_time(before: _Type, now: _Type) -> bool:
    if before.kind == now.kind == "year":
        return 2 not in (before.size, now.size)
    if (before.kind, now.kind) == ("date", "datetime"):
        return True
    moments = before.kind == now.kind and now.kind in ("datetime", "timestamp")
    return moments and (before.size or 0) <= (now.size or 0)


def _keeps_list(before: _Type, now: _Type) -> bool:
    """Return whether every value of an ENUM or SET keeps its text; a SET's members are ordered."""
    if before.kind == now.kind == "enum":
        return set(before.members) <= set(now.members)
    if before.kind == now.kind == "set":
        return now.members[: len(before.members)] == before.members
    if before.kind not in _LISTS:
        return False
    lengths = [len(member) for member in before.members]
    longest = sum(lengths) + len(lengths) - 1 if before.kind == "set" else max(lengths, default=0)
    return longest <= _characters(now)


def _characters(type_: _Type) -> int:
    """Return how many characters a variable-length text can hold at least."""
    if type_.kind == "varchar":
        return type_.size or 0
    return _TEXT_BYTES.get(type_.kind, 0) // _CHARACTER_BYTES


def _text_change(before: _Type, now: _Type) -> ValueChange:
    if before.digits and not before.zerofill:
        width = sum(before.digits) + 3  # sign, point and leading zero
        return "same" if width <= max(_characters(now), _fixed(now)) else "unknown"
    if before.kind == now.kind == "char":  # trailing blanks are not returned
        return "same" if _fixed(before) <= _fixed(now) else "unknown"
    bytes_before, bytes_now = (
        type_.size if type_.kind == "varbinary" else _BLOB_BYTES.get(type_.kind)
        for type_ in (before, now)
    )
    if bytes_before and bytes_now:
        return "same" if bytes_before <= bytes_now else "perhaps cut"
    room, longest = _characters(now), _characters(before) or _fixed(before)
    if not room or not longest:
        return "unknown"
    if before.kind in _TEXT_BYTES:
        longest = _TEXT_BYTES[before.kind]
        room = _TEXT_BYTES.get(now.kind, room)
    return "same" if longest <= room else "perhaps cut"


def _fixed(type_: _Type) -> int:
    return type_.size or 1 if type_.kind == "char" else 0
