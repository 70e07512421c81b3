"""Along which index a table's new rows are reached.

Most syncs follow the cursor. Two do not: the first load of a large table, which reads most of it
and is cheaper along the primary key; and any sync whose cursor no index serves.

On the way along the primary key, a position says how far along the key the walk has come and which
bound filters its rows (`model.position.KeyScan`). An interrupted walk goes on from there under the
same bound, however much later: rows that were changed since lie above the bound, and come with the
cursor once the walk is over and the position is that of the newest row it read.
"""

from floodmark.model.cursor import Cursor, key_kind
from floodmark.model.extraction import Route
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.planning.indexes import serving_index

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
    """Choose how to reach the rows above `start`.

    `rows_in_range` is the server's estimate, if one was asked for; without it only a table that is
    read from its very start counts as read for the most part.
    """
    index = serving_index(table, cursor.columns)
    walkable = has_walkable_key(table)
    if start.walk is not None and walkable:
        return _by_key(
            table, chunked=True, why="goes on with the first load, along the primary key"
        )
    if cursor.kind == "none":
        why = "reads the whole table"
        if walkable:
            return _by_key(table, chunked=False, why=f"{why}, along the primary key")
        return Route(by="cursor", index=None, chunked=False, why=f"{why}, which has no usable key")
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
    why = f"no index serves {cursor}"
    if walkable:
        return _by_key(
            table,
            chunked=False,
            why=f"{why}: split by primary key, filtered, committed as one chunk",
        )
    return Route(
        by="cursor", index=None, chunked=False, why=f"{why}, nor is there a usable primary key"
    )


def walk_bound(start: Position) -> Position | None:
    """The bound under which an interrupted walk must go on; None if there is none under way."""
    return start.walk.bound if start.walk else None


def has_walkable_key(table: SourceTable) -> bool:
    """Whether the table has a primary key that can be walked along."""
    key = [table.column(name) for name in table.primary_key]
    return table.has_ordered_key and all(map(key_kind, key))


def _by_key(table: SourceTable, *, chunked: bool, why: str) -> Route:
    return Route(by="key", index=table.key_index, chunked=chunked, why=why)
