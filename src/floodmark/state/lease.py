"""Leases: only one run at a time works on a table.

A lease is an object with an owner and a time to live. It is taken and renewed by conditional
writes, so exactly one of several runs gets it. Its number increases each time it is taken; a holder
that finds another number has lost it. Leases only prevent wasted work. Exactly-once commits do not
depend on them, nor on any clock, but on manifest numbers.

A run that only reads takes no lease until it finds something to do. If it finds nothing, it records
that with `record_unchanged`: one conditional write that takes the lease and releases it at once.
All that changes a table's state is done under its lease. So the document, read before the state,
proves at the time of that write that the state is still the one that was read:

    read the document         a crash leaves nothing
    read state and source     the same
    write the document        the lease is free as before, the record complete; if anybody has taken
                              the lease in between, nothing is written, and the run starts over
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Event, Thread
from typing import Any

from msgspec import Struct, structs

from floodmark.errors import (
    CorruptDocument,
    LeaseHeld,
    LeaseLost,
    ObjectNotFound,
    StorageError,
    WriteConflict,
)
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal, unseal
from floodmark.model.failure import Failure, add_failure, without
from floodmark.model.notice import Notice, Report
from floodmark.model.run import WorkStage
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped
from floodmark.state.process_identity import is_dead, this_process
from floodmark.storage.objects import ObjectStore

_TRIES = 5
_TRIED_ANYWAY = timedelta(minutes=1)  # the same failure is written again only after this time


class LeaseDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stored lease: who works on a table, and when the lease expires unless renewed.

    A run that finds nothing new writes no watermark, but it does release its lease. So the lease
    also records how the table is doing:

    in_step_at     the time up to which a run has read everything
    loaded_fresh   the time up to which everything is also loaded
    held_by        what kept the last run from reading more, and `held_since` since when
    succeeded_at   when a stage last succeeded
    last_tried_at  when a run last ended a stage, or could not begin with the table
    failures       the stages that fail, each until it succeeds
    warnings       what the last run found in the table's schema
    every_seconds  the interval of the rounds that sync the table, if `sync --every` does
    """

    table_name: str
    number: int
    session_id: str
    owner: str
    taken_at: datetime
    expires_at: datetime
    released: bool = False
    process: str = ""
    in_step_at: datetime | None = None
    held_by: str | None = None
    held_since: datetime | None = None
    loaded_fresh: datetime | None = None
    succeeded_at: datetime | None = None
    last_tried_at: datetime | None = None
    failures: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()
    every_seconds: float | None = None
    checksum: str = ""

    @property
    def taking(self) -> tuple[str, int]:
        """Identify one acquisition of the lease: the same until its release, and unique."""
        return self.session_id, self.number

    def held(self, now: datetime) -> bool:
        """Return whether the holder may still be running."""
        return not self.released and now < self.expires_at and not is_dead(self.process)


