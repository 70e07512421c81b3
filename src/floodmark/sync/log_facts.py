"""By which cursor a table was read so far, and by which key it was loaded."""

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from floodmark.model.cursor import CursorColumn
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Reset
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.mysql.keys import KnownKey, free_choice
from floodmark.state.manifest_log import ManifestLog


class Known(Struct, frozen=True, kw_only=True):
    """What a table keeps as long as it can: the cursor of its position, and the key of its rows."""

    cursor: Sequence[CursorColumn] | None = None
    key: KnownKey = free_choice


def known_of(log: ManifestLog, table: TableName, watermark: Watermark | None) -> Known:
    """What is known of a table; the log is read only if the key is asked for."""
    return Known(
        cursor=watermark.mysql_state.cursor if watermark else None,
        key=partial(find_known_key, log, table, watermark),
    )


def find_known_key(
    log: ManifestLog, table: TableName, watermark: Watermark | None
) -> tuple[str, ...] | None:
    """The key of the last chunk; `()` if its rows were appended, None if any key may be chosen.

    What was appended is read again after a reset, and a reload replaces it.
    """
    if watermark is None or watermark.mysql_state.last_manifest is None:
        return None
    change = log.read(table, ManifestId.parse(watermark.mysql_state.last_manifest)).change
    if isinstance(change, Chunk):  # as nearly always
        return change.primary_key or (None if change.reload else ())
    was_reset = False
    for manifest in log.manifests(table, newest_first=True):
        change = manifest.change
        if isinstance(change, Chunk):
            return change.primary_key or (None if change.reload or was_reset else ())
        was_reset |= isinstance(change, Reset) and "extract" in change.stages
    return None
