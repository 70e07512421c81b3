"""Which index can be read in a given order."""

from floodmark.model.schema import SourceTable

PRIMARY = "PRIMARY"


def serving_index(table: SourceTable, columns: tuple[str, ...]) -> str | None:
    """Name an index whose entries come in the order of these columns; None if there is none."""
    if not columns:
        return None
    if table.primary_key[: len(columns)] == columns:
        return PRIMARY
    for index in table.indexes:
        # InnoDB ends every entry of a secondary index with the rest of the primary key.
        rest = tuple(name for name in table.primary_key if name not in index.columns)
        if (index.columns + rest)[: len(columns)] == columns:
            return index.name
    return None


def is_unique(table: SourceTable, columns: tuple[str, ...]) -> bool:
    """Whether no two rows can have the same values in these columns."""
    keys = [table.primary_key, *(index.columns for index in table.indexes if index.unique)]
    return any(
        key and set(key) <= set(columns) and not any(table.column(name).nullable for name in key)
        for key in keys
    )
