"""The watermark store: the only code that writes watermarks."""

import time
from collections.abc import Callable, Collection
from datetime import datetime
from functools import cached_property, wraps
from random import Random
from threading import Lock, RLock
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from msgspec import Struct, structs

from floodmark.errors import (
    CorruptDocument,
    CorruptLog,
    ExitCode,
    FloodmarkError,
    FutureState,
    LostRace,
    StateLost,
    StorageError,
    WriteConflict,
    WrongClock,
)
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal
from floodmark.model.formatting import counted
from floodmark.model.log_state import ManifestId, MysqlState
from floodmark.model.manifest import Change
from floodmark.model.notice import Notice, Report
from floodmark.model.rules import check_transition
from floodmark.model.run import WorkStage
from floodmark.model.table import TableName
from floodmark.model.timestamps import LAST_MOMENT
from floodmark.model.transitions import (
    Authorship,
    after,
    checkpoint,
    record,
)
from floodmark.model.watermark import (
    BackupMetadata,
    RedshiftState,
    VerifiedState,
    Watermark,
    check_plausible,
    decode_watermark,
    empty_watermark,
    not_after,
    same_content,
)
from floodmark.state.compaction import is_due
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.recovery_records import Recovery, RecoveryRecords
from floodmark.state.watermark_copies import Copies
from floodmark.state.watermark_reader import Reading, WatermarkReader
from floodmark.storage.objects import ObjectStore

if TYPE_CHECKING:
    # Imported lazily: only writers need these.
    from floodmark.state.lease import Lease, LeaseDocument
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


class Run(Struct, frozen=True, kw_only=True):
    """The run that uses a store: its identity, clock and notices."""

    session_id: str
    author: str
    clock: Callable[[], datetime]
    report: Report
    random: Random
    lease_seconds: float = 60.0
    sleep: Callable[[float], None] = time.sleep


