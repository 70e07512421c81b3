"""Find indexes that can be read in a given order."""

from floodmark.model.schema import SourceTable


def serving_index(table: SourceTable, columns: tuple[str, ...]) -> str | None:
    """Return the name of an index that is sorted by these columns; None if there is none."""
    if not columns:
        return None
    # InnoDB appends the remaining primary key columns to every secondary index entry.
    key = table.primary_key if table.has_ordered_key else ()
    for index in sorted(table.indexes, key=lambda index: index.name != table.key_index):
        rest = tuple(name for name in key if name not in index.columns)
        if (index.columns + rest)[: len(columns)] == columns:
            return index.name
    return None


def is_unique(table: SourceTable, columns: tuple[str, ...]) -> bool:
    """Return whether no two rows can have the same values in these columns."""
    keys = [table.primary_key, *(index.columns for index in table.indexes if index.unique)]
    return any(
        key and set(key) <= set(columns) and not any(table.column(name).nullable for name in key)
        for key in keys
    )
