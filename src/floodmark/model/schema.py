"""Tables as the source's catalog describes them."""

from msgspec import Struct

from floodmark.model.table import TableName

PRIMARY = "PRIMARY"
"""What MySQL calls the index of a primary key."""


class SourceColumn(Struct, frozen=True, kw_only=True):
    """A column of a MySQL table.

    `data_type` is the bare type in lower case (`decimal`), `column_type` the whole of it
    (`decimal(12,4) unsigned`), or `json` also where the server keeps that as text. `precision` and
    `scale` hold for numbers, `fraction` (digits of a second) for times, `length` (characters or
    bytes) for text and binary. With `auto_increment` the server gives a new row its number; with
    `on_update` it stamps a row whenever it changes.
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
    """An index of a MySQL table that can be read in order: its columns.

    Indexes over expressions or prefixes of columns, of text or of space, are no help here.
    """

    name: str
    columns: tuple[str, ...]
    unique: bool


class SourceTable(Struct, frozen=True, kw_only=True):
    """A MySQL table: its columns in order, its primary key and the indexes that have an order.

    The primary key is that of the table's definition, or else a unique key over columns that are
    never NULL; `key_index` names its index. That is among `indexes` only if it can be read in
    order: not if a part of it is descending, or a prefix of a column. `unused_key` would be the
    key, were it not for rows that were loaded without one. With `partial`
    there are more columns, which the user may not read. Only InnoDB can be read in a snapshot.
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
        """A column by its name; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)
