"""Table names and their storage keys."""

import re
from contextlib import suppress
from typing import Self

from msgspec import Struct

from floodmark.errors import UsageError

_SCOPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_UNSAFE = re.compile(r"[^A-Za-z0-9_$-]")
_QUOTED = re.compile(r"`(?:[^`]|``)+`")
_QUOTED_SCHEMA = re.compile(rf"({_QUOTED.pattern})\.(.*)", re.DOTALL)
_ESCAPED = re.compile(r"(?:%[0-9A-F]{2})+")


class TableName(Struct, frozen=True, order=True):
    """A table of a source: `SCOPE:schema.table`."""

    scope: str
    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `SCOPE:schema.table`; UsageError for anything else."""
        scope, schema, table = split_name(text)
        if scope is None:
            raise UsageError(
                f"table name {text!r} has no scope", hint="write it as SCOPE:schema.table"
            )
        return cls(scope, schema, table)

    @classmethod
    def from_key(cls, key: str) -> Self:
        """Return the table of a storage key; UsageError if it is not a table's key."""
        scope, _, rest = key.partition("/")
        schema, _, table = rest.partition(".")
        if scope and schema and table:
            with suppress(UnicodeDecodeError):
                name = cls(_unescape(scope), _unescape(schema), _unescape(table))
                if name.key == key:
                    return name
        raise UsageError(f"{key!r} is not the key of a table")

    @property
    def key(self) -> str:
        """The unique part of a storage key for this table."""
        return f"{_escape(self.scope)}/{_escape(self.schema)}.{_escape(self.table)}"

    @property
    def unscoped(self) -> str:
        """`schema.table`, with backticks where it would be ambiguous."""
        return f"{_quoted(self.schema, '.:')}.{_quoted(self.table, ':')}"

    def __str__(self) -> str:
        return f"{self.scope}:{_quoted(self.schema, '.')}.{_quoted(self.table)}"


def split_name(text: str) -> tuple[str | None, str, str]:
    """Split `[SCOPE:]schema.table` into its parts; the scope may be missing.

    A part may be quoted in backticks, as in MySQL: then dots and colons belong to it.
    """
    before, colon, after = text.partition(":")
    scope, rest = (before, after) if colon and "`" not in before else (None, text)
    if match := _QUOTED_SCHEMA.fullmatch(rest):
        schema, table = _unquoted(match[1]), match[2]
    else:
        schema, _, table = rest.partition(".")
    table = _unquoted(table)
    if not (_valid(schema) and _valid(table)) or not (scope is None or valid_scope(scope)):
        raise UsageError(
            f"{text!r} is not a table name",
            hint="write schema.table or SCOPE:schema.table, with backticks around a name that"
            " contains a dot or a colon: `my.schema`.table",
        )
    return scope, schema, table


def valid_scope(text: str) -> bool:
    """Return whether a text can be the name of a connection, and so the scope of a table."""
    return _SCOPE.fullmatch(text) is not None


def _valid(identifier: str) -> bool:
    """Return whether this is a valid MySQL name: trimmed, printable and not empty."""
    return identifier != "" and identifier == identifier.strip() and identifier.isprintable()


def _quoted(part: str, separators: str = "") -> str:
    plain = not part.startswith("`") and not any(separator in part for separator in separators)
    return part if plain else f"`{part.replace('`', '``')}`"


def _unquoted(part: str) -> str:
    return part[1:-1].replace("``", "`") if _QUOTED.fullmatch(part) else part


def _escape(part: str) -> str:
    return _UNSAFE.sub(lambda m: "".join(f"%{byte:02X}" for byte in m[0].encode()), part)


def _unescape(part: str) -> str:
    return _ESCAPED.sub(lambda m: bytes.fromhex(m[0].replace("%", "")).decode(), part)
