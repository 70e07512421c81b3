"""Check that a position belongs to the cursor that a table is read by."""

from floodmark.errors import FloodmarkError
from floodmark.model.cursor import Cursor
from floodmark.model.manifest import Chunk, Reset
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName
from floodmark.planning.cursor_change import another_cursor
from floodmark.state.watermark_store import WatermarkStore


def refuse_another_time(
    store: WatermarkStore, source: SourceTable, cursor: Cursor, position: Position
) -> None:
    """Raise AnotherCursor if an older version read the position by another time, or by an id.

    It recorded no cursor, but the version column.
    """
    if position.is_start or cursor.kind == "none":
        return
    chunk = last_chunk(store, source.name)
    if chunk is None or chunk.cursor is not None or chunk.version == cursor.timestamp:
        return
    was = chunk.version or "an id"
    change = f"its position was read by {was}, and its cursor is {cursor} now"
    otherwise = f"; 'cursor' in the configuration can name {was} again"
    raise another_cursor(source.name, change, otherwise, keyed=bool(source.primary_key))


def refuse_reading_twice(
    store: WatermarkStore, source: SourceTable, cursor: Cursor, position: Position
) -> None:
    """Raise FloodmarkError if another cursor has read rows without a key: they would be duplicated.

    It is allowed if an operator has moved the position since.
    """
    if source.primary_key or cursor.kind == "none":
        return
    begun = position.timestamp if cursor.kind == "timestamp" else position.id
    chunk = last_chunk(store, source.name) if begun is None else None
    if chunk is not None and chunk.rows:
        raise FloodmarkError(
            f"{source.name} has no primary key, and was read by another cursor before: reading it"
            f" by {cursor} from the start would duplicate its rows",
            hint=f"'floodmark watermark reset -t {source.name}', then sync, empties its table in"
            " the target and reads it again; or configure the cursor that it had",
        )


def last_chunk(store: WatermarkStore, table: TableName) -> Chunk | None:
    """Return the chunk that set a table's position; None if an operator set it."""
    for manifest in store.log.manifests(table, newest_first=True):
        change = manifest.change
        if isinstance(change, Chunk) and change.moves_position:
            return change
        if not isinstance(change, Chunk | Reset) or "extract" in getattr(change, "stages", ()):
            return None
    return None
