"""The operations that a database must provide for loading in SQL."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from floodmark.config.models import GrantSettings
from floodmark.errors import FloodmarkError
from floodmark.model.load import LoadBatch, LoadChunk, TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.target import Target

if TYPE_CHECKING:
    import pyarrow as pa

LEDGER = "floodmark_ledger"
STAGING = "floodmark_staging"
NEWEST = "floodmark_newest"
DELETED = "floodmark_deleted"


class SqlBackend(Target):
    """Connection, staging, types and SQL dialect of one database."""

    now = "CURRENT_TIMESTAMP"
    """SQL expression for the current time."""

    version = "version()"
    """SQL expression for name and version."""

    grants = GrantSettings()
    """Privileges to grant on new tables."""

    def _grants_on(self, table: str) -> Sequence[str]:  # noqa: ARG002
        """Return the GRANT statements for a new table."""
        return ()

    def _column_definition(self, table: TargetTable, column: Column) -> str:  # noqa: ARG002
        """Return a column's definition in CREATE TABLE."""
        return f"{quote(column.name)} {self.column_type(column)}"

    def _inserted(self, column: Column, held: str) -> str:  # noqa: ARG002
        """Return the expression to insert for a staged column into a column of type `held`."""
        return quote(column.name)

    def _staged_as(self, table: TargetTable) -> TargetTable:
        """Return the table as its rows are staged, where that depends on the target's table."""
        return table

    def _as_text(self, name: str, kind: str, held: str) -> str:  # noqa: ARG002
        """Return the expression that converts values of a type to text, without loss."""
        return f"CAST({name} AS {held})"

    def _literal(self, value: str, held: str) -> str:
        """Return a literal of a column's type for a value given as text (bytes: hexadecimal)."""
        return f"CAST({self._text(value)} AS {held})"

    def _differs(self, name: str, literal: str, held: str) -> str:  # noqa: ARG002
        """Return the condition for rows with a different value."""
        return f"{name} IS NULL OR {name} <> {literal}"

    def _ledger_key(self, columns: Sequence[str]) -> str:
        """Return the ledger's primary key clause, so that it holds no manifest twice."""
        return f", PRIMARY KEY ({', '.join(columns)})"

    def _table_key(self, table: TargetTable) -> str:  # noqa: ARG002
        """Return a table's primary key clause, if the target benefits from it."""
        return ""

    def _key_of(self, name: str) -> tuple[str, ...] | None:  # noqa: ARG002
        """Return a table's primary key in the target; None if the target does not keep keys."""
        return None

    def _named(self, table: TargetTable) -> TargetTable:
        """Return the table with its names as the target stores them."""
        return table

    def _text(self, value: str) -> str:
        """Return a text literal."""
        return text_literal(value)

    def _stage_chunks(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int:
        """Stage the files of these chunks, and return the number of rows."""
        return self._stage(batch.table, [path for chunk in chunks for path in chunk.paths])

    def _read_value(self, column: Column, held: str) -> str:  # noqa: ARG002
        """Return the expression to select so that a column's values are read back exactly."""
        return quote(column.name)

    def _key_parts(self, column: Column, place: str = "") -> list[str]:
        """Return expressions that compare a key column, so that different values stay different."""
        return [f"{place}{quote(column.name)}"]

    def _counted_parts(self, column: Column) -> list[str]:
        """Return expressions that identify a key column's value when keys are counted."""
        return self._key_parts(column)

    def _after_load(self, table: TargetTable) -> None:
        """Maintain a table after its rows are committed; raise nothing."""

    def _count_staged(self, name: str) -> None:
        """Collect statistics on a temporary table, if the target's plans depend on its size."""

    def _temporary(self, name: str) -> str:
        """Return the name of a temporary table that no other table can have."""
        return name

    def _same_key(self, key: Sequence[Column], one: str, other: str) -> str:
        """Return the condition that rows of two tables have the same key."""
        return " AND ".join(
            f"{left} = {right}"
            for column in key
            for left, right in zip(
                self._key_parts(column, f"{one}."),
                self._key_parts(column, f"{other}."),
                strict=True,
            )
        )

    @abstractmethod
    def column_type(self, column: Column) -> str:
        """Return the target's name for a column's type, as in `_columns_of`."""

    @abstractmethod
    def widens(self, old: str, new: str) -> bool:
        """Whether the new type can hold every value of the old one."""

    @abstractmethod
    def is_text(self, held: str, kind: str) -> bool:
        """Whether a target column is text, and long enough for values of a type."""

    @abstractmethod
    def _stage(self, table: TargetTable, paths: Sequence[str]) -> int:
        """Load data files into the temporary table STAGING, and return the number of rows."""

    @abstractmethod
    def _batches(
        self, statement: str, table: TargetTable, kinds: Sequence[str]
    ) -> "Iterator[pa.RecordBatch]":
        """Stream the rows of a query; `kinds` are the target's types."""

    @abstractmethod
    def _columns_of(self, name: str) -> dict[str, str]:
        """Return a table's columns and their types, in order; empty if there is no such table."""

    @abstractmethod
    def _other_relation(self, name: str) -> str | None:
        """Return what has the name of a table without being one, such as "a view"."""

    @abstractmethod
    def _not_null(self, name: str) -> dict[str, bool]:
        """Return a table's NOT NULL columns, and whether they have a default."""

    @abstractmethod
    def _name(self, table: str) -> str:
        """Return a table's full name, quoted."""

    @abstractmethod
    def _lock_ledger(self) -> None:
        """Block all other loads until the transaction ends."""

    def _lock_table(self, batch: LoadBatch) -> None:  # noqa: ARG002
        """Block other loads of the same source or target table until the transaction ends."""
        self._lock_ledger()

    def _lock_entries(self, batch: LoadBatch) -> None:
        """Check, just before the ledger is written, that a table's entries have not changed.

        PassingConflict if they have. Does nothing if `_lock_table` prevents it.
        """

    def _look(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Query the ledger as it is committed now, regardless of the transaction's snapshot."""
        return self._query(statement, values)

    @abstractmethod
    def _widen(self, table: str, column: str, kind: str) -> None:
        """Change a column to a wider type."""

    @abstractmethod
    def _create(self, *statements: str) -> None:
        """Run DDL statements, all or none, outside of any data transaction."""

    @abstractmethod
    def _execute(self, statement: str, values: Sequence[object] = ()) -> int:
        """Run a statement; `$1`, `$2` … stand for the values.

        Return the number of rows it wrote, -1 if unknown.
        """

    @abstractmethod
    def _query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return its rows; `$1`, `$2` … stand for the values."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def _commit(self) -> None:
        """Commit it."""

    @abstractmethod
    def _rollback(self) -> None:
        """Roll it back; no error if it has ended, or the connection is lost."""


def check_written(table: str, expected: int, written: int) -> None:
    """Raise FloodmarkError, which rolls the transaction back, unless all rows were written."""
    if written != expected:
        raise FloodmarkError(
            f"{table}: the target wrote {written:,} of {expected:,} rows; nothing was loaded",
            hint=f"a trigger or rule of {table} in the target may drop rows, or redirect them to"
            " another table: remove it (declarative partitions need none), or load into another"
            " table with 'target_name'",
        )


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return a variant of a name that is not taken, ignoring case."""
    known = {other.lower() for other in taken}
    while name.lower() in known:
        name += "_"
    return name


def text_literal(text: str) -> str:
    """Return a text literal of standard SQL."""
    return "'" + text.replace("'", "''") + "'"


def quote(name: str | None) -> str:
    """Quote a name as an identifier."""
    return '"' + str(name).replace('"', '""') + '"'
