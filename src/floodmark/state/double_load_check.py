"""Refuse changes that would load rows without a primary key twice.

Such rows are appended, so each may be read only once across all eligible chunks. Moving the
position back before one of these chunks would read its rows again, and duplicates could not be
detected. Resetting both stages is safe: no earlier chunk is eligible any more, and the first load
empties the target table.
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
    """Return an operator's change; UsageError if it would load rows without a key twice.

    A table that was moved to another name is refused first.
    """
    current.refuse_moved()
    eligible = current.redshift_state.eligible_from_epoch
    match change:
        case Set(position=position):
            again = _appended(log, table, ManifestId(eligible, 0), after=position)
        case Restore(earlier=earlier):
            since = ManifestId(earlier.head.epoch, earlier.head.sequence + 1)
            again = _appended(log, table, since)
        case Reset(stages=("extract",)):
            again = _appended(log, table, ManifestId(eligible, 0))
        case _:
            again = None
    if again is not None:
        raise UsageError(
            f"{table} has no primary key: the rows of chunk {again} and later would be read again"
            " and loaded twice",
            hint=f"run 'floodmark watermark reset -t {table}', then sync, to read the whole table"
            " again into an emptied target table",
        )
    return change


def _appended(
    log: ManifestLog, table: TableName, since: ManifestId, after: Position | None = None
) -> ManifestId | None:
    """Return the first chunk since a manifest that has keyless rows after a position."""
    for manifest in log.manifests(table, since=since):
        change = manifest.change
        if not isinstance(change, Chunk) or change.reload or change.adopted or not change.rows:
            continue
        keyless = change.columns and not change.primary_key
        if keyless and (after is None or _reaches_beyond(change.end, after)):
            return manifest.head
    return None


def _reaches_beyond(end: Position, position: Position) -> bool:
    """Return whether rows up to `end` may be after a position."""
    if end.timestamp is None and end.id == position.id:
        return False  # with an id cursor, the time only selects which files are loaded
    return end.compare(position) not in (-1, 0)
