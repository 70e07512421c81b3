"""Walking an index in strides of so many rows."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from floodmark.errors import UsageError
from floodmark.model.schema import SourceColumn
from floodmark.sources.connection import MysqlSession
from floodmark.sources.statements import Values, below, between, order_by, read_values, selection

Found = tuple[int | str, ...]


class Scan(Struct, frozen=True, kw_only=True):
    """Rows to walk over and the columns that order them; `unique` if no two rows tie in those."""

    relation: str
    columns: tuple[SourceColumn, ...]
    where: str
    unique: bool


def strides(
    session: MysqlSession, scan: Scan, start: Values, *, size: int, limit: int | None
) -> Iterator[tuple[Found, int]]:
    """Yield the values that end each stride and how many rows it covers.

    The last stride may be shorter. Where rows tie, a stride covers all that equal its last; if that
    breaks the limit it ends before them, and UsageError says if there is nothing before them.
    """
    left = limit
    while left is None or left > 0:
        wanted = size if left is None else min(size, left)
        end = _row(session, scan, start, skip=wanted - 1)
        if end is None:
            rows, end = count(session, scan, start), _row(session, scan, start, last=True)
            if end is not None:
                yield end, rows
            return
        rows = wanted if scan.unique else count(session, scan, start, end)
        if left is not None and rows > left:
            before = _row(session, scan, start, also=below(scan.columns, end), last=True)
            if before is not None:
                yield before, count(session, scan, start, before)
            elif left == limit:
                raise _too_many_ties(end, limit)
            return
        yield end, rows
        start = end
        left = None if left is None else left - rows


def count(session: MysqlSession, scan: Scan, start: Values = (), end: Values = ()) -> int:
    """How many rows lie in `(start, end]`."""
    where = f"{between(scan.columns, start, end)} AND ({scan.where})"
    found = query(session, f"SELECT COUNT(*) FROM {scan.relation} WHERE {where}")  # noqa: S608
    return int(found[0][0])


def query(session: MysqlSession, sql: str) -> list[tuple[Any, ...]]:
    """All rows that a statement returns."""
    with session.cursor() as reader:
        reader.execute(sql)
        return list(reader.fetchall())


def _too_many_ties(values: Found, limit: int) -> UsageError:
    return UsageError(
        f"more than {limit} rows have {', '.join(map(str, values))}, and no key tells them apart",
        hint="raise --limit, or give the table a primary key",
    )


def _row(
    session: MysqlSession,
    scan: Scan,
    start: Values,
    *,
    skip: int = 0,
    also: str = "TRUE",
    last: bool = False,
) -> Found | None:
    where = f"{between(scan.columns, start, ())} AND ({scan.where}) AND {also}"
    found = query(
        session,
        f"SELECT {selection(scan.columns)} FROM {scan.relation} WHERE {where}"  # noqa: S608
        f" ORDER BY {order_by(scan.columns, descending=last)} LIMIT 1 OFFSET {skip}",
    )
    return read_values(scan.columns, found[0]) if found else None
