"""Records of recoveries: when, from which copy, why, and how long it took."""

from datetime import datetime

import msgspec

from floodmark.errors import ObjectNotFound, StorageError
from floodmark.model import lake_layout
from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.state.run import Run
from floodmark.state.watermark_reader import Reading
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

    def note(self, table: TableName, reading: Reading, run: Run) -> None:
        """Report that a run has recovered a watermark, and record it; warn if that fails."""
        now = run.clock()
        recovery = Recovery(
            table_name=str(table),
            at=now,
            reason=reading.problem or "",
            source=reading.source,
            seconds=(now - (reading.began or now)).total_seconds(),
            session_id=run.session_id,
        )
        message = f"{recovery.reason}; recovered from {recovery.source}"
        run.report(Notice("warning", message, "recovery", str(table)))
        try:
            self.add(table, recovery)
        except StorageError as error:
            failure = f"recovery not recorded: {error.message}"
            run.report(Notice("warning", failure, table=str(table)))

    def of(self, table: TableName) -> list[Recovery]:
        """Return a table's recoveries, oldest first, without unreadable records."""
        found = []
        for info in self._objects.list_objects(lake_layout.recoveries(table)):
            try:
                found.append(msgspec.json.decode(self._objects.get(info.key).data, type=Recovery))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ObjectNotFound):
                continue
        return found
