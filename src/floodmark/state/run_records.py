"""Read, write and prune the records of runs.

A record has one writer, its own run. What a crash leaves:

    before the first write           nothing; nothing was committed either, or only since a minute
    while it is running              `running`, which a reader shows as `did not finish` once the
                                     process is gone, or once the record is older than `SILENCE`
    after the last table             the same; tables and watermarks have everything
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import msgspec
from msgspec import structs

from floodmark.errors import ObjectNotFound, UsageError
from floodmark.model import lake_layout
from floodmark.model.run import session_day
from floodmark.model.run_record import RunRecord
from floodmark.state.process_identity import is_dead
from floodmark.storage.objects import ObjectStore

BEAT = timedelta(minutes=1)
"""How often a running run writes its record."""
SILENCE = 5 * BEAT
"""A running run whose record is older than this did not finish."""

_AT_ONCE = 16


class RunRecords:
    """The records of all runs."""

    def __init__(self, objects: ObjectStore, clock: Callable[[], datetime]) -> None:
        self._objects = objects
        self._clock = clock

    def save(self, record: RunRecord) -> None:
        """Write a record."""
        self._objects.put(lake_layout.run_record(record.run_id), msgspec.json.encode(record))

    def newest(
        self, *, since: datetime | None = None, known: Mapping[str, RunRecord] | None = None
    ) -> Iterator[RunRecord]:
        """Yield the readable records, newest first; with `since`, of runs that began after it.

        Records in `known`, by run id, of runs that have ended are not read again.
        """
        ended = {
            lake_layout.run_record(run_id): record
            for run_id, record in (known or {}).items()
            if record.ended_at is not None
        }
        oldest = f"{since:%Y%m%d_%H%M%S}" if since else ""
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            for day in self._days(newest_first=True):
                if day < oldest[:8]:
                    return
                listed = self._objects.list_objects(lake_layout.runs_of_day(day))
                keys = sorted((info.key for info in listed), reverse=True)
                for start in range(0, len(keys), _AT_ONCE):
                    some = keys[start : start + _AT_ONCE]
                    new = pool.map(self._read, [key for key in some if key not in ended])
                    old = [ended[key] for key in some if key in ended]
                    found = [*old, *(record for record in new if record is not None)]
                    # Ids have whole seconds.
                    for record in sorted(found, key=lambda r: r.started_at, reverse=True):
                        if record.run_id < oldest:
                            return
                        yield record

    def get(self, run_id: str) -> RunRecord:
        """Return the record of a run, given its id or the beginning of it; else UsageError."""
        if len(run_id) < len("YYYYMMDD") or not run_id.replace("_", "").isalnum():
            raise UsageError(f"{run_id!r} is not the ID of a run", hint=_HINT)
        folder = lake_layout.runs_of_day(session_day(run_id))
        keys = [info.key for info in self._objects.list_objects(folder)]
        found = [key for key in keys if key.removeprefix(folder).startswith(run_id)]
        if len(found) > 1:
            raise UsageError(f"{run_id!r} matches {len(found)} runs", hint=_HINT)
        record = self._read(found[0]) if found else None
        if record is None:
            raise UsageError(f"no readable record of run {run_id!r}", hint=_HINT)
        return record

    def prune(self, *, keep_days: int) -> int:
        """Remove the records of days before the last `keep_days`, and return their number."""
        oldest = f"{self._clock() - timedelta(days=keep_days):%Y%m%d}"
        removed = 0
        for day in self._days():
            if day >= oldest:
                break
            for info in list(self._objects.list_objects(lake_layout.runs_of_day(day))):
                self._objects.delete(info.key)
                removed += 1
        return removed

    def _days(self, *, newest_first: bool = False) -> list[str]:
        days = [day for day in self._objects.list_folders(lake_layout.RUNS) if day.isdecimal()]
        return sorted(days, reverse=newest_first)

    def _read(self, key: str) -> RunRecord | None:
        """Read a record; None if it is unreadable or was just pruned."""
        try:
            record = msgspec.json.decode(self._objects.get(key).data, type=RunRecord)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ObjectNotFound):
            return None
        return as_seen(record, self._clock())


_HINT = "'floodmark runs' lists the IDs"


def as_seen(record: RunRecord, now: datetime) -> RunRecord:
    """Return the record with the status that it has now: a running one may have died."""
    if record.status == "running" and (now - record.seen_at > SILENCE or is_dead(record.process)):
        return structs.replace(record, status="did not finish")
    return record
