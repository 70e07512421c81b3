"""Read the indexes of a table, and choose its key."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from floodmark.errors import UsageError
from floodmark.model.schema import PRIMARY
from floodmark.model.table import TableName
from floodmark.mysql.connection import MysqlSession, query_dicts
from floodmark.mysql.types import quote_name

Parts = Sequence[Mapping[str, Any]]
KnownKey = Callable[[], tuple[str, ...] | None]
"""Returns the key that a table was loaded by: `()` if without one, None if any may be chosen."""


def free_choice() -> None:
    """Return None: nothing was loaded yet by any key."""


class Key(Struct, frozen=True):
    """The index that identifies rows, its columns, and those of a key that is not used."""

    index: str = PRIMARY
    columns: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def read_indexes(session: MysqlSession, schema: str, table: str) -> dict[str, Parts]:
    """Return the parts of every index, in order, by index name."""
    rows = query_dicts(
        session,
        "SELECT * FROM information_schema.statistics i"
        " WHERE i.table_schema = %s AND i.table_name = %s AND CAST(i.table_name AS BINARY) = %s"
        " ORDER BY i.index_name, i.seq_in_index",
        (schema, table, table),
    )
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        parts.setdefault(row["INDEX_NAME"], []).append(row)
    return dict(parts)


def choose_key(
    session: MysqlSession,
    name: TableName,
    indexes: Mapping[str, Parts],
    *,
    readable: Collection[str],
    changed: Collection[str],
    known: KnownKey,
) -> Key:
    """Choose the key that identifies a table's rows.

    That is the primary key, or else the first unique key over NOT NULL columns, as in InnoDB. A key
    that rows were loaded by is kept while it exists: by another key they would not be found. Rows
    loaded without a key stay so until a reset. A unique key does not count if one of its columns is
    `changed` on the way, for example by a hash.
    """
    primary = indexes.get(PRIMARY, ())
    if hidden := [row["COLUMN_NAME"] for row in primary if row["COLUMN_NAME"] not in readable]:
        raise UsageError(
            f"{name}: {', '.join(hidden)} is part of the primary key, and may not be read",
            hint="grant the user SELECT on the table, or on this column, too",
        )
    keys = {
        index: _columns(parts)
        for index, parts in indexes.items()
        if index != PRIMARY and _is_key(parts) and set(_columns(parts)) <= set(readable)
    }
    before = known() if keys else None
    first = {PRIMARY: _columns(primary)} if primary else {}
    if before:
        stays = [Key(index, key) for index, key in (first | keys).items() if key == before]
        if stays:
            return stays[0]
    if primary:
        return Key(PRIMARY, _columns(primary))
    free = {
        index: key
        for index, key in keys.items()
        if not set(key) & set(changed) and all(map(_is_visible, indexes[index]))
    }
    if not free:
        return Key()
    index = _first_defined(session, name, free)
    return Key(unused=free[index]) if before == () else Key(index, free[index])


def is_usable(row: Mapping[str, Any]) -> bool:
    """Whether this part of an index supports a range over whole values, in ascending order."""
    return (
        row["INDEX_TYPE"] == "BTREE"
        and row["SUB_PART"] is None  # else it indexes only a prefix
        and row["COLUMN_NAME"] is not None  # else it is over an expression
        and row["COLLATION"] != "D"  # descending
        and _is_visible(row)
    )


def _is_visible(row: Mapping[str, Any]) -> bool:
    """Whether the optimizer uses an index: it may be INVISIBLE on MySQL, IGNORED on MariaDB."""
    return row.get("IS_VISIBLE") != "NO" and row.get("IGNORED") != "YES"


def _is_key(parts: Parts) -> bool:
    """Whether no two rows can have the same values in the columns of an index, and none is NULL."""
    return all(
        not row["NON_UNIQUE"]
        and row["NULLABLE"] != "YES"
        and row["INDEX_TYPE"] == "BTREE"
        and row["SUB_PART"] is None
        and row["COLUMN_NAME"] is not None
        for row in parts
    )


def _columns(parts: Parts) -> tuple[str, ...]:
    return tuple(row["COLUMN_NAME"] for row in parts)


def _first_defined(
    session: MysqlSession, name: TableName, keys: Mapping[str, tuple[str, ...]]
) -> str:
    """Return the index that was defined first, which information_schema does not show."""
    names: list[str] = list(keys)
    if len(names) > 1:
        relation = f"{quote_name(name.schema)}.{quote_name(name.table)}"
        rows = query_dicts(session, f"SHOW INDEX FROM {relation}")
        names = [row["Key_name"] for row in rows if row["Key_name"] in keys]
    return names[0]
