"""Compute checksums of rows inside a target: several windows in one scan."""

import re
from collections.abc import Sequence
from typing import Any, Literal, final

from msgspec import Struct, structs

from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.row_checksums import HASH_DIGITS, LONGEST_TEXT, CheckedColumn
from floodmark.model.verification import NO_ROWS, Checksum, Extent
from floodmark.warehouse.conversion import held_as, held_name
from floodmark.warehouse.range_predicates import up_to, within
from floodmark.warehouse.sql_dialect import SqlBackend, quote

Family = Literal[
    "integer",
    "decimal",
    "boolean",
    "float",
    "date",
    "timestamp",
    "instant",
    "text",
    "json",
    "binary",
]

_FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("smallint", "integer", "bigint"), "integer"),
    **dict.fromkeys(("numeric", "decimal"), "decimal"),
    "boolean": "boolean",
    **dict.fromkeys(("real", "float", "double", "double precision"), "float"),
    "date": "date",
    **dict.fromkeys(("timestamp", "timestamp without time zone"), "timestamp"),
    **dict.fromkeys(("timestamptz", "timestamp with time zone"), "instant"),
    **dict.fromkeys(("text", "varchar", "character varying"), "text"),
    **dict.fromkeys(("jsonb", "json"), "json"),
    **dict.fromkeys(("bytea", "blob", "varbyte"), "binary"),
}
_HELD_BY: dict[str, tuple[Family, ...]] = {
    **dict.fromkeys(("int16", "int32", "int64"), ("integer", "decimal")),
    "bool": ("boolean", "integer"),
    **dict.fromkeys(("float32", "float64"), ("float",)),
    "date32": ("date",),
    "timestamp[us]": ("timestamp",),
    "timestamp[us, UTC]": ("instant", "timestamp"),
    "string": ("text", "json", "decimal"),
    "binary": ("binary",),
}
_SIZES = re.compile(r"\((\d+)(?:, ?(\d+))?\)")
_SCALE = re.compile(r"decimal(?:128)?\(\d+, ?(\d+)\)")


class Field(Struct, frozen=True):
    """SQL for a piece of a row's text, which a comma follows.

    If it is NULL, as `column` is, only the comma is left; without a `column`, nothing at all.
    """

    text: str
    column: str | None = None


