"""The watermark store: the only code that writes watermarks."""

from collections.abc import Callable, Collection
from datetime import datetime
from functools import cached_property, wraps
from threading import Lock, RLock
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from msgspec import structs

from floodmark.errors import (
    CorruptDocument,
    ExitCode,
    FloodmarkError,
    LostRace,
    StorageError,
    WriteConflict,
    WrongClock,
)
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Change
from floodmark.model.notice import Notice
from floodmark.model.rules import check_transition
from floodmark.model.run import WorkStage
from floodmark.model.table import TableName
from floodmark.model.transitions import checkpoint, record
from floodmark.model.watermark import (
    BackupMetadata,
    Watermark,
    check_plausible,
    decode_watermark,
    empty_watermark,
    same_content,
)
from floodmark.state.compaction import is_due
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.recovery_records import RecoveryRecords
from floodmark.state.run import Run
from floodmark.state.watermark_copies import Copies
from floodmark.state.watermark_reader import Reading, WatermarkReader
from floodmark.storage.objects import ObjectStore

if TYPE_CHECKING:
    # Imported lazily: only writers need these.
    from floodmark.state.lease import Lease
    from floodmark.state.legacy_watermarks import Spellings

RACES = 20

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def _one_at_a_time(
    method: "Callable[Concatenate[WatermarkStore, TableName, Arguments], Answer]",
) -> "Callable[Concatenate[WatermarkStore, TableName, Arguments], Answer]":
    """Let the threads of a run, which extract and load a table, use its state one by one."""

    @wraps(method)
    def locked(
        self: "WatermarkStore",
        table: TableName,
        /,
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Answer:
        with self.locks.setdefault(table, RLock()):
            return method(self, table, *arguments, **options)

    return locked


class WatermarkStore:
    """Every table's watermark: recovered on read if necessary, and written by one method.

    Reads within a run are cached; its threads take turns. A write that conflicts with another
    writer's drops the cache and retries on fresh state.
    """

    def __init__(
        self, objects: ObjectStore, run: Run, *, known_tables: Collection[TableName] = ()
    ) -> None:
        self.objects = objects
        self._known_tables = known_tables
        self.log = ManifestLog(objects)
        self.copies = Copies(objects, run.clock, run.report)
        self.recoveries = RecoveryRecords(objects)
        self.reader = WatermarkReader(objects, self.log, self.copies, run.clock)
        self.run = run
        self._cache: dict[TableName, Reading] = {}
        self.locks: dict[TableName, RLock] = {}
        self._probed = False
        self._probing = Lock()

    def now(self) -> datetime:
        """Return the current time by the run's clock."""
        return self.run.clock()

    @_one_at_a_time
    def get(self, table: TableName, *, write_back: bool = True) -> Watermark | None:
        """Return a table's watermark; None if the table is unknown.

        A watermark that had to be recovered is saved, unless `write_back` is off.
        """
        reading = self._read(table, write_back=write_back)
        unsaved = reading.problem is not None or reading.saved is None
        if write_back and reading.watermark is not None and unsaved:
            return self.update(table)
        return reading.watermark

    def known(self, table: TableName) -> Watermark | None:
        """Return the watermark that this run last read or wrote, from the cache."""
        reading = self._cache.get(table)
        return reading.watermark if reading else None

    def current(self, table: TableName) -> Reading:
        """Return the state that the next commit or update starts from."""
        return self._cache.get(table) or self._read(table)

    def start_from(self, table: TableName, reading: Reading) -> None:
        """Let the next commit or update start from this state, without reading it again."""
        self._cache[table] = reading

    def takes_failure(self, table: TableName, error: FloodmarkError) -> bool:
        """Return whether to record an error in a table's watermark.

        Not if another run holds the table, if a clock is wrong, if the table was moved, or if only
        the configuration is wrong and the table was never synced: the lease document has it anyway.
        """
        if error.exit_code == ExitCode.BUSY or isinstance(error, WrongClock):
            return False
        known = self.known(table) or self.saved(table)
        if known is None or known.moved_to or known.moving_from:
            return known is None and error.exit_code == ExitCode.FAILED
        return True

    @_one_at_a_time
    def commit(
        self, table: TableName, decide: Callable[[Watermark], Change], *, races: int = 0
    ) -> Watermark:
        """Commit the change that `decide` returns for the current state, and save the watermark.

        If another run takes the manifest number first, call `decide` again with fresh state, up to
        `races` times; then raise LostRace.
        """
        for race in range(races + 1):
            reading = self.current(table)
            current = reading.watermark or self.run.empty(table)
            current.refuse_moved()
            manifest = record(current, decide(current), self.run.authorship())
            new = checkpoint(current, manifest)
            check_transition(current, new, [manifest])
            self._check_plausible(table, new)
            try:
                self.log.append(table, manifest)
            except WriteConflict:
                self._forget(table, race)
                continue
            self._cache[table] = structs.replace(
                reading,
                watermark=new,
                manifests=(*reading.manifests, manifest),
            )
            saved = self.update(table)
            self._compact(table, manifest.head)
            return saved
        raise LostRace(f"another run committed to {table} first", hint="run the command again")

    def _compact(self, table: TableName, head: ManifestId) -> None:
        """Compact a part of the log if that is due; a failure does not matter."""
        if not is_due(head):
            return
        try:
            self.log.compact(table, head)
        except FloodmarkError as error:
            message = f"the log of {table} is not compacted: {error.message}"
            self.run.report(Notice("debug", message, "compaction", str(table)))

    @_one_at_a_time
    def update(
        self, table: TableName, change: Callable[[Watermark], Watermark] = lambda same: same
    ) -> Watermark:
        """Read, apply a pure change, check it, write it conditionally, read it back, copy it.

        Nothing is written if nothing changed. After a conflict, retry on fresh state.
        """
        for race in range(RACES):
            reading = self.current(table)
            current = reading.watermark or self.run.empty(table)
            before = reading.saved or empty_watermark(table, current.session_id, current.created_at)
            new = change(current)
            if reading.saved and reading.problem is None and same_content(new, reading.saved):
                return reading.saved
            if reading.source != "manifests":
                check_transition(before, new, reading.manifests)
            try:
                saved = self._save(table, new, before.revision, reading.etag)
            except WriteConflict:
                self._forget(table, race)
                continue
            if reading.problem is not None:
                self.recoveries.note(table, reading, self.run)
            return saved
        raise LostRace(
            f"other runs changed the watermark of {table} {RACES} times in a row",
            hint="see which runs are active with 'floodmark doctor', then run the command again",
        )

    def saved(self, table: TableName) -> Watermark | None:
        """Return the watermark as saved, without reading the log; None if there is none."""
        primary = self.copies.read(table, lake_layout.primary(table), "primary")
        return primary.watermark if primary else None

    def take_over(self, table: TableName, watermark: Watermark) -> Watermark:
        """Replace a table's watermark with that of the table that was moved here."""
        primary = self.copies.read(table, lake_layout.primary(table), "primary")
        revision = primary.watermark.revision if primary and primary.watermark else 0
        return self._save(table, watermark, revision, primary.etag if primary else None)

    def lease(self, table: TableName, stage: WorkStage | None = None) -> "Lease":
        """Take the lease on a table, perhaps for a stage; LeaseHeld if another run has it.

        The first one in a lake checks that it enforces conditional writes.
        """
        from floodmark.state.lease import take_lease

        run = self.run
        self.check_conditional_writes()
        return take_lease(
            self.objects,
            table,
            session_id=run.session_id,
            owner=run.author,
            seconds=run.lease_seconds,
            clock=run.clock,
            report=run.report,
            stage=stage,
        )

    def check_conditional_writes(self) -> None:
        """Check, only once, that the lake enforces conditional writes."""
        from floodmark.state.conditional_writes import check_conditional_writes

        with self._probing:
            if not self._probed:
                check_conditional_writes(self.objects, self.run.clock, self.run.author)
                self._probed = True

    def _save(self, table: TableName, new: Watermark, revision: int, etag: str | None) -> Watermark:
        """Write the primary, read it back, write the copies. Nothing else writes a watermark."""
        now = self.run.clock()
        document = structs.replace(
            new,
            revision=revision + 1,
            updated_at=now,
            backup_metadata=BackupMetadata(saved_at=now, session_id=self.run.session_id),
        )
        self._check_plausible(table, document)
        data = seal(document)
        key = lake_layout.primary(table)
        if etag is None:
            etag = self.objects.put_if_absent(key, data)
        else:
            etag = self.objects.put_if_match(key, data, etag)
        saved = decode_watermark(data, table, name=key, now=now)
        self._read_back(table, data, saved)
        self.copies.save(table, data, self.run.session_id)
        self._cache[table] = Reading(watermark=saved, saved=saved, etag=etag, source=key)
        return saved

    def _check_plausible(self, table: TableName, new: Watermark) -> None:
        """Refuse to write a state that could not be read back."""
        check_plausible(new, name=f"the new state of {table}", now=self.run.clock())

    def _read_back(self, table: TableName, data: bytes, saved: Watermark) -> None:
        """Check that the store has what was written, or a later revision."""
        key = lake_layout.primary(table)
        found = self.objects.get(key).data
        if found == data:
            return
        try:
            now = self.run.clock()
            later = decode_watermark(found, table, name=key, now=now).revision > saved.revision
        except CorruptDocument:
            later = False
        if not later:
            raise StorageError(
                f"{self.objects} returned another watermark of {table} than was written",
                hint="check that nothing else writes below 'watermarks/'",
            )

    def _read(self, table: TableName, *, write_back: bool = True) -> Reading:
        reading = self.reader.read(table)
        if reading.watermark is None:
            reading = self._imported(table, reading, write_back=write_back)
        if write_back:
            self._cache[table] = reading
        return reading

    @cached_property
    def spellings(self) -> "Spellings":
        """The spellings that older systems may have used for the known tables."""
        from floodmark.state.legacy_watermarks import Spellings

        return Spellings(self._known_tables)

    def _imported(self, table: TableName, reading: Reading, *, write_back: bool) -> Reading:
        """Import an older system's watermark, if there is one."""
        from floodmark.state.legacy_watermarks import find_older

        now, report = self.run.clock(), self.run.report
        older = find_older(self.objects, table, self.spellings, now=now, report=report)
        if older is None:
            return reading
        empty = reading.watermark or self.run.empty(table)
        manifest = record(empty, older, self.run.authorship())
        if write_back:
            try:
                self.log.append(table, manifest)
            except WriteConflict:
                return self.reader.read(table)  # another run has just imported it
        return structs.replace(
            reading, watermark=checkpoint(empty, manifest), manifests=(manifest,)
        )

    def _forget(self, table: TableName, race: int) -> None:
        message = f"{table}: another writer committed first"
        self.run.report(Notice("debug", message, "conflict", str(table)))
        self._cache.pop(table, None)
        self.run.sleep(self.run.random.uniform(0, min(1.0, 0.01 * 2.0**race)))
