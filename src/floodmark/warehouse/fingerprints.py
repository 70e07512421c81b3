"""Compute fingerprints in the target, and read keys with their versions.

The arithmetic is the same everywhere (see `floodmark.model.fingerprint`); how a column becomes a
number differs, and is all that a target must add.
"""

from collections.abc import Iterable
from typing import final

from msgspec import Struct, structs

from floodmark.errors import UsageError
from floodmark.model.fingerprint import Hashing, NumberKind, RowNumbers, SqlNumber, nearest_moment
from floodmark.model.load import TargetTable
from floodmark.model.reconciliation import ALL_ROWS, NO_VERSION, Fingerprint, Grouping, Slice
from floodmark.model.timestamps import plain
from floodmark.warehouse.conversion import ConvertingBackend, held_as
from floodmark.warehouse.range_predicates import within
from floodmark.warehouse.sql_dialect import quote
from floodmark.warehouse.target import ComparedTable, KeyRow

_INTEGERS = ("smallint", "integer", "bigint")
_WIDE = ("decimal", "numeric")
_TEXTS = ("text", "varchar", "character varying")
_BINARIES = ("bytea", "blob", "varbyte")
MOST_LINES = 1_000_000
"""Rows whose keys are read as one text."""
_RANGE = "floodmark_range"
_JOINED_RANGES = 4  # a planner copes with less


