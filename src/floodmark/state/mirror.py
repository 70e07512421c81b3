"""Keep a second copy of the state up to date in the background.

Every write of state marks its table as due; a thread copies what is due (`mirror_copy`). A run
never waits for it, except for a limited time at its end. If the mirror cannot be reached, the
thread stops until the next round, and the run reports what is left.

What is due is kept in memory, so a run that dies forgets it. The next run that works on the table
compares the mirror's watermark with the lake's, and copies the rest.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from threading import Condition, Thread

import msgspec
from msgspec import Struct

from floodmark.errors import FloodmarkError, StateError, StorageError, WriteConflict
from floodmark.model import lake_layout
from floodmark.model.formatting import counted
from floodmark.model.log_state import ManifestId
from floodmark.model.notice import Notice, Report
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped
from floodmark.state.mirror_copy import copy_folder, copy_object, copy_table, get, join
from floodmark.storage.objects import ObjectStore, StoredObject

PAUSE_SECONDS = 30.0
"""How long to leave a mirror alone that failed."""

_RECORDS = {lake_layout.RUNS}


class MirrorState(Struct, frozen=True, kw_only=True):
    """How far the mirror is behind, as the last run left it; stored in the lake.

    `behind` has the tables that are not copied, and since when. `error` is why.
    """

    mirror: str
    at: datetime
    behind: dict[str, datetime] = {}
    error: str | None = None
    error_since: datetime | None = None

    @property
    def tables(self) -> list[str]:
        """Tables that are not copied completely; records of runs and the like are not counted."""
        return _tables_in(self.behind)

    @property
    def since(self) -> datetime | None:
        """Since when the mirror has been behind; None if it is complete."""
        return min(self.behind.values(), default=self.error_since)

    def __str__(self) -> str:
        if self.since is None:
            return f"{self.mirror}, complete at {stamped(self.at)}"
        what = f"{_named(self.behind)} behind since {stamped(self.since)}"
        return f"{self.mirror}, {what}" + (f": {self.error}" if self.error else "")


def read_mirror_state(lake: ObjectStore) -> MirrorState | None:
    """Read how far the mirror was behind; None if nothing is recorded."""
    return _decoded(get(lake, lake_layout.MIRRORED))


def _decoded(found: StoredObject | None) -> MirrorState | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(found.data, type=MirrorState) if found else None
    return None


class Mirror:
    """Copies state from the lake to the mirror in a thread. Thread-safe.

    `open_mirror` is called in the thread; an error there is an error of the mirror. What is due is
    a table, the key of an object, a folder, or `-` and a key to delete; each at most once, so the
    queue is never longer than the number of tables and a few more.
    """

    def __init__(
        self,
        lake: ObjectStore,
        open_mirror: Callable[[], ObjectStore],
        *,
        address: str,
        clock: Callable[[], datetime],
        wait_seconds: float = 10.0,
    ) -> None:
        self._lake = lake
        self._open = open_mirror
        self._address = address
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._mirror: ObjectStore | None = None
        self._joined = False
        self._changed = Condition()
        self._due: dict[TableName | str, datetime] = {}
        self._refused: dict[TableName | str, datetime] = {}
        self._copied: dict[TableName, ManifestId | None] = {}
        self._tables: set[str] = set()
        self._working: dict[TableName | str, datetime] = {}
        self._down_until = 0.0
        self._reported: set[str] = set()
        self._error: FloodmarkError | None = None
        self._thread: Thread | None = None

    def open(self) -> ObjectStore:
        """Open the mirror."""
        if self._mirror is None:
            self._mirror = self._open()
        return self._mirror

    def mark(self, *items: TableName | str) -> None:
        """Mark something as due: tables, keys, folders (with a slash at the end)."""
        with self._changed:
            for item in items:
                self._due.setdefault(item, self._refused.pop(item, self._clock()))
            self._wake()

    def begin_round(self) -> None:
        """Try again what failed in the round before."""
        with self._changed:
            self._down_until, self._error = 0.0, None
            self._reported.clear()
            due = {**self._refused, **self._due}
            self._refused, self._due = {}, due
            self._wake()

    def _wake(self) -> None:
        """Let the thread look at what is due, and start one if the last has ended."""
        if self._due and self._thread is None:
            self._thread = Thread(target=self._work, name="mirror", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def drain(self, report: Report) -> None:
        """Wait until everything is copied, the mirror fails, or time is up; report what is left."""
        deadline = time.monotonic() + self._wait_seconds
        with self._changed:
            while (self._due or self._working) and not self._is_down:
                left = deadline - time.monotonic()
                if left <= 0 or self._thread is None or not self._thread.is_alive():
                    break
                self._changed.wait(left)
            left_over = self._working | self._refused | self._due
            behind = {str(item): since for item, since in left_over.items()}
            error, touched = self._error, set(self._tables)
        # One line a round, even if records follow that have to wait as well.
        if behind and not (self._reported and behind.keys() <= self._reported | _RECORDS):
            self._reported |= behind.keys()
            reason = error.message if error else "it is slow"
            message = f"mirror {self._address} is behind for {_named(behind)}: {reason}"
            hint = (error.hint if error else None) or "the next sync copies the rest"
            report(Notice("warning", message, "mirror", hint=hint))
        if behind or touched:
            self._record(behind, touched, error.message if error else None, report)
            with self._changed:
                self._tables -= touched

    @property
    def _is_down(self) -> bool:
        return time.monotonic() < self._down_until

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._is_down or not self._due:
                    notified = self._changed.wait(PAUSE_SECONDS)
                    if not notified and not self._due:
                        self._thread = None  # the next mark starts another
                        return
                item = next(iter(self._due))
                since = self._due.pop(item)
                self._working[item] = since
                self._tables.add(str(item))
            error: FloodmarkError | None = None
            try:
                self._copy(item)
            except FloodmarkError as failure:
                error = failure
            except Exception as failure:  # noqa: BLE001 - a run must not end for its mirror
                error = FloodmarkError(f"unexpected {type(failure).__name__}: {failure}")
            with self._changed:
                self._working.clear()
                if error is not None:
                    self._error = error
                    # What contradicts itself affects one table; anything else affects all.
                    if not isinstance(error, StateError) or not self._joined:
                        self._down_until = time.monotonic() + PAUSE_SECONDS
                        self._due.setdefault(item, since)
                    else:
                        self._refused.setdefault(item, since)
                self._changed.notify_all()

    def _copy(self, item: TableName | str) -> None:
        mirror = self.open()
        if not self._joined:
            join(self._lake, mirror, self._clock)
            self._joined = True
        if isinstance(item, TableName):
            known = self._copied.pop(item, None)
            self._copied[item] = copy_table(self._lake, mirror, item, known)
        elif item.startswith("-"):
            mirror.delete(item[1:])
        elif item.endswith("/"):
            copy_folder(self._lake, mirror, item)
        else:
            copy_object(self._lake, mirror, item)

    def _record(
        self, behind: dict[str, datetime], touched: set[str], error: str | None, report: Report
    ) -> None:
        """Save how far the mirror is behind; keep what other runs recorded of other tables."""
        now = self._clock()
        for _ in range(5):
            found = get(self._lake, lake_layout.MIRRORED)
            known = _decoded(found)
            earlier = known.behind if known and known.mirror == self._address else {}
            kept = {name: since for name, since in earlier.items() if name not in touched}
            since = {
                name: min(moment, earlier.get(name, moment)) for name, moment in behind.items()
            }
            failing = known.error_since if known and known.error else None
            state = MirrorState(
                mirror=self._address,
                at=now,
                behind=kept | since,
                error=error or (known.error if known and kept else None),
                error_since=(failing or now) if error else (failing if kept else None),
            )
            data = msgspec.json.encode(state)
            try:
                if found is None:
                    self._lake.put_if_absent(lake_layout.MIRRORED, data)
                else:
                    self._lake.put_if_match(lake_layout.MIRRORED, data, found.etag)
            except WriteConflict:
                continue
            except StorageError as failure:
                report(Notice("debug", f"state of the mirror not recorded: {failure.message}"))
            return


def _tables_in(names: Iterable[str]) -> list[str]:
    """Return the names of tables; what else is due is a key or a folder below `watermarks/`."""
    return sorted(name for name in names if not name.removeprefix("-").startswith("watermarks/"))


def _named(behind: Iterable[str]) -> str:
    tables = _tables_in(behind)
    if not tables:
        return "records of runs"
    return tables[0] if len(tables) == 1 else counted(len(tables), "table")
