"""What the log tells of the cursor that a position belongs to."""

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

    It kept no cursor, but the column that says which of two rows is newer.
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


def last_chunk(store: WatermarkStore, table: TableName) -> Chunk | None:
    """The chunk that left a table at its position; None if it was an operator who did."""
    for manifest in store.log.manifests(table, newest_first=True):
        change = manifest.change
        if isinstance(change, Chunk) and not change.adopted:
            return change
        if not isinstance(change, Chunk | Reset) or "extract" in getattr(change, "stages", ()):
            return None
    return None
