"""Source tables, as described by the server's catalog."""

from msgspec import Struct

from floodmark.model.table import TableName

PRIMARY = "PRIMARY"
"""MySQL's name for the index of a primary key."""


class SourceColumn(Struct, frozen=True, kw_only=True):
    """A column of a MySQL table.

    `data_type` is the bare type in lower case (`decimal`), `column_type` the full type
    (`decimal(12,4) unsigned`), or `json` even if the server stores that as text. `precision` and
    `scale` are for numbers, `fraction` (digits of a second) for times, `length` (characters or
    bytes) for text and binary. With `auto_increment` the server numbers new rows; with `on_update`
    it updates the column whenever the row changes.
    """

    name: str
    data_type: str
    column_type: str
    nullable: bool
    unsigned: bool = False
    precision: int | None = None
    scale: int | None = None
    fraction: int | None = None
    length: int | None = None
    collation: str | None = None
    auto_increment: bool = False
    on_update: bool = False


class SourceIndex(Struct, frozen=True, kw_only=True):
    """An index of a MySQL table that can be read in order.

    Indexes on expressions or column prefixes, and full-text and spatial indexes, are excluded.
    """

    name: str
    columns: tuple[str, ...]
    unique: bool


class SourceTable(Struct, frozen=True, kw_only=True):
    """A MySQL table: its columns in order, its primary key and its ordered indexes.

    The primary key is the declared one, or else a unique key on NOT NULL columns; `key_index` is
    the name of its index. It is in `indexes` only if it can be read in order: not if a part is
    descending or a column prefix. `unused_key` would be the key if rows had not already been loaded
    without one. With `partial` there are more columns, which the user may not read. Only InnoDB can
    be read in a snapshot.
    """

    name: TableName
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...]
    indexes: tuple[SourceIndex, ...]
    estimated_rows: int = 0
    average_row_bytes: int = 0
    partial: bool = False
    engine: str = "InnoDB"
    key_index: str = PRIMARY
    unused_key: tuple[str, ...] = ()

    @property
    def has_ordered_key(self) -> bool:
        """Whether the table can be read in the order of its primary key."""
        return any(index.name == self.key_index for index in self.indexes)

    def column(self, name: str) -> SourceColumn:
        """Return a column by name; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)
