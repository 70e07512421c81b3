"""Where the extraction of a table stands: what a manifest commits and a watermark shows."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from floodmark.model.position import Identity, Position, Walk
from floodmark.model.run import Strategy

Count = Annotated[int, Meta(ge=0)]
Number = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Status = Literal["pending", "in_progress", "success", "failed"]


class Head(Struct, frozen=True, order=True):
    """A place in a table's log of manifests."""

    epoch: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> "Head":
        """Read what `str` made of a place; a ValueError for anything else."""
        epoch, sequence = text.split("-")
        return cls(int(epoch), int(sequence))

    def __str__(self) -> str:
        return f"{self.epoch}-{self.sequence}"


class MysqlState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stage 1: how far MySQL has been read into the lake.

    The counts cover the chunks of all epochs from `counted_from_epoch` on. `walk` says how far a
    first load along the primary key has come.
    """

    status: Status = "pending"
    last_timestamp: datetime | None = None
    last_id: Identity | None = None
    walk: Walk | None = None
    last_extraction_time: datetime | None = None
    total_rows: Count = 0
    last_session_rows: Count = 0
    s3_file_count: Count = 0
    s3_bytes: Count = 0
    chunk_count: Count = 0
    last_sequence: Count = 0
    last_manifest: str | None = None
    counted_from_epoch: Number = 1
    error: str | None = None

    @property
    def position(self) -> Position:
        """All rows up to here are safe in the lake."""
        return Position(self.last_timestamp, self.last_id, self.walk)


class ImportedFrom(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The older system's watermark that a position was taken over from, and what it counted."""

    key: str
    rows_reported: Count = 0
    files_reported: Count = 0


class Metadata(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What operators like to know."""

    manual_watermark: bool = False
    manual_set_at: datetime | None = None
    total_processing_time_seconds: Seconds = 0.0
    average_batch_size: Count = 0
    imported_from: ImportedFrom | None = None


class Standing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a watermark says that follows from the manifests alone.

    epoch                 goes up with each reset
    eligible_from_epoch   the oldest epoch whose chunks may be loaded
    load_epoch            the epoch in which loading began anew; part of the ledger's key
    """

    epoch: Number = 1
    backup_strategy: Strategy = "sequential"
    mysql_state: MysqlState = MysqlState()
    metadata: Metadata = Metadata()
    eligible_from_epoch: Number = 1
    load_epoch: Number = 1

    @property
    def head(self) -> Head:
        """The last place taken in the log."""
        return Head(self.epoch, self.mysql_state.last_sequence)

    @property
    def next_head(self) -> Head:
        """The place that the next manifest takes."""
        return Head(self.epoch, self.mysql_state.last_sequence + 1)
