"""Apply the deletes of a reconciliation.

They are part of the load's transaction, so the ledger records them with the rows:

| step of the load's transaction | a crash right after it leaves |
| --- | --- |
| stage the deleted keys in a temporary table | nothing |
| remove or mark the rows with these keys | nothing |
| stage and merge the repaired rows | nothing |
| ledger, with the number of deleted rows; COMMIT | all of it |

A key is deleted because the source had no row with it after all earlier manifests were read, so all
their rows are dead whatever their version: the target's may be another than the lake's. Only if a
later manifest is loaded already, a row may have come back since: then rows that are newer than the
version seen are kept. A NULL version is older than any other.
"""

from collections.abc import Sequence

from msgspec import structs

from floodmark.errors import FloodmarkError, SchemaConflict
from floodmark.model.load import LoadBatch, LoadChunk, LoadDeletes, TargetTable
from floodmark.model.manifest import Column
from floodmark.model.timestamps import plain
from floodmark.warehouse.conversion import ConvertingBackend, held_name
from floodmark.warehouse.sql_dialect import DELETED, STAGING, quote


class DeletingBackend(ConvertingBackend):
    """Remove or mark rows by staged keys."""

    def _prepare_deletes(self, table: TargetTable) -> list[str]:
        """Add the column that marks deleted rows, unless it exists."""
        if table.deleted_at is None:
            return []
        found = self._columns_of(table.name)
        kind = self.column_type(Column(table.deleted_at, "datetime(6)", True, "timestamp[us]"))
        if (held := held_name(table.deleted_at, found)) is None:
            name = quote(table.deleted_at)
            try:
                self._create(f"ALTER TABLE {self._name(table.name)} ADD COLUMN {name} {kind}")
            except FloodmarkError:
                if held_name(table.deleted_at, self._columns_of(table.name)) is None:
                    raise
                return []  # another loader was faster
            return [f"added {table.name}.{table.deleted_at}"]
        if not found[held].upper().startswith("TIMESTAMP"):
            raise SchemaConflict(
                f"{table.name}.{held} is {found[held]} in the target, but it must be {kind} to mark"
                " deleted rows",
                hint="drop that column in the target, then sync",
            )
        return []

    def _apply_deletes(
        self, batch: LoadBatch, chunks: Sequence[LoadChunk], found: dict[str, str]
    ) -> list[LoadChunk]:
        """Remove or mark deleted rows, and return the chunks with the number of them."""
        deletes = batch.deletes
        # Late and without versions, it is unknown whether a row came back since.
        if deletes is None or (batch.keep_newer_target_rows and not deletes.version):
            return list(chunks)
        staged = self._stage_deletes(batch, deletes, found, DELETED)
        target, t = self._name(batch.table.name), quote(batch.table.name)
        version = staged.version if batch.keep_newer_target_rows else None
        gone = self._is_deleted(staged, t, DELETED, version)
        marked = held_name(self._named(_marked(batch.table, deletes)).deleted_at, found)
        if deletes.deleted_at is None:
            rows = self._execute(f"DELETE FROM {target} USING {DELETED} WHERE {gone}")  # noqa: S608
        elif marked is None:
            raise SchemaConflict(f"{batch.table.name} has no column {deletes.deleted_at}")
        else:
            at = self._literal(plain(deletes.at), found[marked])
            rows = self._execute(
                f"UPDATE {target} SET {quote(marked)} = {at} FROM {DELETED}"  # noqa: S608
                f" WHERE {t}.{quote(marked)} IS NULL AND {gone}"
            )
        return [structs.replace(chunk, deleted_rows=rows) for chunk in chunks]

    def _stage_deleted_later(
        self, batch: LoadBatch, found: dict[str, str]
    ) -> list[tuple[str, TargetTable]]:
        """Stage the keys that loaded later manifests have deleted."""
        names = [f"{DELETED}_{number}" for number in range(len(batch.deleted_later))]
        return [
            (name, self._stage_deletes(batch, deletes, found, name))
            for name, deletes in zip(names, batch.deleted_later, strict=True)
        ]

    def _drop_deleted(self, later: Sequence[tuple[str, TargetTable]]) -> int:
        """Remove staged rows that were deleted later, and return their number."""
        rows = 0
        for name, staged in later:
            gone = self._is_deleted(staged, STAGING, name, None)
            rows += self._execute(f"DELETE FROM {STAGING} USING {name} WHERE {gone}")  # noqa: S608
        return rows

    def _is_deleted(self, staged: TargetTable, rows: str, keys: str, version: str | None) -> str:
        """Return the condition that a row has a staged key, and no newer `version`."""
        same = self._same_key([staged.column(name) for name in staged.primary_key], rows, keys)
        if version is None:
            return same
        name = quote(version)
        return f"{same} AND ({rows}.{name} IS NULL OR {rows}.{name} <= {keys}.{name})"

    def _stage_deletes(
        self, batch: LoadBatch, deletes: LoadDeletes, found: dict[str, str], name: str
    ) -> TargetTable:
        """Stage deleted keys in a temporary table, in the target's types, and return its shape."""
        table = self._named(
            TargetTable(
                name=batch.table.name,
                columns=deletes.columns,
                primary_key=deletes.primary_key,
                version=deletes.version,
            )
        )
        files = LoadChunk(
            head=deletes.head,
            manifest="",
            digest="",
            rows=deletes.keys,
            bytes=sum(deletes.sizes),
            paths=deletes.paths,
            sizes=deletes.sizes,
            start="",
            end="",
        )
        keys = self._stage_chunks(structs.replace(batch, table=table), [files])
        if keys != deletes.keys:
            raise FloodmarkError(
                f"{batch.table_name}: manifest {deletes.head} lists {deletes.keys:,} deleted keys,"
                f" but {keys:,} were found",
                hint="'floodmark watermark validate' compares manifests and files",
            )
        table = self._fit_staging(table, found)
        self._execute(f"DROP TABLE IF EXISTS {self._temporary(name)}")
        self._execute(f"ALTER TABLE {STAGING} RENAME TO {name}")
        self._count_staged(name)
        return table


def _marked(table: TargetTable, deletes: LoadDeletes) -> TargetTable:
    return structs.replace(table, deleted_at=deletes.deleted_at)
