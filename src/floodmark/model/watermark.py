"""The watermark document: the state of one table.

It is a checkpoint of the table's manifests (stage 1) and of the target's ledger (stage 2), and
records how far source and target are verified to be equal. Its keys are a contract with operators
and their scripts.
"""

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct, structs

from floodmark.errors import CorruptDocument, UsageError
from floodmark.model.checksummed_json import unseal
from floodmark.model.log_state import (
    Count,
    LogState,
    ManifestId,
    Metadata,
    MysqlState,
    Number,
    Status,
)
from floodmark.model.position import Identity, Position
from floodmark.model.reconciled_state import ReconciledState, reconciled_not_after
from floodmark.model.run import Strategy
from floodmark.model.table import TableName

CLOCK_SKEW = timedelta(minutes=5)
"""Maximum clock skew between a machine and the server; two machines may differ by twice that."""
FURTHEST_ZONE = timedelta(hours=14)


class RedshiftState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stage 2: how far the lake has been loaded into the target, whichever warehouse it is."""

    status: Status = "pending"
    """`pending`, `in_progress`, `success` or `failed`: how the last load ended."""
    total_rows: Count = 0
    """Rows loaded in this load epoch, according to the ledger."""
    quarantined_rows: Count = 0
    """Rows quarantined in this load epoch, according to the ledger."""
    deleted_rows: Count = 0
    """Rows removed or marked as deleted in this load epoch, according to the ledger."""
    last_session_rows: Count = 0
    """Rows that the last run loaded."""
    last_load_time: datetime | None = None
    """When the last load was committed."""
    loaded_epoch: Number = 1
    """Epoch of the last manifest that is loaded, with all before it."""
    loaded_sequence: Count = 0
    """Sequence of the last manifest that is loaded, with all before it."""
    eligible_from_epoch: Number = 1
    """Oldest epoch whose chunks may be loaded."""
    load_epoch: Number = 1
    """Epoch in which loading last started over; part of the ledger's key."""
    target: str | None = None
    """The target table that this describes: kind, address and name."""
    error: str | None = None
    """Why the last load failed."""


class VerifiedState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far source and target are verified to be equal."""

    status: Status = "pending"
    """`pending`, `success`, or `failed` if the last comparison found a difference."""
    last_timestamp: datetime | None = None
    """In the manifests after `verified_epoch` and `verified_sequence`, rows up to this time are
    verified."""
    last_id: Identity | None = None
    """The id at that time, or alone."""
    last_verified_time: datetime | None = None
    """When any of these keys last changed."""
    verified_epoch: Number = 1
    """Epoch of the last manifest that is verified, with all before it."""
    verified_sequence: Count = 0
    """Sequence of the last manifest that is verified, with all before it."""
    error: str | None = None
    """The differences."""

    @property
    def position(self) -> Position:
        """All synced rows up to here are equal in source and target."""
        return Position(self.last_timestamp, self.last_id)

    @property
    def head(self) -> ManifestId:
        """The last manifest that is verified completely, with all before it."""
        return ManifestId(self.verified_epoch, self.verified_sequence)


class BackupMetadata(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When, by which session and to which locations the document was saved."""

    saved_at: datetime
    """When the document was saved."""
    session_id: str
    """The session that saved it."""
    backup_locations: tuple[str, ...] = ("primary", "daily", "session")
    """The copies that are written."""


