"""Keep a second copy of the state up to date in the background.

Every write of state marks its table as due; threads copy what is due (`mirror_copy`). A run never
waits for them, except for a limited time in all. If the mirror cannot be reached, the threads stop
until the next round, and the run reports what is left.

What is due is kept in memory, so a run that dies forgets it. So tables that a run only reads are
compared with the mirror, after everything that is due, in random order: what there is no time for
is not checked in this run, and sooner or later in another one.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from random import randrange
from threading import Condition, Lock, Thread

import msgspec
from msgspec import Struct

from floodmark.errors import FloodmarkError, StateError, StorageError, WriteConflict
from floodmark.model import lake_layout
from floodmark.model.formatting import counted
from floodmark.model.log_state import ManifestId
from floodmark.model.notice import Notice, Report
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped
from floodmark.state.mirror_copy import (
    copy_folder,
    copy_object,
    copy_table,
    get,
    is_copied,
    join,
)
from floodmark.storage.objects import ObjectStore, StoredObject

PAUSE_SECONDS = 30.0
"""How long to leave a mirror alone that failed."""

THREADS = 8
"""How many tables are copied at once."""


class MirrorState(Struct, frozen=True, kw_only=True):
    """How far the mirror is behind, as the last run left it; stored in the lake.

    `behind` has what is not copied, and since when. `error` is why. `unchecked` counts the tables
    that the last run read, but had no time to compare.
    """

    mirror: str
    at: datetime
    behind: dict[str, datetime] = {}
    unchecked: int = 0
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
        left = f", {counted(self.unchecked, 'table')} not checked" if self.unchecked else ""
        if self.since is None:
            return f"{self.mirror}, complete at {stamped(self.at)}{left}"
        state = f"{_named(self.behind)} behind" if self.behind else "failing"
        error = f": {self.error}" if self.error else ""
        return f"{self.mirror}, {state} since {stamped(self.since)}{left}{error}"


def read_mirror_state(lake: ObjectStore) -> MirrorState | None:
    """Read how far the mirror was behind; None if nothing is recorded."""
    return _decoded(get(lake, lake_layout.MIRRORED))


def _decoded(found: StoredObject | None) -> MirrorState | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(found.data, type=MirrorState) if found else None
    return None


class Mirror:
    """Copies state from the lake to the mirror in threads. Thread-safe.

    `open_mirror` is called in a thread; an error there is an error of the mirror. What is due is a
    table, the key of an object, a folder, or `-` and a key to delete; each at most once.
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
        self._wait_seconds = self._left_seconds = wait_seconds
        self._mirror: ObjectStore | None = None
        self._opening = Lock()
        self._joined = False
        self._joining = Lock()
        self._changed = Condition()
        self._due: dict[TableName | str, datetime] = {}
        self._seen: list[TableName] = []
        self._refused: dict[TableName | str, datetime] = {}
        self._copied: dict[TableName, ManifestId | None] = {}
        self._done: set[str] = set()
        self._working: dict[TableName | str, datetime | None] = {}
        self._earlier: dict[str, datetime] | None = None
        self._is_new = False
        self._down_until = 0.0
        self._reported: set[str] | None = None
        self._error: FloodmarkError | None = None
        self._threads = 0

    def open(self) -> ObjectStore:
        """Open the mirror."""
        with self._opening:
            if self._mirror is None:
                self._mirror = self._open()
            return self._mirror

    def mark(self, *items: TableName | str) -> None:
        """Mark something as due: tables, keys, folders (with a slash at the end)."""
        with self._changed:
            for item in items:
                self._due.setdefault(item, self._refused.pop(item, self._clock()))
                if isinstance(item, str) and item.startswith("-"):
                    self._due.pop(item[1:], None)
            self._wake()

    def check(self, *tables: TableName) -> None:
        """Compare tables that were read, once everything that is due is copied."""
        with self._changed:
            self._add_seen(tables)
            self._wake()

    def begin_round(self) -> None:
        """Try again what failed in the round before."""
        with self._changed:
            self._down_until, self._error = 0.0, None
            self._left_seconds = self._wait_seconds
            self._reported = None
            due = {**self._refused, **self._due}
            self._refused, self._due = {}, due
            self._wake()

    def _wake(self) -> None:
        """Let the threads look at what is due, and start more of them if it is much."""
        most = min(THREADS, len(self._due) + len(self._seen))
        while self._threads < most:
            self._threads += 1
            Thread(target=self._work, name="mirror", daemon=True).start()
        self._changed.notify_all()

    def drain(self, report: Report) -> None:
        """Wait until everything is copied, the mirror fails, or time is up; report what is left.

        A round has `wait_seconds` for all calls together, unless everything is copied.
        """
        began = time.monotonic()
        with self._changed:
            while (self._due or self._seen or self._working) and not self._is_down:
                left = began + self._left_seconds - time.monotonic()
                if left <= 0 or not self._threads:
                    break
                self._changed.wait(left)
            working = {item: since for item, since in self._working.items() if since is not None}
            behind = {
                str(item): since for item, since in (working | self._refused | self._due).items()
            }
            unchecked = len(self._seen) + len(self._working) - len(working)
            error, done = self._error, set(self._done)
            self._left_seconds -= time.monotonic() - began
            if not (behind or unchecked):
                self._left_seconds = self._wait_seconds
        # One line a round, even if records follow that have to wait as well.
        known, tables = self._reported, set(_tables_in(behind))
        if (behind or error) and (known is None or tables - known):
            self._reported = tables | (known or set())
            state = f"behind for {_named(behind)}" if behind else "not compared with the lake"
            reason = error.message if error else "it is slow"
            message = f"mirror {self._address} is {state}: {reason}"
            hint = (error.hint if error else None) or "the next sync copies the rest"
            report(Notice("warning", message, "mirror", hint=hint))
        if behind or done or error:
            self._record(behind, done, unchecked, error.message if error else None, report)
            with self._changed:
                self._done -= done

    @property
    def _is_down(self) -> bool:
        return time.monotonic() < self._down_until

    def _work(self) -> None:
        try:
            self._read_earlier()
            while (chosen := self._choose()) is not None:
                self._finish(chosen[0], self._try(*chosen))
        finally:
            with self._changed:
                self._threads -= 1
                self._changed.notify_all()

    def _read_earlier(self) -> None:
        """Read what earlier runs left behind: it is due, and everything if the mirror is new."""
        with self._changed:
            if self._earlier is not None:
                return
            known = None
            with suppress(FloodmarkError):
                known = read_mirror_state(self._lake)
            self._is_new = known is None or known.mirror != self._address
            self._earlier = known.behind if known and not self._is_new else {}
            if self._is_new:
                self._due.setdefault(lake_layout.RUNS, self._clock())
            for name in self._earlier.keys() - set(_tables_in(self._earlier)):
                self._due.setdefault(name, self._earlier[name])
            seen, self._seen = self._seen, []
            self._add_seen(seen)

    def _add_seen(self, tables: Iterable[TableName]) -> None:
        """Add tables to compare; those that the mirror is known to lack are due."""
        for table in tables:
            since = (self._earlier or {}).get(str(table))
            if since is not None or self._is_new:
                self._due.setdefault(table, since or self._clock())
            else:
                place = randrange(len(self._seen) + 1)  # noqa: S311
                self._seen.insert(place, table)

    def _choose(self) -> tuple[TableName | str, datetime | None] | None:
        """Wait for something to do, and return it; without a time, it is only to be compared."""
        with self._changed:
            while True:
                if not self._is_down:
                    for item, since in self._due.items():
                        # What is deleted may be on its way there.
                        if item not in self._working and str(item)[1:] not in self._working:
                            del self._due[item]
                            self._working[item] = since
                            return item, since
                    while self._seen:
                        table = self._seen.pop()
                        if table not in self._working:
                            self._working[table] = None
                            return table, None
                if not self._changed.wait(PAUSE_SECONDS) and not (self._due or self._seen):
                    return None  # the next mark starts another

    def _try(self, item: TableName | str, since: datetime | None) -> FloodmarkError | None:
        try:
            mirror = self.open()
            with self._joining:
                if not self._joined:
                    join(self._lake, mirror, self._clock)
                    self._joined = True
            if since is None:
                assert isinstance(item, TableName)
                if is_copied(self._lake, mirror, item):
                    return None
                with self._changed:
                    self._working[item] = self._clock()  # it is behind
            self._copy(mirror, item)
        except FloodmarkError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a run must not end for its mirror
            return FloodmarkError(f"unexpected {type(error).__name__}: {error}")
        return None

    def _finish(self, item: TableName | str, error: FloodmarkError | None) -> None:
        with self._changed:
            since = self._working.pop(item)
            if error is None:
                self._done.add(str(item))
                if not (self._is_down or self._refused):
                    self._error = None
            else:
                self._error = error
                # What contradicts itself affects one table; anything else affects all.
                is_down = not isinstance(error, StateError) or not self._joined
                if is_down:
                    self._down_until = time.monotonic() + PAUSE_SECONDS
                if not is_down:
                    self._refused.setdefault(item, since or self._clock())
                elif since is not None:
                    self._due.setdefault(item, since)
                elif isinstance(item, TableName):
                    self._seen.append(item)
            self._changed.notify_all()

    def _copy(self, mirror: ObjectStore, item: TableName | str) -> None:
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
        self,
        behind: dict[str, datetime],
        done: set[str],
        unchecked: int,
        error: str | None,
        report: Report,
    ) -> None:
        """Save how far the mirror is behind; keep what other runs recorded of other tables."""
        now = self._clock()
        for _ in range(5):
            found = get(self._lake, lake_layout.MIRRORED)
            known = _decoded(found)
            earlier = known.behind if known and known.mirror == self._address else {}
            kept = {name: since for name, since in earlier.items() if name not in done}
            since = {
                name: min(moment, earlier.get(name, moment)) for name, moment in behind.items()
            }
            failing = known.error_since if known and known.error else None
            state = MirrorState(
                mirror=self._address,
                at=now,
                behind=kept | since,
                unchecked=unchecked,
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
