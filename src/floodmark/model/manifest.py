"""Manifests: the immutable, numbered records that commit what happened to a table.

A table's manifests form one log, ordered by epoch and sequence. Most commit a chunk of data files.
The others commit what an operator did to the position; they take a number like any other, so a run
that did not see them cannot commit under that number.

Every manifest says where the table stands after it. The last one is therefore enough to rebuild
the extraction side of a watermark.
"""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from floodmark.model.position import Position
from floodmark.model.run import Stage, Strategy
from floodmark.model.standing import Count, Head, ImportedFrom, Number, Seconds, Standing


class Column(Struct, frozen=True):
    """A column as the source describes it, and the Arrow type under which it lies in the lake."""

    name: str
    type: str
    nullable: bool
    arrow: str


class DataFile(Struct, frozen=True):
    """One Parquet file of a chunk, as the task that wrote it reported it."""

    path: str
    rows: Count
    bytes: Count
    etag: str
    checksum: str
    first: Position
    last: Position


class Chunk(Struct, frozen=True, kw_only=True, tag_field="kind", tag="chunk"):
    """Data files, committed together: all rows in `(start, end]`.

    `primary_key` and `version`, the column that says which of two rows of one key is newer, tell
    the target how to merge. With `reload` they are the whole table, and replace what was there.
    """

    start: Position
    end: Position
    files: tuple[DataFile, ...]
    strategy: Strategy
    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    version: str | None = None
    seconds: Seconds = 0.0
    final: bool = True
    reload: bool = False

    @property
    def rows(self) -> int:
        """How many rows the files hold."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """How many bytes the files take."""
        return sum(file.bytes for file in self.files)


class Set(Struct, frozen=True, kw_only=True, tag_field="kind", tag="set"):
    """An operator put the position somewhere by hand."""

    position: Position


class Reset(Struct, frozen=True, kw_only=True, tag_field="kind", tag="reset"):
    """An operator sent one stage or both back to the start; a new epoch begins."""

    stages: tuple[Stage, ...]


class Loaded(Struct, frozen=True, kw_only=True):
    """How far loading had come in a load epoch that is returned to."""

    head: Head
    rows: Count
    time: datetime | None


class Restore(Struct, frozen=True, kw_only=True, tag_field="kind", tag="restore"):
    """An operator went back to an earlier state.

    `chunk_count`, `rows`, `files` and `bytes` are what the chunks of all epochs from the earlier
    state's `counted_from_epoch` on add up to: data written since is still there and still counts.
    """

    origin: str
    earlier: Standing
    loaded: Loaded
    chunk_count: Count
    rows: Count
    files: Count
    bytes: Count


class Import(Struct, frozen=True, kw_only=True, tag_field="kind", tag="import"):
    """The position was taken over from an older system's watermark."""

    position: Position
    origin: ImportedFrom
    strategy: Strategy
    extraction_time: datetime | None = None
    manual_set_at: datetime | None = None


Change = Chunk | Set | Reset | Restore | Import


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One record of a table's log: a change, who made it, and where the table stands after it."""

    version: Literal[1] = 1
    table_name: str
    epoch: Number
    sequence: Number
    created_at: datetime
    session_id: str
    author: str
    change: Change
    standing: Standing
    checksum: str = ""

    @property
    def head(self) -> Head:
        """Its place in the log."""
        return Head(self.epoch, self.sequence)
