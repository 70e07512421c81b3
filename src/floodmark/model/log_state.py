"""Where the extraction of a table stands: what a manifest commits and a watermark shows."""

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
    """A place in a table's log of manifests."""

    epoch: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> "ManifestId":
        """Read what `str` made of a place; a ValueError for anything else."""
        epoch, sequence = text.split("-")
        return cls(int(epoch), int(sequence))

    def __str__(self) -> str:
        return f"{self.epoch}-{self.sequence}"


class Clock(Struct, frozen=True, kw_only=True):
    """The clock that a time cursor shows, as it was when a position was read by it."""

    offset_seconds: int
    """How far it was ahead of UTC."""
    at: datetime
    """When that was, in UTC."""


class MysqlState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stage 1: how far MySQL has been read into the lake."""

    status: Status = "pending"
    """`pending`, `in_progress`, `success` or `failed`: how the last extraction ended."""
    last_timestamp: datetime | None = None
    """The position's time: as the cursor's column shows it, written like UTC."""
    last_id: Identity | None = None
    """The position's id: a number, a text, or a list for a composite key."""
    walk: KeyScan | None = None
    """How far a first load along the primary key has come, if one is under way."""
    last_extraction_time: datetime | None = None
    """When the last chunk was committed."""
    total_rows: Count = 0
    """Rows of all chunks since `counted_from_epoch`."""
    quarantined_rows: Count = 0
    """Rows that these chunks set aside for their zero or partial dates."""
    last_session_rows: Count = 0
    """Rows that the last run extracted."""
    s3_file_count: Count = 0
    """Data files of all these chunks."""
    s3_bytes: Count = 0
    """Bytes of all these files."""
    chunk_count: Count = 0
    """The number of these chunks."""
    last_sequence: Count = 0
    """The sequence of the last manifest in this epoch."""
    last_manifest: str | None = None
    """The last manifest's place in the log, `EPOCH-SEQUENCE`."""
    counted_from_epoch: Number = 1
    """The first epoch whose chunks the counts cover."""
    server: str | None = None
    """The identity of the server that the position was last read from."""
    clock: Clock | None = None
    """The clock of the cursor's time, when the position was read."""
    cursor: tuple[CursorColumn, ...] | None = None
    """The cursor that the position belongs to; no columns if the whole table is read each time."""
    steered: bool = False
    """Whether an operator has moved the position in this epoch: rows may come again."""
    before_start: RowsBefore | None = None
    """Rows before the position that the table began at, which were not read."""
    error: str | None = None
    """Why the last extraction failed."""

    @property
    def position(self) -> Position:
        """All rows up to here are safe in the lake."""
        return Position(self.last_timestamp, self.last_id, self.walk)


class ImportedFrom(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The older system's watermark that a position was taken over from, and what it counted."""

    key: str
    """Where it was found in the lake."""
    rows_reported: Count = 0
    """How many rows it spoke of."""
    files_reported: Count = 0
    """How many files it spoke of."""


class Metadata(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What operators like to know."""

    manual_watermark: bool = False
    """Whether an operator set the position, and no extraction has moved it since."""
    manual_set_at: datetime | None = None
    """When that was."""
    total_processing_time_seconds: Seconds = 0.0
    """Seconds spent on all chunks."""
    average_batch_size: Count = 0
    """Rows a chunk, on average."""
    imported_from: ImportedFrom | None = None
    """The older system's watermark that the table began with, if any."""


class LogState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a watermark says that follows from the manifests alone."""

    epoch: Number = 1
    """Goes up by one with each reset."""
    backup_strategy: Strategy = "sequential"
    """As in the watermark."""
    mysql_state: MysqlState = MysqlState()
    """As in the watermark."""
    metadata: Metadata = Metadata()
    """As in the watermark."""
    eligible_from_epoch: Number = 1
    """The oldest epoch whose chunks may be loaded."""
    load_epoch: Number = 1
    """The epoch in which loading began again; part of the ledger's key."""

    @property
    def head(self) -> ManifestId:
        """The last place taken in the log."""
        return ManifestId(self.epoch, self.mysql_state.last_sequence)

    @property
    def next_head(self) -> ManifestId:
        """The place that the next manifest takes."""
        return ManifestId(self.epoch, self.mysql_state.last_sequence + 1)
