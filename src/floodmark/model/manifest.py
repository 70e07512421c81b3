"""Manifests: the immutable, numbered records that commit what happened to a table.

A table's manifests form one log, ordered by epoch and sequence. Most commit a chunk of data files.
The others commit what an operator did to the position; they take a number like any other, so a run
that did not see them cannot commit under that number.

Every manifest says where the table stands after it. The last one is therefore enough to rebuild
the extraction side of a watermark.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct

from floodmark.model.cursor import CursorColumn
from floodmark.model.log_state import (
    Clock,
    Count,
    ImportedFrom,
    LogState,
    ManifestId,
    Number,
    Seconds,
)
from floodmark.model.position import Position
from floodmark.model.run import Stage, Strategy


class Column(Struct, frozen=True, omit_defaults=True):
    """A column as the source describes it, and the Arrow type under which it lies in the lake."""

    name: str
    """The column's name in the source."""
    type: str
    """Its type, as the source writes it."""
    nullable: bool
    """Whether it may be NULL."""
    arrow: str
    """The Arrow type under which it lies in the lake."""
    source: str | None = None
    """Its type in the source, if only a hash of it arrives."""


class DataFile(Struct, frozen=True):
    """One Parquet file of a chunk, as the task that wrote it reported it."""

    path: str
    """Its key in the lake."""
    rows: Count
    """How many rows it holds."""
    bytes: Count
    """How large it is."""
    etag: str
    """The object store's name for this very content."""
    checksum: str
    """SHA-256 of the file."""
    first: Position
    """The position of its first row."""
    last: Position
    """The position of its last row."""
    origin: str | None = None
    """The older system's file that this was made of, if it had to be rewritten."""


class Chunk(Struct, frozen=True, kw_only=True, tag_field="kind", tag="chunk"):
    """Data files, committed together: all rows in `(start, end]`."""

    start: Position
    """The position behind which it begins."""
    end: Position
    """The position up to which it reaches."""
    files: tuple[DataFile, ...]
    """Its data files."""
    strategy: Strategy
    """How it was read."""
    columns: tuple[Column, ...] = ()
    """The table's columns at the time."""
    primary_key: tuple[str, ...] = ()
    """The key by which the target merges; none, if rows are appended."""
    version: str | None = None
    """The column that says which of two rows of one key is newer."""
    seconds: Seconds = 0.0
    """How long it took."""
    final: bool = True
    """Whether the run had nothing more to read behind it."""
    server: str | None = None
    """The identity of the server that it was read from."""
    clock: Clock | None = None
    """The clock of the cursor's time, if it has one."""
    cursor: tuple[CursorColumn, ...] | None = None
    """The cursor that it was read by; no columns if the whole table was."""
    gtids: str | None = None
    """The GTIDs that this server had executed before any row was read, if it keeps them."""
    reload: bool = False
    """Whether this is the whole table, which replaces what was there."""
    adopted: bool = False
    """Whether an older system wrote it: rows of any position, which give way to what is there."""
    quarantine: tuple[DataFile, ...] = ()
    """Files of rows with zero or partial dates, if these are not to be loaded."""
    fills: dict[str, str | None] = {}
    """Columns that chunks before did not have, and the value that all their rows have there."""

    @property
    def rows(self) -> int:
        """How many rows the files hold."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """How many bytes the files take."""
        return sum(file.bytes for file in self.files)

    @property
    def quarantined_rows(self) -> int:
        """How many rows were set aside."""
        return sum(file.rows for file in self.quarantine)


class Set(Struct, frozen=True, kw_only=True, tag_field="kind", tag="set"):
    """An operator put the position somewhere by hand."""

    position: Position
    """The new position."""
    cursor: tuple[CursorColumn, ...] | None = None
    """The cursor that it belongs to, if one is known."""


class Reset(Struct, frozen=True, kw_only=True, tag_field="kind", tag="reset"):
    """An operator sent one stage or both back to the start; a new epoch begins."""

    stages: tuple[Stage, ...]
    """`extract`, `load`, or both."""


class Loaded(Struct, frozen=True, kw_only=True):
    """How far loading had come in a load epoch that is returned to."""

    head: ManifestId
    rows: Count
    time: datetime | None
    quarantined_rows: Count = 0


class Restore(Struct, frozen=True, kw_only=True, tag_field="kind", tag="restore"):
    """An operator went back to an earlier state.

    The counts are those of all chunks from the earlier state's `counted_from_epoch` on: data
    written since is still there and still counts.
    """

    origin: str
    """The manifest or file that was gone back to."""
    earlier: LogState
    """Where the table stood then."""
    loaded: Loaded
    """How far it was loaded then."""
    chunk_count: Count
    """Chunks that count from now on."""
    rows: Count
    """Their rows."""
    files: Count
    """Their data files."""
    bytes: Count
    """Their bytes."""
    quarantined_rows: Count = 0
    """Their rows in quarantine."""


class Import(Struct, frozen=True, kw_only=True, tag_field="kind", tag="import"):
    """The position was taken over from an older system's watermark."""

    position: Position
    """The position taken over."""
    origin: ImportedFrom
    """Where it was found."""
    strategy: Strategy
    """What it said of its strategy."""
    extraction_time: datetime | None = None
    """When it was last extracted."""
    manual_set_at: datetime | None = None
    """When an operator had set it, if one had."""


Change = Chunk | Set | Reset | Restore | Import


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One record of a table's log: a change, who made it, and where the table stands after it."""

    version: Literal[1] = 1
    """Of this format."""
    table_name: str
    """`SCOPE:schema.table`."""
    epoch: Number
    """Its epoch."""
    sequence: Number
    """Its number within the epoch: 1, 2, 3 …"""
    created_at: datetime
    """When it was committed."""
    session_id: str
    """By which run."""
    author: str
    """By whom: `user@machine`."""
    change: Change
    """What happened, see below; `kind` says which."""
    standing: LogState
    """Where the table stands after it."""
    checksum: str = ""
    """SHA-256 of all the rest."""

    @property
    def head(self) -> ManifestId:
        """Its place in the log."""
        return ManifestId(self.epoch, self.sequence)


def chunks_in(manifests: Iterable[Manifest]) -> list[Chunk]:
    """Return the chunks among manifests."""
    return [m.change for m in manifests if isinstance(m.change, Chunk)]
