"""The extraction state of a table, as manifests commit it and watermarks show it."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from floodmark.model.cursor import CursorColumn
from floodmark.model.history import RowsBefore
from floodmark.model.position import Identity, KeyScan, Position
from floodmark.model.run import Strategy

Count = Annotated[int, Meta(ge=0)]
Number = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Status = Literal["pending", "in_progress", "success", "failed"]


class ManifestId(Struct, frozen=True, order=True):
    """The id of a manifest: its place in the table's log."""

    epoch: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> "ManifestId":
        """Parse `EPOCH-SEQUENCE`; ValueError for anything else."""
        epoch, sequence = text.split("-")
        return cls(int(epoch), int(sequence))

    @property
    def next(self) -> "ManifestId":
        """The id of the next manifest in the epoch."""
        return ManifestId(self.epoch, self.sequence + 1)

    def __str__(self) -> str:
        return f"{self.epoch}-{self.sequence}"


class Clock(Struct, frozen=True, kw_only=True):
    """The clock of a time cursor, as it was when a position was read."""

    offset_seconds: int
    """Offset from UTC."""
    at: datetime
    """When it was read, in UTC."""


class Backfill(Struct, frozen=True, kw_only=True):
    """Rows that a backfill read again: a part `(start, reached]` of the range `(first, last]`."""

    first: Position
    """Start of the whole range (exclusive)."""
    last: Position
    """End of the whole range (inclusive)."""
    start: Position
    """Start of this part (exclusive)."""
    reached: Position
    """End of this part (inclusive)."""


class UnfilledColumn(Struct, frozen=True, kw_only=True):
    """A new column that rows in `(start, up_to]` were read without, and have values in."""

    column: str
    """Its name."""
    start: Position
    """Start of these rows (exclusive)."""
    up_to: Position
    """End of these rows (inclusive)."""


class MysqlState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stage 1: how far MySQL has been read into the lake."""

    status: Status = "pending"
    """`pending`, `in_progress`, `success` or `failed`: how the last extraction ended."""
    last_timestamp: datetime | None = None
    """Time of the position: the value of the cursor's column, written as UTC."""
    last_id: Identity | None = None
    """Id of the position: a number, a string, or a list for a composite key."""
    walk: KeyScan | None = None
    """Progress of a first load along the primary key, if one is running."""
    last_extraction_time: datetime | None = None
    """When the last chunk was committed."""
    total_rows: Count = 0
    """Rows of all chunks since `counted_from_epoch`, except repaired ones."""
    quarantined_rows: Count = 0
    """Rows of these chunks that were quarantined for zero or partial dates."""
    last_session_rows: Count = 0
    """Rows that the last run extracted."""
    day: str | None = None
    """Day of the last chunk, `YYYY-MM-DD` in UTC."""
    day_rows: Count = 0
    """Rows of all chunks of that day."""
    s3_file_count: Count = 0
    """Files of all these chunks and of reconciliations: data and deleted keys."""
    s3_bytes: Count = 0
    """Bytes of all these files."""
    chunk_count: Count = 0
    """Number of these chunks, without reconciliations."""
    last_sequence: Count = 0
    """Sequence of the last manifest in this epoch."""
    last_manifest: str | None = None
    """Id of the last manifest, `EPOCH-SEQUENCE`."""
    counted_from_epoch: Number = 1
    """First epoch whose chunks the counts cover."""
    server: str | None = None
    """Identity of the server that the position was last read from."""
    clock: Clock | None = None
    """Clock of the cursor's time when the position was read."""
    cursor: tuple[CursorColumn, ...] | None = None
    """Cursor that the position belongs to; no columns if the whole table is read each time."""
    steered: bool = False
    """Whether an operator moved the position in this epoch, so that rows may be read again."""
    deleted_at: str | None = None
    """Column of the target that is set in deleted rows, if reconciliations ever kept them."""
    inherited: bool = False
    """Whether the first rows were loaded by another tool, so that the lake does not have them."""
    backfill: Backfill | None = None
    """Last part of a backfill that is not complete, if there is one."""
    unfilled: tuple[UnfilledColumn, ...] = ()
    """New columns that earlier rows have values in, but not in the target, until a backfill."""
    before_start: RowsBefore | None = None
    """Rows before the table's start position, which were not read."""
    error: str | None = None
    """Why the last extraction failed."""

    @property
    def position(self) -> Position:
        """All rows up to here are safe in the lake."""
        return Position(self.last_timestamp, self.last_id, self.walk)


class ImportedFrom(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The older system's watermark that a position was imported from, with its counts."""

    key: str
    """Its key in the lake."""
    rows_reported: Count = 0
    """Number of rows that it reports."""
    files_reported: Count = 0
    """Number of files that it reports."""


class Metadata(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Operator-facing metadata."""

    manual_watermark: bool = False
    """Whether an operator set the position, and no extraction has moved it since."""
    manual_set_at: datetime | None = None
    """When the operator set it."""
    total_processing_time_seconds: Seconds = 0.0
    """Seconds spent on all chunks."""
    average_batch_size: Count = 0
    """Average rows per chunk."""
    imported_from: ImportedFrom | None = None
    """The older system's watermark that the table started from, if any."""


class LogState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a watermark that follows from the manifests alone."""

    epoch: Number = 1
    """Incremented by each reset."""
    backup_strategy: Strategy = "sequential"
    """As in the watermark."""
    mysql_state: MysqlState = MysqlState()
    """As in the watermark."""
    metadata: Metadata = Metadata()
    """As in the watermark."""
    eligible_from_epoch: Number = 1
    """Oldest epoch whose chunks may be loaded."""
    load_epoch: Number = 1
    """Epoch in which loading last started over; part of the ledger's key."""

    @property
    def head(self) -> ManifestId:
        """The id of the last manifest."""
        return ManifestId(self.epoch, self.mysql_state.last_sequence)

    @property
    def next_head(self) -> ManifestId:
        """The id of the next manifest."""
        return ManifestId(self.epoch, self.mysql_state.last_sequence + 1)
