"""Cursors: the columns that order a table's changes."""

from typing import Literal

from msgspec import Struct

from floodmark.model.schema import SourceColumn

KeyKind = Literal["integer", "decimal", "text", "binary", "quoted"]

_KINDS: dict[str, KeyKind] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), "integer"),
    "decimal": "decimal",
    **dict.fromkeys(("char", "varchar"), "text"),
    **dict.fromkeys(("binary", "varbinary"), "binary"),
    **dict.fromkeys(("date", "datetime", "timestamp", "uuid", "inet4", "inet6"), "quoted"),
}


def key_kind(column: SourceColumn) -> KeyKind | None:
    """Return how a column's values are written in SQL; None if they cannot order a table exactly.

    Floating-point numbers do not compare equal to their printed form, and ENUM and SET sort by
    number but compare with text.
    """
    if column.data_type == "decimal" and column.scale == 0:
        return "integer"
    return _KINDS.get(column.data_type)


def is_time(column: SourceColumn) -> bool:
    """Return whether a column can hold the time at which a row changed."""
    return column.data_type in ("datetime", "timestamp")


class CursorColumn(Struct, frozen=True, omit_defaults=True):
    """A column of the cursor that a position belongs to."""

    name: str
    """Column name in the source."""
    type: str = ""
    """Column type in the source at the time; empty if an operator set the position."""
    collation: str | None = None
    """Collation that orders its text."""


class Cursor(Struct, frozen=True, kw_only=True):
    """How a table's changes are ordered.

    timestamp   ordered by a time column; `key`, if any, breaks ties
    id          ordered by `key`, which only ever grows; updates are not seen
    none        not ordered: the whole table is read each time

    A window can end at any row only if the cursor is `unique`; else it ends between values.
    """

    kind: Literal["timestamp", "id", "none"]
    timestamp: str | None = None
    key: tuple[str, ...] = ()
    unique: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in order."""
        return (*((self.timestamp,) if self.timestamp else ()), *self.key)

    def __str__(self) -> str:
        return f"({', '.join(self.columns)})" if self.columns else "none"


class CursorChoice(Struct, frozen=True, kw_only=True):
    """The cursor of a table, the index that supports it, and why it was chosen.

    `better` is the cursor that the schema now suggests, if the table keeps the one of its first
    sync.
    """

    cursor: Cursor
    index: str | None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    better: Cursor | None = None
