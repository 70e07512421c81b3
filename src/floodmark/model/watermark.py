"""The watermark document: where a table stands, one per table.

It is a checkpoint of the table's manifests (stage 1) and of the target's ledger (stage 2), and says
how far source and target were compared and agreed. Its keys are a contract with operators and their
scripts.
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
from floodmark.model.run import Strategy
from floodmark.model.table import TableName

CLOCK_SKEW = timedelta(minutes=5)
"""How far a machine that commits may be off the server's clock, and so two of them twice that."""
FURTHEST_ZONE = timedelta(hours=14)


class RedshiftState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stage 2: how far the lake has been loaded into the target, whichever target that is."""

    status: Status = "pending"
    """`pending`, `in_progress`, `success` or `failed`: how the last load ended."""
    total_rows: Count = 0
    """Rows loaded in this load epoch, by the ledger."""
    quarantined_rows: Count = 0
    """Rows that the target could not hold in this load epoch, by the ledger."""
    last_session_rows: Count = 0
    """Rows that the last run loaded."""
    last_load_time: datetime | None = None
    """When the last load was committed."""
    loaded_epoch: Number = 1
    """The epoch of the last manifest that is safe in the target."""
    loaded_sequence: Count = 0
    """The sequence of the last manifest that is safe in the target."""
    eligible_from_epoch: Number = 1
    """The oldest epoch whose chunks may be loaded."""
    load_epoch: Number = 1
    """The epoch in which loading began again; part of the ledger's key."""
    target: str | None = None
    """The target's table that was found to hold all this: kind, address and name."""
    error: str | None = None
    """Why the last load failed."""


class VerifiedState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far source and target were compared, and agreed."""

    status: Status = "pending"
    """`pending`, `success`, or `failed` if the last comparison found a difference."""
    last_timestamp: datetime | None = None
    """Of the manifests behind `verified_epoch` and `verified_sequence`, what lies up to this moment
    is verified."""
    last_id: Identity | None = None
    """The id at that moment, or alone."""
    last_verified_time: datetime | None = None
    """When any of this changed last."""
    verified_epoch: Number = 1
    """The epoch of the last manifest that is verified, with all before it."""
    verified_sequence: Count = 0
    """The sequence of the last manifest that is verified, with all before it."""
    error: str | None = None
    """What differs."""

    @property
    def position(self) -> Position:
        """All synced rows up to here are the same in source and target."""
        return Position(self.last_timestamp, self.last_id)

    @property
    def head(self) -> ManifestId:
        """The last place of the log of which that holds whole."""
        return ManifestId(self.verified_epoch, self.verified_sequence)


class BackupMetadata(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When, by which session and to which places the document was saved."""

    saved_at: datetime
    """When the document was saved."""
    session_id: str
    """Who saved it."""
    backup_locations: tuple[str, ...] = ("primary", "daily", "session")
    """Which copies were to be written."""


