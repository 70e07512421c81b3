"""The redundant copies of a watermark: one per day, one per session."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from threading import Lock
from typing import Literal

from msgspec import Struct

from floodmark.errors import CorruptDocument, ObjectNotFound, StorageError
from floodmark.model import lake_layout
from floodmark.model.notice import Notice, Report
from floodmark.model.run import session_day
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark, decode_watermark
from floodmark.storage.objects import ObjectStore


class Copy(Struct, frozen=True, kw_only=True):
    """A copy as it was read, or the reason why it cannot be used."""

    place: Literal["primary", "daily", "session"]
    key: str
    etag: str | None = None
    watermark: Watermark | None = None
    problem: str | None = None


_TOGETHER = 8


def _revision(copy: Copy) -> int:
    return copy.watermark.revision if copy.watermark else -1


class Copies:
    """The copies of every table's watermark."""

    def __init__(self, objects: ObjectStore, clock: Callable[[], datetime], report: Report) -> None:
        self._objects = objects
        self._clock = clock
        self._report = report
        self._newest: dict[str, dict[str, str]] = {}
        self._listing = Lock()

    def read(
        self, table: TableName, key: str, place: Literal["primary", "daily", "session"]
    ) -> Copy | None:
        """Read and validate one copy; None if there is none."""
        try:
            found = self._objects.get(key)
        except ObjectNotFound:
            return None
        try:
            watermark = decode_watermark(found.data, table, name=key, now=self._clock())
        except CorruptDocument as error:
            return Copy(place=place, key=key, etag=found.etag, problem=error.message)
        return Copy(place=place, key=key, etag=found.etag, watermark=watermark)

    def save(self, table: TableName, data: bytes, session_id: str) -> None:
        """Write both copies; a failure is reported, not raised."""
        day = f"{self._clock():%Y%m%d}"
        for key in (lake_layout.daily(table, day), lake_layout.session(table, session_id)):
            try:
                self._objects.put(key, data)
            except StorageError as error:
                message = f"backup copy not saved: {error.message}"
                self._report(Notice("warning", message, table=str(table)))

    def daily_keys(self, table: TableName) -> list[str]:
        """List the keys of a table's daily copies, newest first."""
        folder = f"{lake_layout.DAILY}{table.key.partition('/')[0]}/"
        start = f"{lake_layout.DAILY}{table.key}_"
        keys = []
        for info in self._objects.list_objects(folder, after=start):
            if not info.key.startswith(start):
                break
            if lake_layout.day_of_daily(info.key, table):
                keys.append(info.key)
        return keys[::-1]

    def newest_daily_key(self, table: TableName) -> str | None:
        """Return the key of a table's newest daily copy as of the first such call.

        One listing serves all tables of a scope. Later copies are of writers who wrote the primary
        first, so it is newer than the copy found here.
        """
        scope = table.key.partition("/")[0]
        with self._listing:
            if scope not in self._newest:
                keys = (
                    info.key for info in self._objects.list_objects(f"{lake_layout.DAILY}{scope}/")
                )
                self._newest[scope] = {key.rpartition("_")[0]: key for key in keys}
        key = self._newest[scope].get(f"{lake_layout.DAILY}{table.key}")
        return key if key and lake_layout.day_of_daily(key, table) else None

    def daily(self, table: TableName) -> Iterator[Copy]:
        """Read a table's daily copies, newest first."""
        for key in self.daily_keys(table):
            copy = self.read(table, key, "daily")
            if copy is not None:
                yield copy

    def sessions(self, table: TableName, *, newer_than: str = "") -> Iterator[Copy]:
        """Read a table's session copies, newest first, that are newer than a session.

        Sessions that began in the same second, or last long, may have written in any order. So
        their copies are read a few at a time, and the revision decides.
        """
        newest_first = reversed(self._objects.list_folders(lake_layout.SESSIONS))
        session_ids = [session_id for session_id in newest_first if session_id > newer_than]
        for start in range(0, len(session_ids), _TOGETHER):
            keys = [lake_layout.session(table, one) for one in session_ids[start:][:_TOGETHER]]
            copies = [self.read(table, key, "session") for key in keys]
            yield from sorted(filter(None, copies), key=_revision, reverse=True)

    def prune(self, *, keep_days: int, dry_run: bool = False) -> list[str]:
        """Remove copies older than `keep_days`, but never a table's newest one."""
        oldest_kept = f"{self._clock() - timedelta(days=keep_days):%Y%m%d}"
        return [
            *self._prune_daily(oldest_kept, dry_run=dry_run),
            *self._prune_sessions(oldest_kept, dry_run=dry_run),
        ]

    def _prune_daily(self, oldest_kept: str, *, dry_run: bool) -> list[str]:
        keys = [info.key for info in self._objects.list_objects(lake_layout.DAILY)]
        newest = {key.rpartition("_")[0]: key for key in keys}
        old = [
            key
            for key in keys
            if key.rpartition("_")[2].removesuffix(".json") < oldest_kept
            and newest[key.rpartition("_")[0]] != key
        ]
        return self._remove(old, dry_run=dry_run)

    def _prune_sessions(self, oldest_kept: str, *, dry_run: bool) -> list[str]:
        newest: dict[str, str] = {}
        old: list[str] = []
        for info in self._objects.list_objects(lake_layout.SESSIONS):
            session_id, _, rest = info.key.removeprefix(lake_layout.SESSIONS).partition("/")
            newest[rest] = info.key
            if session_day(session_id) < oldest_kept:
                old.append(info.key)
        kept = set(newest.values())
        return self._remove([key for key in old if key not in kept], dry_run=dry_run)

    def _remove(self, keys: list[str], *, dry_run: bool) -> list[str]:
        if not dry_run:
            for key in keys:
                self._objects.delete(key)
        return keys