class RowChecksums(SqlBackend):
    """Checksums in SQL; the backend knows the canonical text of its types.

    Numbers are in decimal digits with the source's scale, times as PostgreSQL shows them (an
    instant in UTC with `+00`), booleans `1` or `0`, floating-point numbers the bits of a DOUBLE in
    Base64, binary values in lower-case hexadecimal, text as it is. JSON is as the database spells
    it: equal spellings mean the same, others may or may not.
    """

    hash_fence = ""
    """SQL that keeps the planner from merging the query of the hashes with that of their sums."""

    def _shown(self, name: str, family: Family) -> str | None:
        """Return the SQL for a value's canonical text; None if the database cannot express it."""
        if family == "text":
            return name
        if family == "boolean":
            return f"CASE WHEN {name} THEN '1' WHEN NOT {name} THEN '0' END"
        return None if family in ("float", "binary") else f"CAST({name} AS VARCHAR)"

    def _sha256(self, text: str) -> str:
        """Return the SQL for the SHA-256 of a text in UTF-8, in lower-case hexadecimal."""
        return f"sha256({text})"

    def _sha256_of_bytes(self, name: str) -> str | None:
        """Return the SQL for the SHA-256 of binary data; None if the database has none."""
        return f"sha256({name})"

    def _hash(self, text: str) -> str:
        """Return the SQL for the hash of a row's text, named `h`."""
        return self._sha256(text)

    def _hash_parts(self) -> tuple[str, str]:
        """Return the SQL for the two integers that are summed."""
        first, second = (
            self._hash_part(f"SUBSTRING(h, {start}, {HASH_DIGITS})")
            for start in (1, HASH_DIGITS + 1)
        )
        return first, second

    def _hash_part(self, digits: str) -> str:
        """Return the SQL that reads an integer from hexadecimal digits."""
        return f"CAST('0x' || {digits} AS BIGINT)"

    def _length(self, name: str, family: Family) -> str:  # noqa: ARG002
        """Return the SQL for the length in bytes of text or binary data."""
        return f"OCTET_LENGTH({name})"

    def _joined(self, fields: Sequence[Field]) -> str:
        """Return the SQL for the text of a row."""
        return " || ".join(
            f"COALESCE({field.text}, '') || ','"
            if field.column
            else f"COALESCE({field.text} || ',', '')"
            for field in fields
        )

    def _as_digits(self, number: str) -> str:
        """Return the SQL that turns a number into text, if `_joined` needs it."""
        return f"CAST({number} AS VARCHAR)"

    @final
    def checkable(self, table: TargetTable, checked: Sequence[CheckedColumn]) -> tuple[str, ...]:
        """Return the columns whose text can be computed in this form."""
        named, found = self._held(table)
        kept = {c.name: k for c, k in zip(table.columns, named.columns, strict=True)}
        return tuple(
            column.name
            for column in checked
            if self._fields(kept[column.name], column, found.get(kept[column.name].name, ""))
        )

    @final
    def count_outside(self, table: TargetTable, ranges: Sequence[Sequence[Extent]]) -> int:
        """Count the rows that are in none of these ranges."""
        named, found = self._held(table)
        kept = {c.name: k.name for c, k in zip(table.columns, named.columns, strict=True)}
        inside = " OR ".join(f"({within(extents, lambda c: quote(kept[c]))})" for extents in ranges)
        where = f"CASE WHEN {inside} THEN 0 ELSE 1 END = 1"
        if marked := held_name(named.deleted_at, found):
            where += f" AND {quote(marked)} IS NULL"
        statement = f"SELECT COUNT(*) FROM {self._name(named.name)} WHERE {where}"  # noqa: S608
        return int(self._query(statement)[0][0])

    @final
    def checksums(
        self,
        table: TargetTable,
        checked: Sequence[CheckedColumn],
        windows: Sequence[Sequence[Extent]],
    ) -> list[Checksum]:
        """Compute the checksums of windows that follow each other, in one scan."""
        named, found = self._held(table)
        kept = {c.name: k for c, k in zip(table.columns, named.columns, strict=True)}
        fields = [
            field
            for column in checked
            for field in self._fields(kept[column.name], column, found[kept[column.name].name])
            or ()
        ]

        def name(column: str) -> str:
            return quote(kept[column].name)

        where = within(_together(windows), name)
        if marked := held_name(named.deleted_at, found):
            where += f" AND {quote(marked)} IS NULL"
        ends = [up_to(extents[0], name) for extents in windows[:-1]]
        first, second = self._hash_parts()
        rows = self._sums(
            f"SELECT w, COUNT(*), SUM({first}), SUM({second}) FROM"  # noqa: S608
            f" (SELECT {_window(ends)} AS w, {self._hash(self._joined(fields))} AS h"
            f" FROM {self._name(named.name)} WHERE {where}{self.hash_fence})"
            " AS hashed GROUP BY w"
        )
        sums = {int(w): Checksum(int(n), int(one), int(other)) for w, n, one, other in rows}
        return [sums.get(number, NO_ROWS) for number in range(len(windows))]

    def _sums(self, statement: str) -> list[tuple[Any, ...]]:
        """Run the query for the sums."""
        return self._query(statement)

    def _held(self, table: TargetTable) -> tuple[TargetTable, dict[str, str]]:
        named = self._named(table)
        found = self._columns_of(named.name)
        return held_as(named, found), found

    def _fields(
        self, column: Column, checked: CheckedColumn, held: str
    ) -> tuple[Field, ...] | None:
        """Return the pieces of a column's text; None if it has none here."""
        name, family = quote(column.name), _family(column, held)
        text = self._shown(name, family) if family else None
        if text is None or family is None:
            return None
        if column.arrow == "timestamp[us, UTC]" and family == "timestamp":
            return (Field(f"CAST({name} AS VARCHAR) || '+00'", name),)  # without a zone it is UTC
        if checked.form == "plain":
            return (Field(text, name),)
        if checked.form == "last":
            return (Field(text),)
        length = self._length(name if family == "binary" else text, family)
        if checked.form == "shortened":
            binary = family == "binary"
            digest = self._sha256_of_bytes(name) if binary else self._sha256(text)
            if digest is None:
                return None
            text = f"CASE WHEN {length} > {LONGEST_TEXT} THEN {digest} ELSE {text} END"
        return Field(self._as_digits(length), name), Field(text)


def family_of(held: str) -> Family | None:
    """Return the family of a target's type."""
    return _FAMILIES.get(_SIZES.sub("", held).strip().lower())


def _family(column: Column, held: str) -> Family | None:
    """Return the family of the target's type if it holds the column's values as they are."""
    family = family_of(held)
    scale = _SCALE.match(column.arrow) or _SCALE.match(column.type)
    fitting = _HELD_BY.get(column.arrow, ("decimal", "integer"))
    if family not in fitting or (family == "json" and column.type != "json"):
        return None
    if family == "decimal":
        sizes = _SIZES.search(held)
        same = sizes is not None and int(sizes[2] or 0) == (int(scale[1]) if scale else 0)
        return family if same else None
    if family == "integer" and scale and int(scale[1]):
        return None
    return family


def _together(windows: Sequence[Sequence[Extent]]) -> list[Extent]:
    """Return the extents that contain all windows."""
    return [
        structs.replace(first, end=last.end)
        for first, last in zip(windows[0], windows[-1], strict=True)
    ]


def _window(ends: Sequence[str], first: int = 0) -> str:
    """Return the SQL for the number of a row's window, found by bisection."""
    if not ends:
        return str(first)
    half = len(ends) // 2
    before, after = _window(ends[:half], first), _window(ends[half + 1 :], first + half + 1)
    return f"CASE WHEN {ends[half]} THEN {before} ELSE {after} END"