class Watermark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of a table."""

    version: Literal[2] = 2
    """Format version."""
    table_name: str
    """`SCOPE:schema.table`."""
    revision: Count = 0
    """Incremented by each save."""
    epoch: Number = 1
    """Incremented by each reset."""
    mysql_state: MysqlState = MysqlState()
    """Stage 1, see below."""
    redshift_state: RedshiftState = RedshiftState()
    """Stage 2, see below, whichever warehouse the target is."""
    verified_state: VerifiedState = VerifiedState()
    """How far source and target are verified to be equal, see below."""
    reconciled_state: ReconciledState = ReconciledState()
    """When source and target were last reconciled, see below."""
    backup_strategy: Strategy = "sequential"
    """How the last chunk was read: `sequential`, `inter-table`, `intra-table`; or `manual_cli`
    if an operator has set the position since."""
    session_id: str
    """The run that last changed it."""
    created_at: datetime
    """When the watermark was first created."""
    updated_at: datetime
    """When it last changed."""
    metadata: Metadata = Metadata()
    """Operator-facing metadata, see below."""
    moved_to: str | None = None
    """The table's new name, if it was moved; this one is no longer used."""
    moving_from: str | None = None
    """The table's old name while a move is incomplete; nothing is synced until then."""
    backup_metadata: BackupMetadata
    """How it was saved, see below."""
    checksum: str = ""
    """SHA-256 of all other keys."""

    @property
    def position(self) -> Position:
        """All rows up to here are safe in the lake."""
        return self.mysql_state.position

    @property
    def log_state(self) -> LogState:
        """The part that follows from the manifests alone."""
        return LogState(
            epoch=self.epoch,
            backup_strategy=self.backup_strategy,
            mysql_state=self.mysql_state,
            metadata=self.metadata,
            eligible_from_epoch=self.redshift_state.eligible_from_epoch,
            load_epoch=self.redshift_state.load_epoch,
        )

    @property
    def head(self) -> ManifestId:
        """The id of the last manifest."""
        return ManifestId(self.epoch, self.mysql_state.last_sequence)

    @property
    def loaded_head(self) -> ManifestId:
        """The id of the last manifest that is loaded, with all before it."""
        return ManifestId(self.redshift_state.loaded_epoch, self.redshift_state.loaded_sequence)

    @property
    def manual_start(self) -> datetime | None:
        """The time that an operator set by hand; None if there is none."""
        return self.mysql_state.last_timestamp if self.metadata.manual_watermark else None

    def refuse_moved(self) -> None:
        """Raise UsageError if the table was moved to another name, or its move is incomplete."""
        if self.moved_to is not None:
            raise UsageError(
                f"{self.table_name} was moved to {self.moved_to}",
                hint=f"use {self.moved_to}; if the move was interrupted, 'floodmark watermark move"
                f" -t {self.table_name} --to {self.moved_to}' completes it",
            )
        if self.moving_from is not None:
            raise UsageError(
                f"{self.table_name} is being moved from {self.moving_from}",
                hint=f"'floodmark watermark move -t {self.moving_from} --to {self.table_name}'"
                " completes it",
            )

    def still_to_load(self, head: ManifestId) -> bool:
        """Return whether a manifest is still to be loaded into the target."""
        return head.epoch >= self.redshift_state.eligible_from_epoch and head > self.loaded_head


def empty_watermark(table: TableName, session_id: str, now: datetime) -> Watermark:
    """Return the watermark of an unknown table."""
    return Watermark(
        table_name=str(table),
        session_id=session_id,
        created_at=now,
        updated_at=now,
        backup_metadata=BackupMetadata(saved_at=now, session_id=session_id),
    )


def same_content(left: Watermark, right: Watermark) -> bool:
    """Return whether two watermarks are equal except for who saved them and when."""
    return _without_saving(left, right) == _without_saving(right, right)


def _without_saving(watermark: Watermark, like: Watermark) -> Watermark:
    return structs.replace(
        watermark,
        revision=like.revision,
        session_id=like.session_id,
        created_at=like.created_at,
        updated_at=like.updated_at,
        backup_metadata=like.backup_metadata,
        checksum="",
    )


def decode_watermark(data: bytes, table: TableName, *, name: str, now: datetime) -> Watermark:
    """Read a watermark; CorruptDocument unless it is valid, this table's, and not in the future.

    `name` is the document's name in messages.
    """
    watermark: Watermark = unseal(data, Watermark, name=name)
    if watermark.table_name != str(table):
        raise CorruptDocument(f"{name} belongs to {watermark.table_name}, not to {table}")
    check_plausible(watermark, name=name, now=now)
    return watermark


