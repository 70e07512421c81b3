"""Preview a reset or a restore: what is read or loaded again, and what the target keeps."""

from contextlib import suppress

from floodmark.api.context import RunContext
from floodmark.errors import StateError
from floodmark.model.cursor_facts import remembered
from floodmark.model.formatting import counted
from floodmark.model.manifest import Chunk
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
from floodmark.model.watermark import Watermark
from floodmark.planning.history import how_to_read
from floodmark.state.operator_changes import history


def preview_reset(
    run: RunContext, table: TableName, watermark: Watermark | None, *, extract: bool
) -> str:
    """Describe the effect of a reset."""
    last = last_chunk(run, table)
    rows = counted(watermark.mysql_state.total_rows if watermark else 0, "row")
    keyless = last is not None and not last.primary_key
    kept = "rows in the target stay until they are replaced"
    if not extract:
        if keyless:
            kept = "the target table is emptied first"
        return f"{table}: {rows} in the lake would be loaded again; {kept}"
    if keyless:
        kept = "the next load empties the target table"
    return (
        f"{table} would be read again from {_start(run, table, last)}; {rows} were read so far;"
        f" {kept}"
    )


def preview_restore(table: TableName, before: Position | None, after: Position, origin: str) -> str:
    """Describe the effect of a restore."""
    was = "an unreadable state" if before is None else str(before)
    return (
        f"{table} would go back from {was} to {after} ({origin}): the next sync reads the rows"
        " after that position again, and they replace those in the target"
    )


def last_chunk(run: RunContext, table: TableName) -> Chunk | None:
    """Return the last chunk of a table that was extracted; None if none can be read."""
    with suppress(StateError):
        chunks = run.store.log.chunks(table, newest_first=True)
        return next((chunk for chunk in chunks if chunk.moves_position), None)
    return None


def is_by_id(run: RunContext, table: TableName, position: Position) -> bool:
    """Return whether a position belongs to an id cursor, though it has a timestamp."""
    if position.id is None or position.timestamp is None:
        return False
    columns = run.table_settings(table).cursor_columns
    return remembered(columns, last_chunk(run, table), None).kind == "id"


def how_to_read_rest(run: RunContext, table: TableName, watermark: Watermark) -> str:
    """Return how to read the rows left out before the start of a table, if there are any."""
    before = watermark.mysql_state.before_start
    if before is None:
        return ""
    changes = (manifest.change for manifest in history(run.store, table))
    last = next((change for change in changes if isinstance(change, Chunk)), None)
    synced, keyed = not watermark.position.is_start, last is None or bool(last.primary_key)
    return how_to_read(table, before, synced=synced, keyed=keyed)


def _start(run: RunContext, table: TableName, last: Chunk | None) -> str:
    """Describe where a table starts after a reset."""
    kind = remembered(run.table_settings(table).cursor_columns, last, None).kind
    if kind in ("id", "none"):
        return "the start"
    try:
        first, source = run.start_of_new_tables()
    except StateError:
        return "the start"
    if first.timestamp is None:
        return "the start"
    text = f"{plain(first.timestamp)} ({source})"
    return f"{text}; earlier rows are not read" if kind else f"{text} or its first id"