class FingerprintingBackend(ConvertingBackend):
    """Fingerprints rows inside the database."""

    divide = "/"
    """Operator that divides integers."""

    fence = ""
    """Clause at the end of a subquery that has its expressions computed once for each row."""

    joins_ranges = False
    """Whether ranges of the key are joined, so that each is looked up in the key's index.

    A planner without statistics takes a long list of ranges for most of the table, and compares
    every row with every range.
    """

    lines = ""
    """Aggregate of texts, as lines; empty if its length is limited."""

    def _moment(self, name: str, held: str) -> str:
        """Return SQL for the microseconds since the year 0 of a time or date in UTC."""
        raise NotImplementedError

    def _digest(self, text: str) -> str:
        """Return SQL for the number of a text: the first digits of its SHA-256."""
        raise NotImplementedError

    def _hexadecimal(self, name: str) -> str:
        """Return SQL for a binary value in lower-case hexadecimal digits."""
        raise NotImplementedError

    def _wide(self, name: str) -> SqlNumber:
        """Return SQL for an integer in a decimal column."""
        return SqlNumber(name, "CAST({} AS BIGINT)")

    @final
    def key_bounds(self, compared: ComparedTable) -> tuple[int, int] | None:
        """Return the least and greatest leading number."""
        low, high = self._query(self._statements(compared).bounds)[0]
        return None if low is None else (int(low), int(high))

    @final
    def count_without_key(self, compared: ComparedTable) -> int:
        """Count rows without a key; nothing is read if no column of the key may be NULL."""
        named = self._named(compared.table)
        found = self._columns_of(named.name)
        key = held_as(named, found).primary_key
        names = [name for name in key if name not in self._not_null(named.name)]
        if not names:
            return 0
        empty = " OR ".join(f"{quote(name)} IS NULL" for name in names)
        marks = [c for c in found if c.lower() == (compared.deleted_at or "").lower()]
        alive = "".join(f" AND {quote(mark)} IS NULL" for mark in marks)
        statement = f"SELECT COUNT(*) FROM {self._name(named.name)} WHERE ({empty}){alive}"  # noqa: S608
        return int(self._query(statement)[0][0])

    @final
    def fingerprints(
        self, compared: ComparedTable, part: Slice, grouping: Grouping
    ) -> dict[int, Fingerprint]:
        """Return the fingerprint of each group."""
        rows = self._query(self._statements(compared).fingerprints(part, grouping))
        return {
            NO_VERSION if g is None else int(g): Fingerprint(int(n), int(a or 0), int(b or 0))
            for g, n, a, b in rows
        }

    @final
    def keys(self, compared: ComparedTable, part: Slice) -> list[KeyRow]:
        """Read keys and versions."""
        return self._query(self._statements(compared).keys(part))

    @final
    def key_lines(self, compared: ComparedTable, part: Slice) -> str | None:
        """Read keys and versions as text."""
        if not self.lines:
            return None
        statement = self._statements(compared).key_lines(part, self.lines)
        rows, lines = self._query(statement)[0]
        return str(lines or "") if rows <= MOST_LINES else None

    def _statements(self, compared: ComparedTable) -> "_Statements":
        named = self._named(compared.table)
        found = self._columns_of(named.name)
        table = held_as(named, found)
        pairs = zip(compared.table.columns, table.columns, strict=True)
        kept = {column.name: quote(held.name) for column, held in pairs}
        kinds = list(zip(table.primary_key, compared.key, strict=True))
        numbers = tuple(self._number_of(table, name, kind, found) for name, kind in kinds)
        version = None
        if table.version is not None and compared.version is not None:
            version = self._number_of(table, table.version, compared.version, found)
        texts = (self._text_of(quote(name), kind, found.get(name, "")) for name, kind in kinds)
        ranges = [f"({within(extents, kept.__getitem__)})" for extents in compared.extents]
        ranges += [f"{kept[compared.or_null]} IS NULL"] if compared.or_null else []
        name, kind = kinds[0]
        marks = [c for c in found if c.lower() == (compared.deleted_at or "").lower()]
        is_bare = kind in ("integer", "moment") and found[name].lower() != "boolean"
        return _Statements(
            relation=self._name(table.name),
            numbers=RowNumbers(key=numbers, version=version),
            row=tuple(text or number.value for text, number in zip(texts, numbers, strict=True)),
            # Of a bare column, which an index or a sort key serves.
            ends=tuple(
                self._number_of(table, name, kind, found, end).value
                if is_bare
                else end.format(numbers[0].value)
                for end in ("MIN({})", "MAX({})")
            ),
            leading=quote(name) if is_bare and kind == "integer" else numbers[0].value,
            version=(quote(table.version), compared.version or "integer"),
            counted=f"({' OR '.join(ranges) or 'FALSE'})",
            alive=tuple(f"{quote(mark)} IS NULL" for mark in marks),
            hashing=compared.hashing,
            divide=self.divide,
            fence=self.fence,
            joins_ranges=self.joins_ranges and is_bare and kind == "integer",
        )

    def _number_of(
        self,
        table: TargetTable,
        name: str,
        kind: NumberKind,
        found: dict[str, str],
        value: str = "{}",
    ) -> SqlNumber:
        held = found.get(name, "missing")
        number = self._number(value.format(quote(name)), kind, held)
        if number is None:
            raise UsageError(
                f"{table.name}.{name} is {held} in the target, so its values cannot be compared"
                " with the source's inside the databases",
                hint=f"change it to {self.column_type(table.column(name))} there",
            )
        return number

    def _number(self, name: str, kind: NumberKind, held: str) -> SqlNumber | None:
        """Return SQL for a column's number; None if the target's type does not allow it."""
        held = held.lower()
        if kind == "moment":
            moments = held.startswith(("timestamp", "date"))
            return SqlNumber(self._moment(name, held)) if moments else None
        if kind != "integer":
            text = self._text_of(name, kind, held)
            return SqlNumber(self._digest(text)) if text else None
        if held == "boolean":
            return SqlNumber(f"CAST(CASE WHEN {name} THEN 1 WHEN NOT {name} THEN 0 END AS BIGINT)")
        if held.startswith(_WIDE) and held.endswith(",0)"):
            return self._wide(name)
        return SqlNumber(f"CAST({name} AS BIGINT)") if held in _INTEGERS else None

    def _text_of(self, name: str, kind: NumberKind, held: str) -> str | None:
        """Return SQL for the text of a value that both sides hash; None if it is a number."""
        held = held.lower()
        if kind == "decimal" and held.startswith((*_WIDE, *_TEXTS)):
            text = f"CAST({name} AS VARCHAR(80))"
            trimmed = f"RTRIM(RTRIM({text}, '0'), '.')"
            return f"CASE WHEN POSITION('.' IN {text}) > 0 THEN {trimmed} ELSE {text} END"
        if kind == "text" and held.startswith(_TEXTS):
            return name
        if kind == "binary" and held.startswith(_BINARIES):
            return self._hexadecimal(name)
        return None