class Watermark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a table stands."""

    version: Literal[2] = 2
    """Of this format."""
    table_name: str
    """`SCOPE:schema.table`."""
    revision: Count = 0
    """Goes up by one with each save."""
    epoch: Number = 1
    """Goes up by one with each reset."""
    mysql_state: MysqlState = MysqlState()
    """Stage 1, see below."""
    redshift_state: RedshiftState = RedshiftState()
    """Stage 2, see below, whichever warehouse the target is."""
    verified_state: VerifiedState = VerifiedState()
    """How far source and target were compared and agreed, see below."""
    backup_strategy: Strategy = "sequential"
    """How the last chunk was read: `sequential`, `inter-table`, `intra-table`; or `manual_cli`,
    if an operator set the position since."""
    session_id: str
    """The run that changed it last."""
    created_at: datetime
    """When the table was first heard of."""
    updated_at: datetime
    """When anything was changed last."""
    metadata: Metadata = Metadata()
    """What operators like to know, see below."""
    moved_to: str | None = None
    """The name that the table was moved to; nothing more is done under this one."""
    moving_from: str | None = None
    """The name that the table is being moved from; nothing is done until that is complete."""
    backup_metadata: BackupMetadata
    """How it was saved, see below."""
    checksum: str = ""
    """SHA-256 of all the rest."""

    @property
    def position(self) -> Position:
        """All rows up to here are safe in the lake."""
        return self.mysql_state.position

    @property
    def standing(self) -> LogState:
        """What the manifests alone say of the table."""
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
        """The last place taken in the log."""
        return ManifestId(self.epoch, self.mysql_state.last_sequence)

    @property
    def loaded_head(self) -> ManifestId:
        """The last place of the log that is safe in the target."""
        return ManifestId(self.redshift_state.loaded_epoch, self.redshift_state.loaded_sequence)

    @property
    def manual_start(self) -> datetime | None:
        """The time that an operator set by hand; None if none did."""
        return self.mysql_state.last_timestamp if self.metadata.manual_watermark else None

    def refuse_moved(self) -> None:
        """UsageError if the table goes on under another name, or has not arrived under this one."""
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
        """Whether the target still lacks what a manifest committed."""
        return head.epoch >= self.redshift_state.eligible_from_epoch and head > self.loaded_head


def empty_watermark(table: TableName, session_id: str, now: datetime) -> Watermark:
    """Make the watermark of a table about which nothing is known."""
    return Watermark(
        table_name=str(table),
        session_id=session_id,
        created_at=now,
        updated_at=now,
        backup_metadata=BackupMetadata(saved_at=now, session_id=session_id),
    )


def same_content(left: Watermark, right: Watermark) -> bool:
    """Whether two watermarks say the same of a table, whoever saved them and when."""
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
    """Read a watermark; CorruptDocument unless it is valid, of this table, and not of the future.

    `name` is what the message calls the document.
    """
    watermark: Watermark = unseal(data, Watermark, name=name)
    if watermark.table_name != str(table):
        raise CorruptDocument(f"{name} belongs to {watermark.table_name}, not to {table}")
    check_plausible(watermark, name=name, now=now)
    return watermark


def check_plausible(watermark: Watermark, *, name: str, now: datetime) -> None:
    """Raise CorruptDocument for what cannot be: times ahead of the clock, more loaded than there.

    `name` is what the message calls the document.
    """
    position = watermark.mysql_state.last_timestamp
    if position is not None and position_in_future(position, now):
        raise CorruptDocument(f"{name} lies in the future: its position is {position.isoformat()}")
    for key, moment in (
        ("updated_at", watermark.updated_at),
        ("last_extraction_time", watermark.mysql_state.last_extraction_time),
        ("last_load_time", watermark.redshift_state.last_load_time),
        ("last_verified_time", watermark.verified_state.last_verified_time),
    ):
        if moment is not None and in_future(moment, now):
            raise CorruptDocument(f"{name} lies in the future: {key} is {moment.isoformat()}")
    if not _last_manifest_fits(watermark):
        raise CorruptDocument(
            f"{name} stands at {watermark.head}, which does not follow from manifest"
            f" {watermark.mysql_state.last_manifest}"
        )
    if watermark.loaded_head > watermark.head:
        raise CorruptDocument(
            f"{name} says {watermark.loaded_head} is loaded, but only {watermark.head} extracted"
        )
    if (ahead := verified_ahead(watermark)) is not None:
        raise CorruptDocument(f"{name} says {ahead}")


def verified_ahead(watermark: Watermark) -> str | None:
    """What is said to be verified though it is not loaded; None if nothing is."""
    verified = watermark.verified_state
    if verified.head > watermark.loaded_head:
        return f"{verified.head} is verified, but only {watermark.loaded_head} loaded"
    if verified.position.compare(watermark.position.base) == 1:
        return f"{verified.position} is verified, but only {watermark.position} extracted"
    return None


def _last_manifest_fits(watermark: Watermark) -> bool:
    """Whether the last manifest is that of the last place, or the reset before the first one."""
    known, head = watermark.mysql_state.last_manifest, watermark.head
    if known is None:
        return head.sequence == 0
    try:
        last = ManifestId.parse(known)
    except ValueError:
        return False
    return head in (last, ManifestId(last.epoch + 1, 0))


def not_after(watermark: Watermark, now: datetime) -> Watermark:
    """The same state, with the times of a clock that was ahead put back to now."""
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
    )


def extracted_not_after(state: MysqlState, now: datetime) -> MysqlState:
    """The same state of stage 1, with its times put back to now if they lie behind that."""
    clock = state.clock
    return structs.replace(
        state,
        last_extraction_time=_earlier(state.last_extraction_time, now),
        clock=clock and structs.replace(clock, at=min(clock.at, now)),
    )


def _earlier(moment: datetime | None, now: datetime) -> datetime | None:
    return moment and min(moment, now)


def in_future(moment: datetime, now: datetime) -> bool:
    """Whether a moment lies further ahead than clocks usually disagree."""
    return moment - now > 2 * CLOCK_SKEW


def position_in_future(timestamp: datetime, now: datetime) -> bool:
    """Whether a position lies ahead of every clock.

    A DATETIME column shows the time of its own zone, which may be ahead of UTC.
    """
    return timestamp - now > 2 * CLOCK_SKEW + FURTHEST_ZONE
