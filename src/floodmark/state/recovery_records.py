"""Records of recoveries: when, from which copy, why, and how long it took."""

from datetime import datetime

import msgspec

from floodmark.errors import ObjectNotFound
from floodmark.model import lake_layout
from floodmark.model.table import TableName
from floodmark.storage.objects import ObjectStore


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """A watermark was damaged, stale or missing, and was recovered."""

    table_name: str
    at: datetime
    reason: str
    source: str
    seconds: float
    session_id: str


class RecoveryRecords:
    """The records of all recoveries."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def add(self, table: TableName, recovery: Recovery) -> None:
        """Save the record of a recovery."""
        key = lake_layout.recovery(table, recovery.at, recovery.session_id)
        self._objects.put(key, msgspec.json.encode(recovery))

    def of(self, table: TableName) -> list[Recovery]:
        """Return a table's recoveries, oldest first, without unreadable records."""
        found = []
        for info in self._objects.list_objects(lake_layout.recoveries(table)):
            try:
                found.append(msgspec.json.decode(self._objects.get(info.key).data, type=Recovery))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ObjectNotFound):
                continue
        return found