def check_plausible(watermark: Watermark, *, name: str, now: datetime) -> None:
    """Raise CorruptDocument for impossible states: future times, more loaded than extracted.

    `name` is the document's name in messages.
    """
    position = watermark.mysql_state.last_timestamp
    if position is not None and position_in_future(position, now):
        raise CorruptDocument(f"{name} is in the future: its position is {position.isoformat()}")
    for key, moment in (
        ("updated_at", watermark.updated_at),
        ("last_extraction_time", watermark.mysql_state.last_extraction_time),
        ("last_load_time", watermark.redshift_state.last_load_time),
        ("last_verified_time", watermark.verified_state.last_verified_time),
        ("last_finished", watermark.reconciled_state.last_finished),
    ):
        if moment is not None and in_future(moment, now):
            raise CorruptDocument(f"{name} is in the future: {key} is {moment.isoformat()}")
    if not _last_manifest_fits(watermark):
        raise CorruptDocument(
            f"{name} is at {watermark.head}, which does not follow from manifest"
            f" {watermark.mysql_state.last_manifest}"
        )
    if watermark.loaded_head > watermark.head:
        raise CorruptDocument(
            f"{name}: {watermark.loaded_head} is loaded, but only {watermark.head} is extracted"
        )
    if (ahead := verified_ahead(watermark)) is not None:
        raise CorruptDocument(f"{name}: {ahead}")


def verified_ahead(watermark: Watermark) -> str | None:
    """Return what counts as verified although it is not loaded; None if nothing does."""
    verified = watermark.verified_state
    if verified.head > watermark.loaded_head:
        return f"{verified.head} is verified, but only {watermark.loaded_head} is loaded"
    if verified.position.compare(watermark.position.base) == 1:
        return f"{verified.position} is verified, but only {watermark.position} is extracted"
    return None


def _last_manifest_fits(watermark: Watermark) -> bool:
    """Return whether the last manifest is the head, or the reset that opened the epoch."""
    known, head = watermark.mysql_state.last_manifest, watermark.head
    if known is None:
        return head.sequence == 0
    try:
        last = ManifestId.parse(known)
    except ValueError:
        return False
    return head in (last, ManifestId(last.epoch + 1, 0))


def not_after(watermark: Watermark, now: datetime) -> Watermark:
    """Return the watermark with times in the future replaced by now."""
    load, compared = watermark.redshift_state, watermark.verified_state
    return structs.replace(
        watermark,
        created_at=min(watermark.created_at, now),
        updated_at=min(watermark.updated_at, now),
        mysql_state=extracted_not_after(watermark.mysql_state, now),
        redshift_state=structs.replace(load, last_load_time=_earlier(load.last_load_time, now)),
        verified_state=structs.replace(
            compared, last_verified_time=_earlier(compared.last_verified_time, now)
        ),
        reconciled_state=reconciled_not_after(watermark.reconciled_state, now),
    )


def extracted_not_after(state: MysqlState, now: datetime) -> MysqlState:
    """Return the state of stage 1 with times in the future replaced by now."""
    clock = state.clock
    return structs.replace(
        state,
        last_extraction_time=_earlier(state.last_extraction_time, now),
        clock=clock and structs.replace(clock, at=min(clock.at, now)),
    )


def _earlier(moment: datetime | None, now: datetime) -> datetime | None:
    return moment and min(moment, now)


def in_future(moment: datetime, now: datetime) -> bool:
    """Return whether a time is further in the future than clock skew explains."""
    return moment - now > 2 * CLOCK_SKEW


def position_in_future(timestamp: datetime, now: datetime) -> bool:
    """Return whether a position is in the future in every time zone.

    A DATETIME column has the time of its own time zone, which may be ahead of UTC.
    """
    return timestamp - now > 2 * CLOCK_SKEW + FURTHEST_ZONE
