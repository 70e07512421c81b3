"""Scan an index in strides of a fixed number of rows.

A DATETIME may have an invalid value: `2025-06-00 10:00:00`, or the 31st of February. Such a row has
its place in the order, but no position: a stride extends to the next row that has one. Its value is
never written as a literal, which MySQL would refuse.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Protocol

from msgspec import Struct

from floodmark.errors import UsageError
from floodmark.model.schema import SourceColumn
from floodmark.mysql.connection import MysqlSession, query, query_dicts
from floodmark.mysql.predicates import Values, below, between, order_by, read_values, selection
from floodmark.mysql.types import quote_name

Found = tuple[int | str, ...]


class Walk(Protocol):
    """Scans in strides, as `strides` does."""

    def __call__(
        self, session: MysqlSession, scan: "Scan", start: Values, *, size: int, limit: int | None
    ) -> Iterator[tuple[Found, int]]:
        """Yield the last values of each stride and its number of rows."""


class Scan(Struct, frozen=True, kw_only=True):
    """Rows to scan and the columns that order them; `unique` if no two rows are equal in those.

    With `by_time`, a stride ends only at a row whose first column is a valid time. With `filtered`,
    `where` is about other columns, so not all rows between two others are scanned.
    """

    relation: str
    columns: tuple[SourceColumn, ...]
    where: str
    unique: bool
    by_time: bool = False
    filtered: bool = False

    @property
    def can_end(self) -> str:
        """The condition that selects the rows at which a stride can end."""
        if not self.by_time:
            return "TRUE"
        name = quote_name(self.columns[0].name)
        last_day = f"DAYOFMONTH(LAST_DAY({name}))"
        return f"(MONTH({name}) > 0 AND DAYOFMONTH({name}) BETWEEN 1 AND {last_day})"

    def ends_at(self, values: Found) -> bool:
        """Whether a stride can end at a row with these values."""
        return not self.by_time or read_moment(values[0]) is not None


def strides(
    session: MysqlSession, scan: Scan, start: Values, *, size: int, limit: int | None
) -> Iterator[tuple[Found, int]]:
    """Yield the last values of each stride and its number of rows.

    The last stride may be shorter. A stride includes all rows that equal its last one, and rows
    with an invalid time up to the next valid one; if that exceeds the limit, it ends before them,
    or UsageError is raised if there is nothing before them. Rows with an invalid time after the
    last valid one are left over.
    """
    left = limit
    while left is None or left > 0:
        target = size if left is None else min(size, left)
        end = find_row(session, scan, start, skip=target - 1)
        exact = scan.unique
        if end is not None and not scan.ends_at(end):
            end, exact = _next_end(session, scan, start, skip=target), False
        if end is None:
            end = find_row(session, scan, start, also=scan.can_end, last=True)
            if end is not None:
                yield end, count(session, scan, start, end)
            return
        rows = target if exact else count(session, scan, start, end)
        if left is not None and rows > left:
            earlier = f"{below(scan.columns, end)} AND {scan.can_end}"
            before = find_row(session, scan, start, also=earlier, last=True)
            if before is not None:
                yield before, count(session, scan, start, before)
            elif left == limit:
                raise _too_many_together(end, limit)
            return
        yield end, rows
        start = end
        left = None if left is None else left - rows


def count(session: MysqlSession, scan: Scan, start: Values = (), end: Values = ()) -> int:
    """Count the rows in `(start, end]`."""
    where = f"{between(scan.columns, start, end)} AND ({scan.where})"
    found = query(session, f"SELECT COUNT(*) FROM {scan.relation} WHERE {where}")  # noqa: S608
    return int(found[0][0])


def read_moment(value: int | str) -> datetime | None:
    """Parse a time in UTC from the server's text; None if it is invalid."""
    try:
        return datetime.fromisoformat(str(value)).replace(tzinfo=UTC)
    except ValueError:
        return None


def _next_end(session: MysqlSession, scan: Scan, start: Values, *, skip: int) -> Found | None:
    """Find the first row after `skip` rows at which a stride can end."""
    skipped = (
        f"SELECT {scan.can_end} AS can_end FROM {scan.relation}"  # noqa: S608
        f" WHERE {between(scan.columns, start, ())} AND ({scan.where})"
        f" ORDER BY {order_by(scan.columns)} LIMIT {skip}"
    )
    ends = query(session, f"SELECT COUNT(*) FROM ({skipped}) skipped WHERE can_end")[0][0]  # noqa: S608
    return find_row(session, scan, start, skip=int(ends), also=scan.can_end)


def _too_many_together(values: Found, limit: int) -> UsageError:
    return UsageError(
        f"more than {limit} rows must be read together, up to {', '.join(map(str, values))}:"
        " they have the same cursor value, or one that is no valid time",
        hint="raise --limit; a primary key tells rows of one moment apart",
    )


def find_row(
    session: MysqlSession,
    scan: Scan,
    start: Values,
    *,
    skip: int = 0,
    also: str = "TRUE",
    last: bool = False,
) -> Found | None:
    """Return the first row after `start` and `skip` rows, or the last one; None if none."""
    where = f"{between(scan.columns, start, ())} AND ({scan.where}) AND {also}"
    found = query(
        session,
        f"SELECT {selection(scan.columns)} FROM {scan.relation} WHERE {where}"  # noqa: S608
        f" ORDER BY {order_by(scan.columns, descending=last)} LIMIT 1 OFFSET {skip}",
    )
    return read_values(scan.columns, found[0]) if found else None


def explained_rows(session: MysqlSession, relation: str, where: str) -> int:
    """Return the optimizer's estimate of the rows that a condition selects.

    MySQL prints a tree unless asked for a table, and with FORCE INDEX estimates one row for a plain
    SELECT; COUNT is estimated properly.
    """
    counting = f"SELECT COUNT(*) FROM {relation} WHERE {where}"  # noqa: S608
    rows = query_dicts(session, f"EXPLAIN FORMAT=TRADITIONAL {counting}")
    return int(rows[0]["rows"] or 0) if rows else 0
