"""What a database must be able to do, so that loading in SQL works on it."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from floodmark.config.models import GrantSettings
from floodmark.errors import FloodmarkError
from floodmark.model.load import LoadBatch, LoadChunk, TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.target import Target

LEDGER = "floodmark_ledger"
STAGING = "floodmark_staging"
NEWEST = "floodmark_newest"


class ConstraintViolated(FloodmarkError):
    """A statement would have broken a constraint of the target."""


class DuplicateKey(ConstraintViolated):
    """A key is in the target's table already, or comes twice."""


class PassingConflict(FloodmarkError):
    """The target undid the transaction because of another one: worth another try, as a whole."""


class SqlBackend(Target):
    """How one database connects, stages, names its types and spells what others spell otherwise."""

    now = "CURRENT_TIMESTAMP"
    """What the time is, in SQL."""

    version = "version()"
    """Name and version, in SQL."""

    grants = GrantSettings()
    """Who gets which privilege on tables that are made."""

    def _grants_on(self, table: str) -> Sequence[str]:  # noqa: ARG002
        """The statements that give privileges on a table, where there are any."""
        return ()

    def _column_definition(self, table: TargetTable, column: Column) -> str:  # noqa: ARG002
        """A column, where its table is created."""
        return f"{quote(column.name)} {self.column_type(column)}"

    def _inserted(self, column: Column, held: str) -> str:  # noqa: ARG002
        """What a staged column is inserted as, into a column that the target holds as `held`."""
        return quote(column.name)

    def _staged_as(self, table: TargetTable) -> TargetTable:
        """The table as its rows are staged, where that depends on what the target holds."""
        return table

    def _as_text(self, name: str, kind: str, held: str) -> str:  # noqa: ARG002
        """Values of a type as text that tells each from any other."""
        return f"CAST({name} AS {held})"

    def _literal(self, value: str, held: str) -> str:
        """A value, given as text, as one of a column's type; bytes are hexadecimal digits."""
        return f"CAST({self._text(value)} AS {held})"

    def _differs(self, name: str, literal: str, held: str) -> str:  # noqa: ARG002
        """The condition for rows that do not hold a value yet."""
        return f"{name} IS NULL OR {name} <> {literal}"

    def _ledger_key(self, columns: Sequence[str]) -> str:
        """What follows the ledger's columns so that it holds no manifest twice."""
        return f", PRIMARY KEY ({', '.join(columns)})"

    def _table_key(self, table: TargetTable) -> str:  # noqa: ARG002
        """What follows a table's columns to declare its key, if a target gains by that."""
        return ""

    def _key_of(self, name: str) -> tuple[str, ...] | None:  # noqa: ARG002
        """The primary key that a table has in the target; None if the target keeps none."""
        return None

    def _named(self, table: TargetTable) -> TargetTable:
        """The table under the names that the target keeps, where it does not keep ours."""
        return table

    def _text(self, value: str) -> str:
        """A text as a literal."""
        return "'" + value.replace("'", "''") + "'"

    def _stage_chunks(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int:
        """Stage the files of these chunks of a batch, and say how many rows they had."""
        return self._stage(batch.table, [path for chunk in chunks for path in chunk.paths])

    def _read_value(self, column: Column, held: str) -> str:  # noqa: ARG002
        """What to select so that a column's values come back exactly."""
        return quote(column.name)

    def _key_parts(self, column: Column, place: str = "") -> list[str]:
        """What of a key's column is compared, so that no two values of the source are one."""
        return [f"{place}{quote(column.name)}"]

    def _counted_parts(self, column: Column) -> list[str]:
        """What of a key's column tells values apart when keys are counted."""
        return self._key_parts(column)

    def _after_load(self, table: TargetTable) -> None:
        """Do what helps queries, once rows are committed; raises nothing."""

    def _count_newest(self) -> None:
        """Let the target see how large NEWEST is, where its plans depend on it."""

    @abstractmethod
    def column_type(self, column: Column) -> str:
        """What the target calls the type of a column, as `_columns_of` shows it."""

    @abstractmethod
    def widens(self, old: str, new: str) -> bool:
        """Whether every value of the old type is one of the new."""

    @abstractmethod
    def is_text(self, held: str, kind: str) -> bool:
        """Whether a column of the target holds text, and room enough for the text of a type."""

    @abstractmethod
    def _stage(self, table: TargetTable, paths: Sequence[str]) -> int:
        """Bring data files into the temporary table STAGING, and say how many rows they had."""

    @abstractmethod
    def _batches(
        self, statement: str, table: TargetTable, kinds: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Run a query whose rows are too many to hold at once; `kinds` are the target's types."""

    @abstractmethod
    def _columns_of(self, name: str) -> dict[str, str]:
        """The columns of a table and their types, in order; none if there is no such table."""

    @abstractmethod
    def _name(self, table: str) -> str:
        """A table's full name, quoted."""

    @abstractmethod
    def _lock_ledger(self) -> None:
        """Keep all other loads out until the transaction ends."""

    def _lock_table(self, batch: LoadBatch) -> None:  # noqa: ARG002
        """Keep other loads of a source table, and into its target table, out until then."""
        self._lock_ledger()

    def _lock_entries(self, batch: LoadBatch) -> None:
        """See, just before it is written, that the ledger still says what it said of a table.

        PassingConflict if it does not. Nothing to do where `_lock_table` sees to it.
        """

    def _look(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Query the ledger as it is committed by now, whatever the transaction has seen before."""
        return self._query(statement, values)

    @abstractmethod
    def _widen(self, table: str, column: str, kind: str) -> None:
        """Give a column a wider type."""

    @abstractmethod
    def _create(self, *statements: str) -> None:
        """Run statements that define something, all or none, outside of any data transaction."""

    @abstractmethod
    def _execute(self, statement: str, values: Sequence[object] = ()) -> int:
        """Run a statement; `$1`, `$2` … stand for the values.

        Returns how many rows it wrote, -1 if the target does not say.
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
        """Undo it; no error if it is over already, or the connection is gone."""


def check_written(table: str, expected: int, written: int) -> None:
    """FloodmarkError, so that the transaction is undone, unless all rows were written."""
    if written != expected:
        raise FloodmarkError(
            f"{table}: the target wrote {written:,} of {expected:,} rows; nothing was loaded",
            hint="look for what changes or drops rows of this table in the target, such as a"
            " trigger or a rule",
        )


def free_name(name: str, taken: Iterable[str]) -> str:
    """A name of ours that is none of those taken, in whatever case."""
    known = {other.lower() for other in taken}
    while name.lower() in known:
        name += "_"
    return name


def quote(name: str | None) -> str:
    """A name as an identifier."""
    return '"' + str(name).replace('"', '""') + '"'
