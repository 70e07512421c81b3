"""Manifests: the immutable, numbered records that commit changes to a table.

A table's manifests form one log, ordered by epoch and sequence. Most commit a chunk of data files.
The others commit an operator's change of the position; they take a number too, so a run that did
not see them cannot commit under that number.

Every manifest contains the table's state after it. The last one is therefore enough to rebuild the
extraction side of a watermark.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct

from floodmark.model.cursor import CursorColumn
from floodmark.model.log_state import (
    Backfill,
    Clock,
    Count,
    ImportedFrom,
    LogState,
    ManifestId,
    Number,
    Seconds,
    UnfilledColumn,
)
from floodmark.model.position import Position
from floodmark.model.run import Stage, Strategy


class Column(Struct, frozen=True, omit_defaults=True):
    """A column in the source, and its Arrow type in the lake."""

    name: str
    """Column name in the source."""
    type: str
    """MySQL type of the values."""
    nullable: bool
    """Whether it may be NULL."""
    arrow: str
    """Arrow type in the lake."""
    source: str | None = None
    """Column type in the source, if the column is hashed."""


class DataFile(Struct, frozen=True):
    """One Parquet file of a chunk, as reported by the task that wrote it."""

    path: str
    """Key in the lake."""
    rows: Count
    """Number of rows."""
    bytes: Count
    """Size in bytes."""
    etag: str
    """ETag returned by the object store."""
    checksum: str
    """SHA-256 of the file."""
    first: Position
    """Position of its first row."""
    last: Position
    """Position of its last row."""
    origin: str | None = None
    """The older system's file that this one was rewritten from, if any."""


class Reconciled(Struct, frozen=True, kw_only=True):
    """What a comparison of source and target found, and how deletes are applied.

    The chunk's data files are the source's rows of all keys that are missing, stale or duplicate.
    """

    deletes: tuple[DataFile, ...] = ()
    """Files of the keys that the source no longer has, with the version that the target had."""
    deleted: Count = 0
    """Number of these keys."""
    missing: Count = 0
    """Rows that the target lacked."""
    stale: Count = 0
    """Rows of which the target had another version."""
    duplicate: Count = 0
    """Keys that the target had more than once."""
    deleted_at: str | None = None
    """Column of the target that is set in deleted rows; none if they are removed."""
    backfill: Backfill | None = None
    """Set if these are the rows of a range that were read again, and nothing was compared."""


class Chunk(Struct, frozen=True, kw_only=True, tag_field="kind", tag="chunk"):
    """Data files, committed together: all rows in `(start, end]`."""

    start: Position
    """Start position (exclusive)."""
    end: Position
    """End position (inclusive)."""
    files: tuple[DataFile, ...]
    """Data files."""
    strategy: Strategy
    """How it was read."""
    columns: tuple[Column, ...] = ()
    """The table's columns at the time."""
    primary_key: tuple[str, ...] = ()
    """Key by which the target merges; empty if rows are appended."""
    version: str | None = None
    """Column that decides which of two rows with the same key is newer."""
    seconds: Seconds = 0.0
    """Duration of the extraction."""
    final: bool = True
    """Whether the run had nothing more to read after it."""
    server: str | None = None
    """Identity of the server that it was read from."""
    clock: Clock | None = None
    """Clock of the cursor's time, if it has one."""
    cursor: tuple[CursorColumn, ...] | None = None
    """Cursor that it was read by; no columns if the whole table was read."""
    gtids: str | None = None
    """GTIDs that the server had executed before any row was read, if it keeps them."""
    reload: bool = False
    """Whether this is the whole table, which replaces all earlier rows."""
    adopted: bool = False
    """Whether an older system wrote it: rows of any position, which replace only older ones."""
    quarantine: tuple[DataFile, ...] = ()
    """Files of rows with zero or partial dates, if these are not to be loaded."""
    fills: dict[str, str | None] = {}
    """Columns that are new with this chunk, and their value in all earlier rows."""
    unfilled: tuple[UnfilledColumn, ...] = ()
    """Columns that are new with this chunk, and have different values in earlier rows."""
    reconciled: Reconciled | None = None
    """Set if these are deletes and repaired rows of any position; the position does not move."""
    inherited: bool = False
    """Whether another tool loaded these rows: the target has them, and the lake does not."""

    @property
    def rows(self) -> int:
        """The number of rows in the data files."""
        return sum(file.rows for file in self.files)

    @property
    def extracted_rows(self) -> int:
        """The number of rows that were new; repaired rows were read before."""
        return 0 if self.reconciled else self.rows

    @property
    def moves_position(self) -> bool:
        """Whether its rows were read along the cursor: neither adopted nor reconciled."""
        return not (self.adopted or self.reconciled)

    @property
    def deletes(self) -> tuple[DataFile, ...]:
        """The files of deleted keys."""
        return self.reconciled.deletes if self.reconciled else ()

    @property
    def loaded_files(self) -> tuple[DataFile, ...]:
        """The files that a load reads: data and deleted keys."""
        return (*self.files, *self.deletes)

    @property
    def all_files(self) -> tuple[DataFile, ...]:
        """All files: data, deleted keys and quarantined rows."""
        return (*self.loaded_files, *self.quarantine)

    @property
    def bytes(self) -> int:
        """The size in bytes of the files that a load reads."""
        return sum(file.bytes for file in self.loaded_files)

    @property
    def only_columns(self) -> bool:
        """Whether this only records the columns of a table from which nothing was read yet."""
        read = self.files or self.quarantine or self.reload or self.reconciled
        return not read and self.end.is_start

    @property
    def quarantined_rows(self) -> int:
        """The number of quarantined rows."""
        return sum(file.rows for file in self.quarantine)