class _Statements(Struct, frozen=True, kw_only=True):
    """The statements of one comparison, made of SQL for a table's columns."""

    relation: str
    numbers: RowNumbers
    row: tuple[str, ...]
    ends: tuple[str, ...]
    leading: str
    version: tuple[str, NumberKind]
    counted: str
    alive: tuple[str, ...]
    hashing: Hashing
    divide: str
    fence: str
    joins_ranges: bool

    @property
    def bounds(self) -> str:
        """Select the least and greatest leading number."""
        return f"SELECT {', '.join(self.ends)} FROM {self._where(ALL_ROWS)}"  # noqa: S608

    def keys(self, part: Slice) -> str:
        """Select key, version, and whether a row counts."""
        version = self.numbers.version.value if self.numbers.version else "NULL"
        counts = f"CASE WHEN {self.counted} THEN 1 ELSE 0 END"
        names = [f"k{place}" for place in range(len(self.row))] + ["v", "c"]
        columns = zip((*self.row, version, counts), names, strict=True)
        found = self._subquery(part, (f"{value} AS {name}" for value, name in columns))
        return f"SELECT {', '.join(names)} FROM {found}"  # noqa: S608

    def fingerprints(self, part: Slice, grouping: Grouping) -> str:
        """Select the fingerprints of groups."""
        if self.fence:
            numbers, source = self._fenced(part)
        else:
            numbers, source = self.numbers, self._where(part, self.counted)
        group = self._group(numbers, grouping)
        return f"SELECT {group} AS g, {self.hashing.sums(numbers)} FROM {source} GROUP BY 1"  # noqa: S608

    def key_lines(self, part: Slice, aggregate: str) -> str:
        """Select the number of rows, and a line for each; one more row than allowed at most."""
        (key,), version = self.numbers.key, self.numbers.version
        columns = f"{key.value} AS n, {version.value if version else 'NULL'} AS v"
        source = f"SELECT {columns} FROM {self._where(part, self.counted)} LIMIT {MOST_LINES + 1}"  # noqa: S608
        return f"SELECT COUNT(*), {aggregate} FROM ({source}) AS numbered"  # noqa: S608

    def _subquery(self, part: Slice, columns: Iterable[str], *conditions: str) -> str:
        """Return the FROM clause of a subquery for the columns of a slice's rows."""
        selected = f"SELECT {', '.join(columns)} FROM"
        if not self.joins_ranges or len(part.ranges) < _JOINED_RANGES:
            return f"({selected} {self._where(part, *conditions)}{self.fence}) AS numbered"
        ranges = ", ".join(f"({low}, {high})" for low, high in part.ranges)
        within = f"{self.leading} BETWEEN {_RANGE}.low AND {_RANGE}.high"
        rest = structs.replace(part, ranges=())
        return (
            f"(VALUES {ranges}) AS {_RANGE}(low, high) CROSS JOIN LATERAL"
            f" ({selected} {self._where(rest, within, *conditions)}{self.fence}) AS numbered"
        )

    def _where(self, part: Slice, *conditions: str) -> str:
        """Return the FROM clause of a slice."""
        ranges = " OR ".join(
            f"{self.leading} BETWEEN {low} AND {high}" for low, high in part.ranges
        )
        wanted = [*self.alive, *conditions, *([f"({ranges})"] if ranges else [])]
        if part.versions:
            versions = (_between(*self.version, *ends) for ends in part.versions)
            wanted.append(f"({' OR '.join(versions)})")
        if part.grouping:
            groups = ", ".join(map(str, part.groups))
            wanted.append(f"{self._group(self.numbers, part.grouping)} IN ({groups})")
        return f"{self.relation} WHERE {' AND '.join(wanted) or 'TRUE'}"

    def _group(self, numbers: RowNumbers, grouping: Grouping) -> str:
        if grouping.modulus:
            return self.hashing.bucket(numbers, grouping.modulus)
        leading = numbers.version if grouping.by_version else numbers.key[0]
        assert leading is not None
        above = f"({leading.value} - ({grouping.base}))"
        if leading.cast == "{}":
            return f"{above} {self.divide} {grouping.width}"
        # The quotient of decimals must not be rounded.
        even = f"({above} - {above} % {grouping.width})"
        return leading.cast.format(f"{even} {self.divide} {grouping.width}")

    def _fenced(self, part: Slice) -> tuple[RowNumbers, str]:
        """Return the numbers as columns of a subquery, which computes each of them once."""
        key, version = self.numbers.key, self.numbers.version
        columns = [f"{number.value} AS n{place}" for place, number in enumerate(key)]
        columns += [f"{version.value} AS v"] if version else []
        named = RowNumbers(
            key=tuple(structs.replace(one, value=f"n{place}") for place, one in enumerate(key)),
            version=structs.replace(version, value="v") if version else None,
        )
        return named, self._subquery(part, columns, self.counted)


def _between(name: str, kind: NumberKind, low: int, high: int) -> str:
    ends = (plain(nearest_moment(low)), plain(nearest_moment(high))) if kind == "moment" else ()
    return "{} BETWEEN {} AND {}".format(name, *(map("'{}'".format, ends) if ends else (low, high)))
