"""Choose the index along which a table's new rows are read.

Most syncs follow the cursor. Two do not: the first load of a large table, which reads most of it
and is cheaper along the primary key; and any sync whose cursor has no index.

During a scan along the primary key, the position contains the last key and the bound that filters
the rows (`model.position.KeyScan`). An interrupted scan resumes from there under the same bound,
however much later: rows that changed since are above the bound, and are read along the cursor once
the scan is over and the position is that of the newest row it read.

Windows are read at different moments. That is safe for ranges of the cursor, as a row that changes
meanwhile leaves them for a place above the bound. A table that is read without a cursor is divided
by its primary key, which updates rarely change. Without a key it is read by one statement, which
sees one state of the table: a row that moves between two parts (partitions, ranges of another
index, a hash) while these are read would be lost or doubled until the next sync.
"""

from floodmark.model.cursor import Cursor, key_kind
from floodmark.model.extraction import Route
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.planning.indexes import serving_index

ONE_WINDOW = (
    "in one window, as it has no usable key: a row that moves between two parts while they are read"
    " would be lost or doubled"
)
LARGE_TABLE_ROWS = 1_000_000
MOST_OF_A_TABLE = 0.5


def choose_route(
    table: SourceTable,
    cursor: Cursor,
    start: Position,
    *,
    rows_in_range: int | None = None,
    limit: int | None = None,
    large: int = LARGE_TABLE_ROWS,
) -> Route:
    """Choose how to read the rows after `start`.

    `rows_in_range` is the server's estimate, if one was requested; without it, only a table that is
    read from its start counts as mostly read.
    """
    index = serving_index(table, cursor.columns)
    walkable = has_walkable_key(table)
    if start.walk is not None and walkable:
        return _by_key(table, chunked=True, why="resumes the first load, along the primary key")
    if cursor.kind == "none":
        why = "reads the whole table"
        if walkable:
            return _by_key(table, chunked=False, why=f"{why}, along the primary key")
        return Route(by="cursor", index=None, chunked=False, why=f"{why} {ONE_WINDOW}")
    few = limit is not None and limit < large
    most = (
        start.is_start
        if rows_in_range is None
        else rows_in_range >= MOST_OF_A_TABLE * table.estimated_rows
    )
    if walkable and index != table.key_index and most and not few and table.estimated_rows >= large:
        return _by_key(
            table, chunked=True, why="reads most of a large table, along the primary key"
        )
    if index:
        return Route(by="cursor", index=index, chunked=True, why=f"along index {index}")
    why = f"no index on {cursor}"
    if walkable:
        return _by_key(
            table,
            chunked=False,
            why=f"{why}: split by primary key, filtered, committed as one chunk",
        )
    return Route(
        by="cursor",
        index=None,
        chunked=False,
        why=f"{why}, no usable primary key: ranges of the cursor, each of which scans the whole"
        " table, committed as one chunk",
    )


def walk_bound(start: Position) -> Position | None:
    """Return the bound of an interrupted key scan; None if there is none."""
    return start.walk.bound if start.walk else None


def has_walkable_key(table: SourceTable) -> bool:
    """Return whether the table can be scanned along its primary key."""
    key = [table.column(name) for name in table.primary_key]
    return table.has_ordered_key and all(map(key_kind, key))


def _by_key(table: SourceTable, *, chunked: bool, why: str) -> Route:
    return Route(by="key", index=table.key_index, chunked=chunked, why=why)
