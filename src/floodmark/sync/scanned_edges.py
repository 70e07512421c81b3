"""Divide the new rows of a table whose cursor has no index, and which has no usable key.

Windows are ranges of the cursor, as with an index. No other division is safe. A row's place in a
partition, in another index or by a hash may change while its cursor does not: always with an id
cursor, and with a time cursor whenever an update does not set the time. Such a row, moved from a
part that is still to be read to one that was read, would be lost, and in the other direction
doubled. The cursor of a row that changes rises above the bound, and no window has it.
"""

from collections.abc import Callable, Iterable, Iterator

from floodmark.model.cursor import Cursor
from floodmark.model.extraction import Edge
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.cursor_histogram import read_histogram, read_range
from floodmark.mysql.window_edges import limited_bound
from floodmark.planning.windows import merged_edges


def scanned_edges(
    session: MysqlSession,
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    bound: Position,
    share: Callable[[int], int],
    limit: int | None,
) -> Iterator[Edge]:
    """Divide the rows in `(start, bound]`, or the first ones up to a limit, by a histogram.

    `share` returns the rows per window for all rows. The last edge is the last row's position.
    """
    if limit is not None:
        bound = limited_bound(session, table, cursor, start, bound, limit=limit)
    found = read_range(session, table, cursor, start, bound)
    if found is None:
        return
    stride = share(found.rows)
    cells: Iterable[tuple[Position, int]] = [(found.end, found.placed)]
    if found.rows > stride:
        cells = read_histogram(session, table, cursor, start, found, most=stride)
    yield from merged_edges(cells, found.end, found.rows, stride=stride)