class Lease:
    """A lease that we hold; a thread renews it until it is released."""

    def __init__(
        self,
        objects: ObjectStore,
        table: TableName,
        document: LeaseDocument,
        etag: str,
        seconds: float,
        clock: Callable[[], datetime],
        report: Report,
        stage: WorkStage | None = None,
    ) -> None:
        self._stage = stage
        self._objects = objects
        self._table = table
        self._document = document
        self._etag = etag
        self._seconds = seconds
        self._clock = clock
        self._report = report
        self._lost = False
        self._noted: dict[str, Any] = {}
        self._stop = Event()
        self._heartbeat = Thread(target=self._beat, name=f"lease {table}", daemon=True)
        self._heartbeat.start()

    @property
    def number(self) -> int:
        """The number of this acquisition."""
        return self._document.number

    def check(self) -> None:
        """Raise LeaseLost unless the lease is still ours; call before each commit."""
        if self._lost or not self._document.held(self._clock()):
            raise LeaseLost(
                f"the lease on {self._table} expired at {stamped(self._document.expires_at)}",
                hint="another run may have taken over; run the command again",
            )

    def note_in_step(self, fresh: datetime | None = None) -> None:
        """Record the time up to which everything is read (default: now); saved on release."""
        now = self._clock()
        self._noted["in_step_at"] = min(fresh or now, now)

    def note_held(self, held_by: str | None) -> None:
        """Record what keeps newer rows from being read, if anything does; saved on release."""
        since = self._document.held_since or self._clock()
        self._noted |= {"held_by": held_by, "held_since": since if held_by else None}

    def note_loaded(self) -> datetime | None:
        """Record that everything read so far is loaded, and return its time; saved on release."""
        self._noted["loaded_fresh"] = self._document.in_step_at
        return self._document.in_step_at

    def note_warnings(self, warnings: tuple[str, ...]) -> tuple[str, ...]:
        """Record what was found in the schema, and return what an earlier run recorded."""
        self._noted["warnings"] = warnings
        return self._document.warnings

    def note_interval(self, every_seconds: float | None) -> None:
        """Record the interval at which the table is synced, if any; saved on release."""
        self._noted["every_seconds"] = every_seconds

    def release(self) -> None:
        """Release the lease. Do nothing if it is already lost."""
        self._stop.set()
        self._heartbeat.join()
        if self._lost:
            return
        try:
            self._write(structs.replace(self._document, released=True, **self._noted))
        except WriteConflict:
            pass  # taken over, so there is nothing to release
        except StorageError as error:
            until = stamped(self._document.expires_at)
            self._warn(f"lease not released, it expires at {until}: {error}")

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):  # else the run was interrupted
            self._noted["last_tried_at"] = self._clock()
        if kind is None and self._stage is not None:  # the stage succeeded
            failures = without(self._document.failures, self._stage)
            self._noted |= {"failures": failures, "succeeded_at": self._clock()}
        self.release()

    def _beat(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            try:
                until = self._clock() + timedelta(seconds=self._seconds)
                self._write(structs.replace(self._document, expires_at=until))
            except WriteConflict:
                self._lost = True
                self._warn(f"the lease on {self._table} was taken over")
                return
            except StorageError as error:
                # The next heartbeat may succeed; if none does, the lease expires.
                self._warn(f"lease not renewed: {error.message}")

    def _warn(self, message: str) -> None:
        self._report(Notice("warning", message, "lease", str(self._table)))

    def _write(self, document: LeaseDocument) -> None:
        key = lake_layout.lease(self._table)
        for last in (*[False] * (_TRIES - 1), True):
            try:
                self._etag = self._objects.put_if_match(key, seal(document), self._etag)
            except WriteConflict:
                # The stored lease may be ours: if the response to a renewal was lost, or if S3
                # reports a conflict with a request that it is still working on.
                found, etag = _read(self._objects, self._table)
                if last or found is None or etag is None or found.taking != document.taking:
                    raise
                self._etag = etag
            else:
                self._document = document
                return


def take_lease(
    objects: ObjectStore,
    table: TableName,
    *,
    session_id: str,
    owner: str,
    seconds: float,
    clock: Callable[[], datetime],
    report: Report,
    stage: WorkStage | None = None,
) -> Lease:
    """Take the lease on a table; LeaseHeld if another run holds it.

    If it is taken for a `stage`, and its `with` ends without an error, the stage has succeeded.
    """
    key = lake_layout.lease(table)
    document: LeaseDocument | None = None
    for _ in range(_TRIES):
        current, etag = _read(objects, table)
        now = clock()
        if document and current and etag and _same_taking(current, document):
            # We took it, and the response was lost.
            return Lease(objects, table, current, etag, seconds, clock, report, stage)
        if current is not None and current.held(now):
            raise _held(current)
        document = structs.replace(
            current or _new(table, session_id, owner, now),
            number=current.number + 1 if current else 1,
            session_id=session_id,
            owner=owner,
            taken_at=now,
            expires_at=now + timedelta(seconds=seconds),
            released=False,
            process=this_process(),
        )
        try:
            if etag is None:
                etag = objects.put_if_absent(key, seal(document))
            else:
                etag = objects.put_if_match(key, seal(document), etag)
        except WriteConflict:
            continue  # another run took it, or recorded a failure
        return Lease(objects, table, document, etag, seconds, clock, report, stage)
    raise LeaseHeld(f"other runs repeatedly take the lease on {table}")


def read_free_lease(
    objects: ObjectStore, table: TableName, now: datetime
) -> tuple[LeaseDocument, str] | None:
    """Return the lease of a table and its ETag; None if it is held, was never taken, or broke."""
    document, etag = _read(objects, table)
    if document is None or etag is None or not document.released or document.failures:
        return None
    return None if document.held(now) else (document, etag)


def record_unchanged(
    objects: ObjectStore,
    table: TableName,
    free: tuple[LeaseDocument, str],
    *,
    session_id: str,
    owner: str,
    now: datetime,
    fresh: datetime | None,
    loaded: bool,
    warnings: tuple[str, ...],
    every_seconds: float | None,
) -> bool:
    """Record that a table has nothing new up to `fresh`; False if its lease was taken meanwhile.

    The result is the document of a run that took the lease, found nothing and released it.
    """
    document, etag = free
    in_step_at = min(fresh or now, now)
    unchanged = structs.replace(
        document,
        number=document.number + 1,
        session_id=session_id,
        owner=owner,
        taken_at=now,
        expires_at=now,
        process=this_process(),
        in_step_at=in_step_at,
        held_by=None,
        held_since=None,
        loaded_fresh=in_step_at if loaded else document.loaded_fresh,
        succeeded_at=now,
        last_tried_at=now,
        warnings=warnings,
        every_seconds=every_seconds,
    )
    try:
        objects.put_if_match(lake_layout.lease(table), seal(unchanged), etag)
    except WriteConflict:
        return False
    return True


def _same_taking(one: LeaseDocument, other: LeaseDocument) -> bool:
    """Whether two documents are of one acquisition; threads may share a session."""
    return (one.taking, one.taken_at) == (other.taking, other.taken_at)


def read_lease(objects: ObjectStore, table: TableName) -> LeaseDocument | None:
    """Read the lease on a table, held or not; None if there never was one."""
    return _read(objects, table)[0]


def break_lease(objects: ObjectStore, table: TableName) -> None:
    """Release another run's lease. Its holder notices at the next heartbeat or commit."""
    for last in (False, False, True):
        current, etag = _read(objects, table)
        if current is None or etag is None:
            return
        broken = structs.replace(current, number=current.number + 1, released=True)
        try:
            objects.put_if_match(lake_layout.lease(table), seal(broken), etag)
        except WriteConflict:
            if last:
                raise
        else:
            return  # otherwise a heartbeat came in between


def record_failure(
    objects: ObjectStore, table: TableName, failure: Failure, *, owner: str, began: datetime
) -> None:
    """Record that a table failed, although the lease on it may never have been taken.

    Do nothing if another run holds the lease, or has succeeded since `began`, which is when this
    run began to work on the table: what that run finds is newer.
    """
    for attempt in range(_TRIES):
        current, etag = _read(objects, table)
        if current is not None and current.session_id != failure.session_id:
            succeeded = current.succeeded_at is not None and current.succeeded_at > began
            if succeeded or current.held(failure.at):
                return
        known = current or _new(table, failure.session_id, owner, failure.at)
        failures = add_failure(known.failures, failure)
        tried = known.last_tried_at
        if failures == known.failures and tried and abs(failure.at - tried) < _TRIED_ANYWAY:
            return
        data = seal(structs.replace(known, failures=failures, last_tried_at=failure.at))
        try:
            if etag is None:
                objects.put_if_absent(lake_layout.lease(table), data)
            else:
                objects.put_if_match(lake_layout.lease(table), data, etag)
        except WriteConflict:
            if attempt == _TRIES - 1:
                raise
        else:
            return


def _new(table: TableName, session_id: str, owner: str, now: datetime) -> LeaseDocument:
    """Return the lease of a table that no run has worked on; nobody holds it."""
    return LeaseDocument(
        table_name=str(table),
        number=0,
        session_id=session_id,
        owner=owner,
        taken_at=now,
        expires_at=now,
        released=True,
    )


def _read(objects: ObjectStore, table: TableName) -> tuple[LeaseDocument | None, str | None]:
    try:
        found = objects.get(lake_layout.lease(table))
    except ObjectNotFound:
        return None, None
    try:
        return unseal(found.data, LeaseDocument, name=lake_layout.lease(table)), found.etag
    except CorruptDocument:
        return None, found.etag  # a corrupt lease counts as free


def _held(lease: LeaseDocument) -> LeaseHeld:
    return LeaseHeld(
        f"{lease.table_name} is held by session {lease.session_id} of {lease.owner}"
        f" until {stamped(lease.expires_at)}",
        hint="wait for that run; if it is dead, its lease expires at that time, or release it with"
        f" 'floodmark doctor -t {lease.table_name} --break-lease'",
    )
