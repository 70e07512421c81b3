"""Loading in SQL: the same steps for every target, in one transaction.

lock the ledger → what does it lack? → stage → keep the newest row of each key → replace what
is not newer in the target → insert → ledger → commit
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, final

from floodmark.errors import FloodmarkError
from floodmark.model.load import LedgerEntry, LoadBatch, LoadChunk, TargetTable
from floodmark.model.manifest import Column
from floodmark.model.standing import Head
from floodmark.warehouse.target import SchemaConflict, Target

LEDGER = "floodmark_ledger"
STAGING = "floodmark_staging"
NEWEST = "floodmark_newest"

_LEDGER_COLUMNS = {
    "table_name": "VARCHAR(400) NOT NULL",
    "load_epoch": "BIGINT NOT NULL",
    "epoch": "BIGINT NOT NULL",
    "sequence": "BIGINT NOT NULL",
    "manifest": "VARCHAR(1000) NOT NULL",
    "digest": "VARCHAR(64) NOT NULL",
    "row_count": "BIGINT NOT NULL",
    "range_start": "VARCHAR(1000)",
    "range_end": "VARCHAR(1000)",
    "session_id": "VARCHAR(40) NOT NULL",
    "loaded_at": "TIMESTAMP NOT NULL",
}


class SqlTarget(Target):
    """A target that speaks SQL. Backends say how to connect and stage, and name the types."""

    @final
    def ledger(self, table_name: str, load_epoch: int) -> list[LedgerEntry]:
        """Read the ledger's rows of a table and load epoch."""
        if not self._columns_of(LEDGER):
            return []
        rows = self._query(
            f"SELECT epoch, sequence, digest, row_count, loaded_at FROM {self._name(LEDGER)}"  # noqa: S608
            f" WHERE table_name = {_text(table_name)} AND load_epoch = {int(load_epoch)}"
        )
        return [
            LedgerEntry(head=Head(row[0], row[1]), digest=row[2], rows=row[3], loaded_at=row[4])
            for row in rows
        ]

    @final
    def prepare(self, table: TargetTable) -> list[str]:
        """Create or widen what is needed, each step by itself."""
        done = []
        if not self._columns_of(LEDGER):
            columns = ", ".join(f"{name} {kind}" for name, kind in _LEDGER_COLUMNS.items())
            self._create(f"CREATE TABLE IF NOT EXISTS {self._name(LEDGER)} ({columns})")
            done.append(f"created {LEDGER}")
        found = self._columns_of(table.name)
        if not found:
            self._create(self._create_statement(table))
            return [*done, f"created {table.name}"]
        for column in table.columns:
            wanted = self.column_type(column)
            if column.name not in found:
                self._create(
                    f"ALTER TABLE {self._name(table.name)} ADD COLUMN {quote(column.name)} {wanted}"
                )
                done.append(f"added {table.name}.{column.name}")
            elif found[column.name] != wanted:
                if not self.widens(found[column.name], wanted):
                    raise _conflict(table, column.name, found[column.name], wanted)
                self._widen(table.name, column.name, wanted)
                done.append(f"widened {table.name}.{column.name} to {wanted}")
        for name in found.keys() - {column.name for column in table.columns}:
            raise _conflict(table, name, found[name], "nothing")
        return done

    @final
    def load(self, batch: LoadBatch) -> int:
        """Load what the ledger lacks."""
        self._begin()
        try:
            self._lock_ledger()
            known = {entry.head: entry for entry in self.ledger(batch.table_name, batch.load_epoch)}
            chunks = [chunk for chunk in batch.chunks if chunk.head not in known]
            rows = sum(chunk.rows for chunk in chunks)
            if chunks:
                self._load(batch, chunks, rows)
            self._commit()
        except BaseException:
            self._rollback()
            raise
        return rows

    def _load(self, batch: LoadBatch, chunks: Sequence[LoadChunk], rows: int) -> None:
        table = batch.table
        columns = ", ".join(quote(column.name) for column in table.columns)
        staged = self._stage(table, [path for chunk in chunks for path in chunk.paths])
        if staged != rows:
            raise FloodmarkError(
                f"{batch.table_name}: the manifests name {rows:,} rows, but {staged:,} were staged",
                hint="'floodmark watermark validate' compares manifests and files",
            )
        target = self._name(table.name)
        if batch.reload:
            self._execute(f"DELETE FROM {target}")  # noqa: S608
        source = STAGING
        if table.primary_key and not batch.reload:
            self._merge(table, columns)
            source = NEWEST
        self._execute(f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {source}")  # noqa: S608
        for chunk in chunks:
            self._execute(self._ledger_statement(batch, chunk))

    def _merge(self, table: TargetTable, columns: str) -> None:
        """Leave in NEWEST what is to be inserted, and remove from the target what it replaces."""
        target = self._name(table.name)
        keys = ", ".join(quote(name) for name in table.primary_key)
        order = f"{quote(table.version)} DESC NULLS LAST" if table.version else keys
        self._execute(
            f"CREATE TEMPORARY TABLE {NEWEST} AS SELECT {columns} FROM ("  # noqa: S608
            f"SELECT {columns}, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {order}) AS place"
            f" FROM {STAGING}) AS ranked WHERE place = 1"
        )
        match = " AND ".join(f"t.{quote(k)} = {NEWEST}.{quote(k)}" for k in table.primary_key)
        if table.version:
            version = quote(table.version)
            self._execute(
                f"DELETE FROM {NEWEST} USING {target} AS t"  # noqa: S608
                f" WHERE {match} AND t.{version} > {NEWEST}.{version}"
            )
        self._execute(
            f"DELETE FROM {target} AS t USING {NEWEST} WHERE {match}"  # noqa: S608
        )

    def _create_statement(self, table: TargetTable) -> str:
        columns = ", ".join(
            f"{quote(column.name)} {self.column_type(column)}" for column in table.columns
        )
        return f"CREATE TABLE IF NOT EXISTS {self._name(table.name)} ({columns})"

    def _ledger_statement(self, batch: LoadBatch, chunk: LoadChunk) -> str:
        values = [
            _text(batch.table_name),
            str(batch.load_epoch),
            str(chunk.head.epoch),
            str(chunk.head.sequence),
            _text(chunk.manifest),
            _text(chunk.digest),
            str(chunk.rows),
            _text(chunk.start),
            _text(chunk.end),
            _text(batch.session_id),
            "CURRENT_TIMESTAMP",
        ]
        names = ", ".join(_LEDGER_COLUMNS)
        return f"INSERT INTO {self._name(LEDGER)} ({names}) VALUES ({', '.join(values)})"  # noqa: S608

    @abstractmethod
    def column_type(self, column: Column) -> str:
        """What the target calls the type of a column, as `_columns_of` shows it."""

    @abstractmethod
    def widens(self, old: str, new: str) -> bool:
        """Whether every value of the old type is one of the new."""

    @abstractmethod
    def _stage(self, table: TargetTable, paths: Sequence[str]) -> int:
        """Bring data files into the temporary table STAGING, and say how many rows they had."""

    @abstractmethod
    def _columns_of(self, name: str) -> dict[str, str]:
        """The columns of a table and their types, in order; none if there is no such table."""

    @abstractmethod
    def _name(self, table: str) -> str:
        """A table's full name, quoted."""

    @abstractmethod
    def _lock_ledger(self) -> None:
        """Keep other loaders out until the transaction ends."""

    @abstractmethod
    def _widen(self, table: str, column: str, kind: str) -> None:
        """Give a column a wider type."""

    @abstractmethod
    def _create(self, statement: str) -> None:
        """Run a statement that defines something, outside of any data transaction."""

    @abstractmethod
    def _execute(self, statement: str) -> None:
        """Run a statement."""

    @abstractmethod
    def _query(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def _commit(self) -> None:
        """Commit it."""

    @abstractmethod
    def _rollback(self) -> None:
        """Undo it; no error if it is over already, or the connection is gone."""


def quote(name: str | None) -> str:
    """A name as an identifier."""
    return '"' + str(name).replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _conflict(table: TargetTable, column: str, found: str, wanted: str) -> SchemaConflict:
    return SchemaConflict(
        f"{table.name}.{column} is {found} in the target, and {wanted} by the source's schema",
        hint="change the target's table by hand, or load into another one with 'target_name'",
    )
