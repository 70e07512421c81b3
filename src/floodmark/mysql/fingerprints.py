"""Compute fingerprints in the source, and read keys with their versions.

Every statement carries the server's guard. No expression can exceed 64 bits: an overflow would look
like another server.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from floodmark.model.fingerprint import (
    DAY,
    DIGEST_DIGITS,
    FIRST_NUMBER,
    Hashing,
    NumberKind,
    RowNumbers,
    SqlNumber,
    nearest_moment,
)
from floodmark.model.reconciliation import Fingerprint, Grouping, Key, Slice, count_lines
from floodmark.model.schema import PRIMARY, SourceColumn, SourceTable
from floodmark.model.timestamps import plain
from floodmark.mysql.connection import MysqlSession, query
from floodmark.mysql.index_scan import explained_rows
from floodmark.mysql.predicates import key_columns, keys_predicate, relation
from floodmark.mysql.types import quote_name

Row = tuple[Any, ...]


class SourceSide(Struct, frozen=True, kw_only=True):
    """The source's side of a comparison.

    `counted` is the condition for rows within the synced ranges, `later` for those that a sync will
    bring, `guard` that of the server.
    """

    table: SourceTable
    key: tuple[NumberKind, ...]
    version: tuple[SourceColumn, NumberKind] | None
    hashing: Hashing
    counted: str
    later: str
    guard: str

    @property
    def numbers(self) -> RowNumbers:
        """SQL for the numbers of a row."""
        columns = zip(key_columns(self.table), self.key, strict=True)
        key = tuple(_number(column, kind) for column, kind in columns)
        if len(key) > 1:  # unsigned numbers cannot be added to negative ones
            key = tuple(SqlNumber(number.value, "CAST({} AS SIGNED)") for number in key)
        return RowNumbers(
            key=key,
            version=_number(*self.version) if self.version else None,
        )

    def bounds(self, session: MysqlSession) -> tuple[int, int] | None:
        """Return the least and greatest leading number, by index; None if the table is empty."""
        column, kind = key_columns(self.table)[0], self.key[0]
        ends = (f"{end}({quote_name(column.name)})" for end in ("MIN", "MAX"))
        found = query(
            session, self._select(", ".join(_number(column, kind, end).value for end in ends))
        )
        low, high = found[0]
        # A zero date has no number, and the target cannot hold it in a key.
        return None if high is None else (FIRST_NUMBER if low is None else int(low), int(high))

    def version_bounds(
        self, session: MysqlSession, within: tuple[int, int]
    ) -> tuple[int, int] | None:
        """Return the least and greatest version in a range, by index; None if there is none."""
        assert self.version is not None
        column, kind = self.version
        ends = (f"{end}({quote_name(column.name)})" for end in ("MIN", "MAX"))
        what = ", ".join(_number(column, kind, end).value for end in ends)
        where = self._within(Slice(versions=(within,)))
        low, high = query(session, self._select(what, where))[0]
        return None if low is None or high is None else (int(low), int(high))

    def estimate(self, session: MysqlSession, index: str, versions: tuple[int, int]) -> int:
        """Estimate the rows in a range of versions by the index."""
        (where,) = self._within(Slice(versions=(versions,)))
        return explained_rows(session, relation(self.table, index), where)

    def fingerprint(
        self, session: MysqlSession, part: Slice, *, index: str | None = None, all_count: bool
    ) -> Fingerprint:
        """Return the fingerprint of all rows of a slice that count; faster than that of groups.

        If it is known that `all_count`, no row is checked.
        """
        where = [*([] if all_count else [self.counted]), *self._within(part)]
        found = query(session, self._select(self.hashing.sums(self.numbers), where, index))
        return Fingerprint(*(int(value or 0) for value in found[0]))

    def fingerprints(
        self, session: MysqlSession, part: Slice, grouping: Grouping, *, index: str | None = None
    ) -> dict[int, Fingerprint]:
        """Return the fingerprint of each group of a slice's rows that count."""
        what = f"{self._group(grouping)} AS g, {self.hashing.sums(self.numbers)}"
        where = [self.counted, *self._within(part)]
        rows = query(session, self._select(what, where, index) + " GROUP BY g ORDER BY NULL")
        return {
            int(g): Fingerprint(int(n), int(a or 0), int(b or 0))
            for g, n, a, b in rows
            if g is not None  # a zero or partial date in the key
        }

    def key_lines(
        self, session: MysqlSession, part: Slice, *, index: str | None = None
    ) -> str | None:
        """Return a line of key and version for each row of a slice that counts, as one text.

        The key is an integer. None if the text is too long for the server.
        """
        (key,), version = self.numbers.key, self.numbers.version
        shown = f"IFNULL({version.value}, '')" if version else "''"
        # Of a number with ZEROFILL, nothing but the digits.
        what = f"COUNT(*), GROUP_CONCAT({key.value} + 0, ',', {shown} SEPARATOR '\\n')"
        where = [self.counted, *self._within(part)]
        rows, lines = query(session, self._select(what, where, index))[0]
        text = str(lines or "")
        return text if count_lines(text) == rows else None

    def read(self, session: MysqlSession, part: Slice, *, index: str | None = None) -> list[Row]:
        """Read key, version, whether the row counts and is later, of all rows of a slice."""
        return query(session, self._select(self._row, self._within(part), index))

    def look_up(self, session: MysqlSession, keys: Sequence[Key]) -> list[Row]:
        """Read the same of the rows with these keys."""
        return query(session, self._select(self._row, [keys_predicate(self.table, keys)]))

    @property
    def _leading(self) -> str:
        return self.numbers.key[0].value

    @property
    def _row(self) -> str:
        columns = zip(key_columns(self.table), self.key, strict=True)
        key = (_selected(column, kind) for column, kind in columns)
        version = self.numbers.version.value if self.numbers.version else "NULL"
        return f"{', '.join(key)}, {version}, ({self.counted}), ({self.later})"

    def _within(self, part: Slice) -> list[str]:
        column, kind = key_columns(self.table)[0], self.key[0]
        ranges = " OR ".join(_range(column, kind, self._leading, *r) for r in part.ranges)
        conditions = [ranges] if ranges else []
        if part.versions and self.version:
            conditions.append(" OR ".join(_range(*self.version, "", *r) for r in part.versions))
        if part.grouping:
            groups = ", ".join(map(str, part.groups))
            conditions.append(f"{self._group(part.grouping)} IN ({groups})")
        return conditions

    def _group(self, grouping: Grouping) -> str:
        if grouping.modulus:
            return self.hashing.bucket(self.numbers, grouping.modulus)
        return f"({self._leading} - ({grouping.base})) DIV {grouping.width}"

    def _select(self, what: str, where: Sequence[str] = (), index: str | None = None) -> str:
        conditions = " AND ".join(f"({condition})" for condition in (*where, self.guard))
        return f"SELECT {what} FROM {relation(self.table, index)} WHERE {conditions}"  # noqa: S608


