"""Refuse what would load rows without a primary key twice.

Such rows are appended, so each must be read once in all chunks that count. A position that goes
back behind one of these chunks would read its rows again, and nothing could tell them from the
others. To reset both stages is the way: then none of the chunks counts any more, and the first load
empties the table in the target.
"""

from floodmark.errors import UsageError
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Change, Chunk, Reset, Restore, Set
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state.manifest_log import ManifestLog


def without_repetition(
    log: ManifestLog, table: TableName, current: Watermark, change: Change
) -> Change:
    """Return an operator's change; UsageError if rows without a key would be loaded twice by it.

    That a table goes on under another name comes first: what it lacks a key for happens there.
    """
    current.refuse_moved()
    eligible = current.redshift_state.eligible_from_epoch
    match change:
        case Set(position=position):
            again = _appended(log, table, ManifestId(eligible, 0), behind=position)
        case Restore(earlier=earlier):
            after = ManifestId(earlier.head.epoch, earlier.head.sequence + 1)
            again = _appended(log, table, after)
        case Reset(stages=("extract",)):
            again = _appended(log, table, ManifestId(eligible, 0))
        case _:
            again = None
    if again is not None:
        raise UsageError(
            f"{table} has no primary key: its rows in chunk {again}, and any that came after, would"
            " be read again and be loaded twice",
            hint=f"'floodmark watermark reset -t {table}', then sync, reads all of it again into an"
            " emptied table",
        )
    return change


def _appended(
    log: ManifestLog, table: TableName, since: ManifestId, behind: Position | None = None
) -> ManifestId | None:
    """The first chunk of rows without a key since a place, which has rows behind a position."""
    for manifest in log.manifests(table, since=since):
        change = manifest.change
        if not isinstance(change, Chunk) or change.reload or change.adopted or not change.rows:
            continue
        keyless = change.columns and not change.primary_key
        if keyless and (behind is None or _reaches_beyond(change.end, behind)):
            return manifest.head
    return None


def _reaches_beyond(end: Position, position: Position) -> bool:
    """Whether rows up to `end` may lie behind a position."""
    if end.timestamp is None and end.id == position.id:
        return False  # with an id cursor, the time only says which files are loaded
    return end.compare(position) not in (-1, 0)
