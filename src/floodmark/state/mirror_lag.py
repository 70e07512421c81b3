"""Measure how far the mirror is behind the lake, by comparing both now."""

from datetime import datetime

from msgspec import Struct

from floodmark.errors import MirrorConflict
from floodmark.model import lake_layout
from floodmark.model.formatting import counted
from floodmark.model.log_state import ManifestId
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.mirror_copy import (
    check_same,
    get,
    read_identity,
    read_mirror_identity,
    stored_watermark,
)
from floodmark.storage.objects import ObjectStore


class TableLag(Struct, frozen=True, kw_only=True):
    """What the mirror lacks of a table: this many manifests, since this time.

    With none, only the watermark differs: its load progress, or its status.
    """

    table_name: str
    manifests: int
    since: datetime

    def __str__(self) -> str:
        what = counted(self.manifests, "manifest") if self.manifests else "the newest watermark"
        return f"{what} behind since {stamped(self.since.replace(microsecond=0))}"


def measure_lag(lake: ObjectStore, mirror: ObjectStore, table: TableName) -> TableLag | None:
    """Return what the mirror lacks of a table; None if it has everything."""
    key = lake_layout.primary(table)
    theirs, ours = get(mirror, key), get(lake, key)
    if ours is None or (theirs is not None and theirs.data == ours.data):
        return None
    current = stored_watermark(ours.data, table)
    known = stored_watermark(theirs.data, table).mysql_state.last_manifest if theirs else None
    since = ManifestId.parse(known) if known else None
    there = set(ManifestLog(mirror).heads(table, since=since))
    missing = [h for h in ManifestLog(lake).heads(table, since=since) if h not in there]
    first = ManifestLog(lake).read(table, missing[0]).created_at if missing else current.updated_at
    return TableLag(table_name=str(table), manifests=len(missing), since=first)


def check_mirror_of(lake: ObjectStore, mirror: ObjectStore) -> bool:
    """Return whether a place is the mirror of a lake already; MirrorConflict if of another."""
    theirs, ours = read_mirror_identity(mirror), read_identity(lake)
    if theirs is None:
        return False
    if ours is None:
        raise MirrorConflict(
            f"{mirror} is the mirror of a lake that was at {theirs.lake}; {lake} is not known to be"
            " that one",
            hint="if the lake was lost: 'floodmark recover --from-mirror'",
        )
    check_same(lake, mirror, ours, theirs)
    return True