class Look(Struct, frozen=True, kw_only=True):
    """A table's state, read without its lease, which was free right before."""

    watermark: Watermark
    lease: "LeaseDocument"
    etag: str
    reading: Reading


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
        self._reader = WatermarkReader(objects, self.log, self.copies, run.clock)
        self._run = run
        self._cache: dict[TableName, Reading] = {}
        self.locks: dict[TableName, RLock] = {}
        self._probed = False
        self._probing = Lock()

    def now(self) -> datetime:
        """Return the current time by the run's clock."""
        return self._run.clock()

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
            reading = self._current(table)
            current = self._or_empty(table, reading)
            current.refuse_moved()
            manifest = record(current, decide(current), self._authorship())
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
            self._run.report(Notice("debug", message, "compaction", str(table)))

    @_one_at_a_time
    def update(
        self, table: TableName, change: Callable[[Watermark], Watermark] = lambda same: same
    ) -> Watermark:
        """Read, apply a pure change, check it, write it conditionally, read it back, copy it.

        Nothing is written if nothing changed. After a conflict, retry on fresh state.
        """
        for race in range(RACES):
            reading = self._current(table)
            current = self._or_empty(table, reading)
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
                self._note_recovery(table, reading)
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

    def begin_again(self, table: TableName) -> None:
        """Start over if the state cannot be read: as a new table, or after a loss in a new epoch.

        Resets count from 1; minutes since 1970 are far beyond any number of them. State that is
        only in the future is kept, with its times set to now.
        """
        try:
            self._cache[table] = self._reader.read(table)
        except FutureState:
            self._cache[table] = self._read_from_future(table)
        except (StateLost, CorruptLog):
            left = sum(1 for _ in self.log.heads(table))
            if left:
                message = f"{table}: abandoned a broken log of {counted(left, 'manifest')}"
                self._run.report(Notice("warning", message, table=str(table)))
            now = self._run.clock()
            epoch = int(now.timestamp()) // 60
            fresh = structs.replace(
                empty_watermark(table, self._run.session_id, now),
                epoch=epoch,
                mysql_state=MysqlState(counted_from_epoch=epoch),
                redshift_state=RedshiftState(
                    loaded_epoch=epoch, eligible_from_epoch=epoch, load_epoch=epoch
                ),
            )
            primary = self.copies.read(table, lake_layout.primary(table), "primary")
            etag = primary.etag if primary else None
            self._cache[table] = Reading(watermark=fresh, etag=etag, source="manifests")

    def begin_epoch(self, table: TableName, epoch: int) -> None:
        """Continue a table in a later epoch, in which no earlier manifest is loaded.

        The next commit opens it; until then nothing changes.
        """
        reading = self._current(table)
        current = self._or_empty(table, reading)
        state = structs.replace(current.mysql_state, last_sequence=0, last_manifest=None)
        load = RedshiftState(loaded_epoch=epoch, eligible_from_epoch=epoch, load_epoch=epoch)
        watermark = structs.replace(
            current,
            epoch=epoch,
            mysql_state=state,
            redshift_state=load,
            verified_state=VerifiedState(),
        )
        self._cache[table] = structs.replace(reading, watermark=watermark, source="manifests")

    def _read_from_future(self, table: TableName) -> Reading:
        copies = Copies(self.objects, lambda: LAST_MOMENT, self._run.report)
        reader = WatermarkReader(self.objects, self.log, copies, lambda: LAST_MOMENT)
        reading = reader.read(table)
        assert reading.watermark is not None
        watermark = not_after(reading.watermark, self._run.clock())
        return structs.replace(reading, watermark=watermark, manifests=(), source="manifests")

    def repair(self, table: TableName) -> Watermark:
        """Rewrite the watermark from the last manifest; keep the load state."""
        reading = self._reader.read(table)
        last = self.log.newest(table)
        if last is None:
            return self.update(table)
        current = self._or_empty(table, reading)
        self._cache[table] = structs.replace(
            reading,
            watermark=after(current, self.log.read(table, last)),
            source="manifests",
            problem=reading.problem or "the watermark did not agree with the manifests",
        )
        return self.update(table)

    def lease(self, table: TableName, stage: WorkStage | None = None) -> "Lease":
        """Take the lease on a table, perhaps for a stage; LeaseHeld if another run has it.

        The first one in a lake checks that it enforces conditional writes.
        """
        from floodmark.state.lease import take_lease

        run = self._run
        self._check_conditional_writes()
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

    def look(self, table: TableName) -> "Look | None":
        """Read a table's state without taking its lease.

        None if another run has the lease, a stage fails, or the watermark is not up to date.
        """
        from floodmark.state.lease import read_free_lease

        free = read_free_lease(self.objects, table, self._run.clock())
        reading = self._reader.read_settled(table) if free else None
        if free is None or reading is None or reading.watermark is None:
            return None
        return Look(watermark=reading.watermark, lease=free[0], etag=free[1], reading=reading)

    def record_unchanged(
        self,
        table: TableName,
        look: "Look",
        *,
        fresh: datetime | None,
        loaded: bool,
        warnings: tuple[str, ...],
        every_seconds: float | None,
    ) -> bool:
        """Record that a table has nothing new; False if its state may have changed since `look`."""
        from floodmark.state.lease import record_unchanged

        run = self._run
        self._check_conditional_writes()
        recorded = record_unchanged(
            self.objects,
            table,
            (look.lease, look.etag),
            session_id=run.session_id,
            owner=run.author,
            now=run.clock(),
            fresh=fresh,
            loaded=loaded,
            warnings=warnings,
            every_seconds=every_seconds,
        )
        if recorded:
            self._cache[table] = look.reading
        return recorded

    def _check_conditional_writes(self) -> None:
        """Check, once in a lake, that it enforces conditional writes."""
        from floodmark.state.conditional_writes import check_conditional_writes

        with self._probing:
            if not self._probed:
                check_conditional_writes(self.objects, self._run.clock, self._run.author)
                self._probed = True

    def _save(self, table: TableName, new: Watermark, revision: int, etag: str | None) -> Watermark:
        """Write the primary, read it back, write the copies. Nothing else writes a watermark."""
        now = self._run.clock()
        document = structs.replace(
            new,
            revision=revision + 1,
            updated_at=now,
            backup_metadata=BackupMetadata(saved_at=now, session_id=self._run.session_id),
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
        self.copies.save(table, data, self._run.session_id)
        self._cache[table] = Reading(watermark=saved, saved=saved, etag=etag, source=key)
        return saved

    def _check_plausible(self, table: TableName, new: Watermark) -> None:
        """Refuse to write a state that could not be read back."""
        check_plausible(new, name=f"the new state of {table}", now=self._run.clock())

    def _read_back(self, table: TableName, data: bytes, saved: Watermark) -> None:
        """Check that the store has what was written, or a later revision."""
        key = lake_layout.primary(table)
        found = self.objects.get(key).data
        if found == data:
            return
        try:
            now = self._run.clock()
            later = decode_watermark(found, table, name=key, now=now).revision > saved.revision
        except CorruptDocument:
            later = False
        if not later:
            raise StorageError(
                f"{self.objects} returned another watermark of {table} than was written",
                hint="check that nothing else writes below 'watermarks/'",
            )

    def _note_recovery(self, table: TableName, reading: Reading) -> None:
        now = self._run.clock()
        recovery = Recovery(
            table_name=str(table),
            at=now,
            reason=reading.problem or "",
            source=reading.source,
            seconds=(now - (reading.began or now)).total_seconds(),
            session_id=self._run.session_id,
        )
        message = f"{recovery.reason}; recovered from {recovery.source}"
        self._run.report(Notice("warning", message, "recovery", str(table)))
        try:
            self.recoveries.add(table, recovery)
        except StorageError as error:
            failure = f"recovery not recorded: {error.message}"
            self._run.report(Notice("warning", failure, table=str(table)))

    def _read(self, table: TableName, *, write_back: bool = True) -> Reading:
        reading = self._reader.read(table)
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

        now, report = self._run.clock(), self._run.report
        older = find_older(self.objects, table, self.spellings, now=now, report=report)
        if older is None:
            return reading
        empty = self._or_empty(table, reading)
        manifest = record(empty, older, self._authorship())
        if write_back:
            try:
                self.log.append(table, manifest)
            except WriteConflict:
                return self._reader.read(table)  # another run has just imported it
        return structs.replace(
            reading, watermark=checkpoint(empty, manifest), manifests=(manifest,)
        )

    def _current(self, table: TableName) -> Reading:
        return self._cache.get(table) or self._read(table)

    def _or_empty(self, table: TableName, reading: Reading) -> Watermark:
        return reading.watermark or empty_watermark(table, self._run.session_id, self._run.clock())

    def _forget(self, table: TableName, race: int) -> None:
        message = f"{table}: another writer committed first"
        self._run.report(Notice("debug", message, "conflict", str(table)))
        self._cache.pop(table, None)
        self._run.sleep(self._run.random.uniform(0, min(1.0, 0.01 * 2.0**race)))

    def _authorship(self) -> Authorship:
        return Authorship(self._run.session_id, self._run.author, self._run.clock())
