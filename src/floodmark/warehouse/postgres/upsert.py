"""Upsert staged rows into a PostgreSQL table that has the key."""

from collections.abc import Iterable

from floodmark.model.load import LoadBatch, TargetTable
from floodmark.warehouse.sql_dialect import STAGING, quote


def newest_staged(table: TargetTable) -> str:
    """Return the query for the newest staged row of each key."""
    columns = ", ".join(quote(column.name) for column in table.columns)
    keys = ", ".join(map(quote, table.primary_key))
    newest = f", {quote(table.version)} DESC NULLS LAST" if table.version else ""
    return f"SELECT DISTINCT ON ({keys}) {columns} FROM {STAGING} ORDER BY {keys}{newest}"  # noqa: S608


def replacement(batch: LoadBatch, found: Iterable[str]) -> tuple[str, str]:
    """Return the ON CONFLICT action for rows of the same key, and the condition for rows to keep.

    Columns that the staged row does not have are reset.
    """
    table, keep_newer_target_rows = batch.table, batch.keep_newer_target_rows
    names = [column.name for column in table.columns]
    values = [f"{quote(n)} = excluded.{quote(n)}" for n in names if n not in table.primary_key]
    values += [f"{quote(name)} = DEFAULT" for name in found if name not in names]
    update = f"UPDATE SET {', '.join(values)}"
    if not values or (not table.version and keep_newer_target_rows):
        return "NOTHING", "TRUE"
    if not table.version or (batch.wins and not keep_newer_target_rows):
        return update, ""
    version, newer = quote(table.version), ">" if keep_newer_target_rows else ">="
    replaced = f"t.{version} IS NULL OR excluded.{version} {newer} t.{version}"
    return f"{update} WHERE {replaced}", f"({replaced}) IS NOT TRUE"