class Set(Struct, frozen=True, kw_only=True, tag_field="kind", tag="set"):
    """An operator set the position by hand."""

    position: Position
    """New position."""
    cursor: tuple[CursorColumn, ...] | None = None
    """Cursor that it belongs to, if known."""


class Reset(Struct, frozen=True, kw_only=True, tag_field="kind", tag="reset"):
    """An operator reset one stage or both; a new epoch begins."""

    stages: tuple[Stage, ...]
    """`extract`, `load`, or both."""


class Loaded(Struct, frozen=True, kw_only=True):
    """The load progress of a load epoch that is restored."""

    head: ManifestId
    rows: Count
    time: datetime | None
    quarantined_rows: Count = 0
    deleted_rows: Count = 0


FROM_MIRROR = "mirror"
"""Origin of the state with which a table continues after its lake was lost."""


class Restore(Struct, frozen=True, kw_only=True, tag_field="kind", tag="restore"):
    """An operator restored an earlier state.

    The counts cover all chunks since the earlier state's `counted_from_epoch`: data written since
    then still exists and still counts.
    """

    origin: str
    """The manifest or file that was restored."""
    earlier: LogState
    """The table's state at the time."""
    loaded: Loaded
    """Load progress at the time."""
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
    lost_deletes: Count = 0
    """Deleted keys that were lost with the lake before they were loaded."""


class Import(Struct, frozen=True, kw_only=True, tag_field="kind", tag="import"):
    """The position was imported from an older system's watermark."""

    position: Position
    """Imported position."""
    origin: ImportedFrom
    """Where it was found."""
    strategy: Strategy
    """Strategy in the older watermark."""
    extraction_time: datetime | None = None
    """Last extraction time in the older watermark."""
    manual_set_at: datetime | None = None
    """When an operator set it, if one did."""


Change = Chunk | Set | Reset | Restore | Import


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One record of a table's log: a change, its author, and the table's state after it."""

    version: Literal[1, 2] = 1
    """Format version: 2 for a reconciliation or takeover, which older releases do not know."""
    table_name: str
    """`SCOPE:schema.table`."""
    epoch: Number
    """Epoch of the manifest."""
    sequence: Number
    """Number within the epoch: 1, 2, 3 …"""
    created_at: datetime
    """When it was committed."""
    session_id: str
    """The run that committed it."""
    author: str
    """Who committed it: `user@machine`."""
    change: Change
    """The change, see below; `kind` tells which."""
    standing: LogState
    """The table's state after it."""
    checksum: str = ""
    """SHA-256 of all other keys."""

    @property
    def head(self) -> ManifestId:
        """The id of this manifest."""
        return ManifestId(self.epoch, self.sequence)


def chunks_in(manifests: Iterable[Manifest]) -> list[Chunk]:
    """Return the chunks among manifests."""
    return [m.change for m in manifests if isinstance(m.change, Chunk)]
