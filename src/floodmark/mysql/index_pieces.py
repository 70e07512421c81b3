"""Divide an index scan into pieces that several connections can scan at once.

A piece ends at a row, which is looked for near a value between the piece's ends. The optimizer
estimates the rows before and after it by looking at a few pages of the index, so pieces are of
about the same size however the values are distributed. Both only matter for speed: the server
itself finds the rows, in its own order, so pieces always tile the range.

If no value between the ends divides a piece, it stays as large as it is.
"""

from collections.abc import Iterator

from msgspec import structs

from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.index_scan import Found, Scan, explained_rows, find_row
from floodmark.mysql.midpoints import numbered
from floodmark.mysql.predicates import Values, below, between, up_to

_LEAST = 1 / 8  # of a piece's rows in each of its parts
_MOST_FAILURES = 8  # to divide a piece well, one after another


def pieces(
    session: MysqlSession, scan: Scan, start: Values, sizes: Iterator[int]
) -> Iterator[Found]:
    """Yield the last row of each piece after `start`, but not of the last piece.

    Each has at most about as many rows as the next of `sizes`. They are found as needed, in order.
    """
    if scan.filtered:
        scan = structs.replace(scan, where="TRUE")
    last = find_row(session, scan, start, also=scan.can_end, last=True)
    ends = [] if last is None else [last]
    low, size, failures = start, next(sizes), 0
    while ends:
        rows = _estimate(session, scan, low, ends[-1])
        if rows > size and failures < _MOST_FAILURES:
            middle, balanced = _middle(session, scan, low, ends[-1], rows)
            if middle is not None:
                failures = 0 if balanced else failures + 1
                ends.append(middle)
                continue
        low = ends.pop()
        if ends:
            yield low
            size = next(sizes)


def _middle(
    session: MysqlSession, scan: Scan, low: Values, high: Found, rows: int
) -> tuple[Found | None, bool]:
    """Find a row in `(low, high)` that divides the rows, and whether it does so well."""
    first = find_row(session, scan, low, also=scan.can_end)
    if first is None or first == high:
        return None, False
    same = next(n for n, (one, other) in enumerate(zip(first, high, strict=True)) if one != other)
    space = numbered(scan.columns[same], first[same], high[same])
    best = None
    before, after = (space.low, space.high) if space else (0, 0)
    while space and before < after:
        number = (before + after) // 2
        near = up_to(scan.columns, (*first[:same], space.value(number)))
        also = f"{near} AND {below(scan.columns, high)} AND {scan.can_end}"
        row = find_row(session, scan, low, also=also, last=True)
        if row is None:
            before = number + 1
            continue
        best = row
        left = _estimate(session, scan, low, row)
        if left < rows * _LEAST:
            before = number + 1
        elif left > rows * (1 - _LEAST):
            after = number
        else:
            return row, True
    return best, False


def _estimate(session: MysqlSession, scan: Scan, low: Values, high: Values) -> int:
    return explained_rows(session, scan.relation, between(scan.columns, low, high))
