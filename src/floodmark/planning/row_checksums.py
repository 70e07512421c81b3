"""Decide in which form the text of each column is part of a row's text."""

import re
from collections.abc import Sequence

from msgspec import Struct

from floodmark.model.manifest import Column
from floodmark.model.row_checksums import LONGEST_TEXT, CheckedColumn, TextForm

_LONGEST_ROW = 60_000
_MOST_BYTES = 4  # of a character in UTF-8; a byte has two hexadecimal digits
_MARKS = 7  # the length, and two commas
_PLAIN_BYTES = 70  # of the longest number or time
_LENGTH = re.compile(r"\w+\((\d+)\)")
_SHORT = {"time": 17, "uuid": 36, "inet4": 15, "inet6": 45, "tinytext": 255, "tinyblob": 255}


def checked_columns(
    columns: Sequence[Column], *, any_length: bool = False
) -> tuple[CheckedColumn, ...] | None:
    """Return the form of each column; None if a row's text may be too long for some database.

    If a row's text may have `any_length`, its first JSON comes last, as it is.
    """
    forms = [_form(column) for column in columns]
    if sum(map(_most_bytes, columns, forms)) > _LONGEST_ROW:
        forms = ["plain" if form == "plain" else "shortened" for form in forms]
    if sum(map(_most_bytes, columns, forms)) > _LONGEST_ROW:
        return None
    found = [CheckedColumn(c.name, form) for c, form in zip(columns, forms, strict=True)]
    last = next((n for n, c in enumerate(columns) if c.type == "json"), None)
    if any_length and last is not None:
        found.append(CheckedColumn(found.pop(last).name, "last"))
    return tuple(found)


class ComparedColumns(Struct, frozen=True, kw_only=True):
    """How columns are compared: by checksum, or read row by row; JSON `by_meaning` if rewritten."""

    checked: tuple[CheckedColumn, ...] = ()
    read: tuple[str, ...] = ()
    by_meaning: tuple[str, ...] = ()


def compared_columns(
    columns: Sequence[Column],
    primary_key: Sequence[str],
    checked: Sequence[CheckedColumn],
    checkable: Sequence[str],
) -> ComparedColumns:
    """Decide which columns are compared by checksum, and which are read.

    Those that are read need the key, so that both parts are known to belong to the same row.
    """
    by_checksum = tuple(column for column in checked if column.name in checkable)
    read = tuple(column.name for column in columns if column.name not in checkable)
    if read and not (primary_key and set(primary_key) <= set(checkable)):
        return ComparedColumns(read=tuple(column.name for column in columns))
    return ComparedColumns(checked=by_checksum, read=read)


def _form(column: Column) -> TextForm:
    if column.arrow not in ("string", "binary"):
        return "plain"
    return "shortened" if _characters(column.type) > LONGEST_TEXT else "framed"


def _most_bytes(column: Column, form: TextForm) -> int:
    if form == "plain":
        return _PLAIN_BYTES
    most = LONGEST_TEXT * 2 if form == "shortened" else _characters(column.type) * _MOST_BYTES
    return most + _MARKS


def _characters(kind: str) -> int:
    """Return the length of the longest value of a text or binary type."""
    name = kind.partition("(")[0].partition(" ")[0].lower()
    if name in ("enum", "set"):
        return len(kind)
    if name == "decimal":
        return _PLAIN_BYTES
    if found := _LENGTH.match(kind):
        return int(found[1])
    return _SHORT.get(name, 1 if name in ("char", "binary") else _LONGEST_ROW)
