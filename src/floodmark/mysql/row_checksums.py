"""Build the statement that computes a window's checksum inside MySQL or MariaDB.

A NULL hash means that a text was too long for the server's packets. Such rows are counted, so that
they never pass for equal.
"""

from collections.abc import Sequence

from floodmark.model.cursor import key_kind
from floodmark.model.extraction import ColumnPlan, Window, ZeroDates
from floodmark.model.row_checksums import HASH_DIGITS, LONGEST_TEXT, CheckedColumn
from floodmark.model.schema import PRIMARY, SourceTable
from floodmark.model.verification import Checksum
from floodmark.mysql.connection import MysqlSession, query
from floodmark.mysql.predicates import relation
from floodmark.mysql.types import quote_name

_ALL = 18446744073709551615
_SPARSE = 2
_PART_NUMBERS = 25_000  # few, so that all sessions are busy until the end
_MOST_PARTS = 8  # of a window: its keys may have gaps
_SAMPLE = 500
_WHOLE_SECONDS = len("2025-01-01 00:00:00")


class SourceChecksums:
    """Computes checksums of a table's windows in the source.

    `index` is read for a window, `guard` the condition that fails on any other server.
    """

    def __init__(
        self,
        table: SourceTable,
        plans: Sequence[ColumnPlan],
        checked: Sequence[CheckedColumn],
        *,
        index: str | None,
        guard: str,
        zero_dates: ZeroDates,
    ) -> None:
        self._table = table
        self._plans = plans
        self._index = index
        found = {plan.name: plan for plan in plans}
        texts = [
            text
            for column in checked
            for text in (
                _piece(table, found[column.name], column, zero_dates == "null"),
                *(("','",) if column.form != "last" else ()),
            )
        ]
        self._row = f"CONCAT({', '.join(texts)})"
        self._guard = guard

    def statement(self, predicate: str, index: str | None) -> str:
        """Return the query for the rows, the rows with a hash, and the sums of both parts.

        Because of its LIMIT, the inner query is not merged into the outer one, which would compute
        every hash twice.
        """
        first, second = (
            f"SUM(CAST(CONV({part}, 16, 10) AS UNSIGNED))"
            for part in (f"LEFT(h, {HASH_DIGITS})", f"RIGHT(h, {HASH_DIGITS})")
        )
        return (
            f"SELECT COUNT(*), COUNT(h), {first}, {second} FROM"  # noqa: S608
            f" (SELECT LEFT(CAST(SHA2({self._row}, 256) AS BINARY), {2 * HASH_DIGITS}) AS h"
            f" FROM {self._rows(predicate, index)} LIMIT {_ALL}) AS hashed"
        )

    def statements(self, session: MysqlSession, window: Window) -> list[str]:
        """Return the queries that together compute a window's checksum, each that of some rows.

        Looking up a row for each entry of another index costs several times as much as scanning the
        primary key, unless few of the rows that are scanned count.
        """
        predicate, found = f"({window.predicate})", None
        if self._has_number:
            along_key = window.start.walk or window.end.walk
            found = self._scanned(session, window) if along_key else self._spanned(session, window)
        if found is None:
            return [self.statement(window.predicate, self._index)]
        low, high = found
        key = quote_name(self._table.primary_key[0])
        size = max(_PART_NUMBERS, -(-(high - low + 1) // _MOST_PARTS))
        points = range(low + size - 1, high, size)
        if not (window.start.walk or window.end.walk):
            predicate += f" AND {key} BETWEEN {low} AND {high}"
        begins = ["TRUE", *(f"{key} > {point}" for point in points)]
        ends = [*(f"{key} <= {point}" for point in points), "TRUE"]
        parts = (f"{predicate} AND {b} AND {e}" for b, e in zip(begins, ends, strict=True))
        return [self.statement(part, PRIMARY) for part in parts]

    def read(self, session: MysqlSession, statement: str) -> Checksum | None:
        """Compute the checksum of some rows; None if one of them has no hash."""
        ((rows, hashed, first, second),) = query(session, statement)
        return Checksum(rows, int(first or 0), int(second or 0)) if rows == hashed else None

    def documents(self, session: MysqlSession, predicate: str, column: str) -> list[str]:
        """Read some values of a JSON column of a window."""
        plan = next(plan for plan in self._plans if plan.name == column)
        rows = self._rows(predicate, self._index)
        found = query(session, f"SELECT {plan.expression} FROM {rows} LIMIT {_SAMPLE}")  # noqa: S608
        return [text for (text,) in found if text is not None]

    @property
    def _has_number(self) -> bool:
        """Whether the rows are in the order of an integer, the primary key."""
        table = self._table
        if table.key_index != PRIMARY or len(table.primary_key) > 1 or not table.has_ordered_key:
            return False
        return key_kind(table.column(table.primary_key[0])) == "integer"

    def _scanned(self, session: MysqlSession, window: Window) -> tuple[int, int] | None:
        """Return about the first and last key of a window along the key; None without rows."""
        key = quote_name(self._table.primary_key[0])
        ((low, high),) = query(
            session,
            f"SELECT MIN({key}), MAX({key}) FROM {relation(self._table, PRIMARY)}",  # noqa: S608
        )
        if low is None:
            return None
        first, last = (end.walk.key if end.walk else None for end in (window.start, window.end))
        return first if isinstance(first, int) else low, last if isinstance(last, int) else high

    def _spanned(self, session: MysqlSession, window: Window) -> tuple[int, int] | None:
        """Return the first and last key of a window; None if few rows between them are its own."""
        if self._index in (None, PRIMARY):
            return None
        key = quote_name(self._table.primary_key[0])
        rows_of = self._rows(window.predicate, self._index)
        found = f"SELECT COUNT(*), MIN({key}), MAX({key}) FROM {rows_of}"  # noqa: S608
        ((rows, low, high),) = query(session, found)
        if not rows or high - low >= _SPARSE * rows:
            return None
        return low, high

    def _rows(self, predicate: str, index: str | None) -> str:
        return f"{relation(self._table, index)} WHERE ({predicate}) AND {self._guard}"


def _piece(table: SourceTable, plan: ColumnPlan, column: CheckedColumn, zero_is_null: bool) -> str:
    """Return the SQL for the parts of the row's text that a column has."""
    name = quote_name(plan.name)
    missing = [f"{name} IS NULL"] if table.column(plan.name).nullable else []
    if column.form == "plain":
        if plan.zero_dates and zero_is_null:
            missing.append(f"{name} = 0")
        text, null = _plain(plan), "''"
    else:
        text, null = _framed(table, plan, column), "''"
        text = f"CONCAT({text})" if missing else text
    return f"IF({' OR '.join(missing)}, {null}, {text})" if missing else text


def _plain(plan: ColumnPlan) -> str:
    """Return the SQL for a number or a time."""
    name, kind = quote_name(plan.name), plan.type.lower()
    match plan.arrow:
        case "float32" | "float64":  # the bits of the number: the x of a point in WKB, reversed
            return f"TO_BASE64(REVERSE(SUBSTR(POINT({plan.expression}, 0), 10, 8)))"
        case "timestamp[us]" | "timestamp[us, UTC]":
            text = name
            if "(" in kind:  # digits of a second, without trailing zeros
                trimmed = f"TRIM(TRAILING '0' FROM {name})"
                text = f"IF(MICROSECOND({name}), {trimmed}, LEFT({name}, {_WHOLE_SECONDS}))"
            return f"CONCAT({text}, '+00')" if plan.arrow.endswith("UTC]") else text
    # YEAR and ZEROFILL have leading zeros as text.
    return f"({name} + 0)" if "zerofill" in kind or kind.startswith("year") else plan.expression


def _framed(table: SourceTable, plan: ColumnPlan, column: CheckedColumn) -> str:
    """Return the SQL for the parts of text or binary data after its length."""
    name, data = quote_name(plan.name), plan.expression
    if plan.arrow == "string":
        collation = None if plan.hashed else table.column(plan.name).collation
        if data != name or not (collation or "").startswith("utf8mb4_"):
            data = f"CONVERT({data} USING utf8mb4)"
    text = f"LOWER(HEX({data}))" if plan.arrow == "binary" else data
    if column.form == "last":
        return f"{data}, ','"
    if column.form == "shortened":
        text = f"IF(LENGTH({data}) > {LONGEST_TEXT}, SHA2({data}, 256), {text})"
    return f"LENGTH({data}), ',', {text}"
