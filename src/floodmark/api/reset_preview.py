"""What a reset or a restore does: what is read or loaded again, and what the target keeps."""

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


def foresee_reset(
    run: RunContext, table: TableName, watermark: Watermark | None, *, extract: bool
) -> str:
    """Say what a reset does."""
    last = last_chunk(run, table)
    rows = counted(watermark.mysql_state.total_rows if watermark else 0, "row")
    keyless = last is not None and not last.primary_key
    kept = "its rows in the target stay, and are replaced as they come again"
    if not extract:
        if keyless:
            kept = "its table in the target is emptied first"
        return f"{table}: {rows} in the lake would be loaded again; {kept}"
    if keyless:
        kept = "its table in the target is emptied by the next load"
    return (
        f"{table} would be read again from {_start(run, table, last)}; {rows} were read so far;"
        f" {kept}"
    )


def foresee_restore(table: TableName, before: Position | None, after: Position, origin: str) -> str:
    """Say what a return to an earlier state does."""
    was = "a state that cannot be read" if before is None else str(before)
    return (
        f"{table} would go back from {was} to {after} ({origin}): the next sync reads rows after"
        " that, again if they were read since, and they replace theirs in the target"
    )


def last_chunk(run: RunContext, table: TableName) -> Chunk | None:
    """The last chunk that was read of a table; None if there is none, or it cannot be read."""
    with suppress(StateError):
        chunks = run.store.log.chunks(table, newest_first=True)
        return next((chunk for chunk in chunks if not chunk.adopted), None)
    return None


def is_by_id(run: RunContext, table: TableName, position: Position) -> bool:
    """Whether a position is one of an id cursor, though an operator gave it a time."""
    if position.id is None or position.timestamp is None:
        return False
    columns = run.table_settings(table).cursor_columns
    return remembered(columns, last_chunk(run, table), None).kind == "id"


def how_to_read_rest(run: RunContext, table: TableName, watermark: Watermark) -> str:
    """How to get rows read that were left out before where the table began, if there are any."""
    before = watermark.mysql_state.before_start
    if before is None:
        return ""
    changes = (manifest.change for manifest in history(run.store, table))
    last = next((change for change in changes if isinstance(change, Chunk)), None)
    synced, keyed = not watermark.position.is_start, last is None or bool(last.primary_key)
    return how_to_read(table, before, synced=synced, keyed=keyed)


def _start(run: RunContext, table: TableName, last: Chunk | None) -> str:
    """Where a table that was reset begins."""
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
    return f"{text}, and rows before that are not read" if kind else f"{text} or its first id"