def covering_index(side: SourceSide) -> str | None:
    """Return an index that leads with the version and contains the key; None if there is none.

    It is read faster than the rows, which are wider. In InnoDB, every index contains the primary
    key.
    """
    table, version = side.table, side.version
    if version is None or version[1] != "moment":
        return None
    kept = set(table.primary_key) if (table.engine, table.key_index) == ("InnoDB", PRIMARY) else ()
    found = [
        index
        for index in table.indexes
        if index.columns[0] == version[0].name and set(table.primary_key) <= {*index.columns, *kept}
    ]
    return min(found, key=lambda index: len(index.columns)).name if found else None


def _number(column: SourceColumn, kind: NumberKind, value: str = "") -> SqlNumber:
    name = value or quote_name(column.name)
    match kind:
        case "integer" if column.data_type == "bit":
            return SqlNumber(f"CAST({name} AS UNSIGNED)")
        case "integer" if column.data_type == "decimal":
            return SqlNumber(f"CAST({name} AS SIGNED)")
        case "integer":
            return SqlNumber(name)
        case "moment" if column.data_type == "date":
            return SqlNumber(f"(TO_DAYS({name}) * {DAY})")
        case "moment":
            fraction = f" + MICROSECOND({name})" if column.fraction else ""
            return SqlNumber(f"(TO_SECONDS({name}) * 1000000{fraction})")
    digits = f"LEFT(SHA2({_text(column, kind)}, 256), {DIGEST_DIGITS})"
    return SqlNumber(f"CAST(CONV({digits}, 16, 10) AS SIGNED)")


def _text(column: SourceColumn, kind: NumberKind) -> str:
    """Return SQL for the text that is hashed."""
    name = quote_name(column.name)
    if kind == "binary":
        return f"LOWER(HEX({name}))"
    if kind == "decimal":  # without ZEROFILL, and without zeros at the end
        plain = f"CONCAT({name} + 0)"
        zeros = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {plain}))"
        return zeros if column.scale else plain
    if column.collation:
        return f"CONVERT({name} USING utf8mb4)"
    return f"CONCAT({name})"


def _selected(column: SourceColumn, kind: NumberKind) -> str:
    """Return SQL for a key column's value: an integer, a number, or text."""
    return _number(column, kind).value if kind in ("integer", "moment") else _text(column, kind)


def _range(column: SourceColumn, kind: NumberKind, leading: str, low: int, high: int) -> str:
    """Select a range of leading numbers, so that an index serves it where that is possible.

    Times are literals: MySQL would read a string again for each row.
    """
    name = quote_name(column.name)
    if kind == "integer":
        return f"{name} BETWEEN {low} AND {high}"
    if kind == "moment" and column.data_type == "date":
        days = (nearest_moment(-(-low // DAY) * DAY), nearest_moment(high))
        first, last = (day.date().isoformat() for day in days)
        return f"{name} BETWEEN DATE '{first}' AND DATE '{last}'"
    if kind == "moment":
        first, last = (f"TIMESTAMP '{plain(nearest_moment(end))}'" for end in (low, high))
        if first == last:  # MySQL would look for that time without its fraction
            return f"{name} >= {first} AND {name} <= {last}"
        return f"{name} BETWEEN {first} AND {last}"
    return f"{leading} BETWEEN {low} AND {high}"
