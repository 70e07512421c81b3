"""The contract of every target."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from floodmark.errors import SchemaConflict
from floodmark.model.encryption import Encryption
from floodmark.model.fingerprint import Hashing, NumberKind
from floodmark.model.load import (
    LedgerEntry,
    LedgerTotals,
    LoadBatch,
    RenamedManifest,
    TargetTable,
)
from floodmark.model.log_state import ManifestId
from floodmark.model.notice import Report
from floodmark.model.reconciliation import Fingerprint, Grouping, Slice
from floodmark.model.row_checksums import CheckedColumn
from floodmark.model.schema_change import KEY, RELATION, Mismatch
from floodmark.model.verification import Checksum, Extent

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.warehouse.unsupported_values import UnsupportedValue


Dropped = Callable[[], Collection[str]]
"""Returns the columns that a source table once had; called only if they matter."""


def no_columns() -> Collection[str]:
    """Return none: the source table never had other columns."""
    return ()


class TargetFacts(Struct, frozen=True, kw_only=True):
    """A target's version and time (UTC if it has no zone).

    `remarks` are limitations that loads do not depend on, with hints.
    """

    version: str
    now: datetime
    remarks: tuple[tuple[str, str], ...] = ()


class ComparedTable(Struct, frozen=True, kw_only=True):
    """A table whose keys and versions are compared: how its columns become numbers.

    Rows count if they are within all extents of one of the tuples, or if `or_null` names a column
    and it is NULL. Rows in which `deleted_at` is not NULL do not exist.
    """

    table: TargetTable
    key: tuple[NumberKind, ...]
    version: NumberKind | None
    hashing: Hashing
    extents: tuple[tuple[Extent, ...], ...]
    or_null: str | None = None
    deleted_at: str | None = None


KeyRow = tuple[Any, ...]
"""Values of the key columns, the number of the version, and whether the row counts."""


class Target(ABC):
    """A warehouse.

    The ledger is a table in the target that lists every loaded manifest. A manifest's rows and its
    ledger row are committed in one transaction, so after any crash the ledger shows exactly which
    manifests are loaded.
    """

    report: Report = staticmethod(lambda _notice: None)
    """Receives notices."""

    frozen = False
    """Whether existing tables may not be altered."""

    @abstractmethod
    def load_epochs(self, table_name: str) -> tuple[int, ...]:
        """Read the load epochs that the ledger has of a table."""

    @abstractmethod
    def ledger(
        self, table_name: str, load_epoch: int, *, after: ManifestId | None = None
    ) -> list[LedgerEntry]:
        """Return the loaded manifests of a source table; none if there is no ledger yet.

        With `after`, only those after a manifest: a table may have hundreds of thousands.
        """

    @abstractmethod
    def ledger_totals(self, table_name: str, load_epoch: int) -> LedgerTotals:
        """Add up the ledger's entries of a source table, inside the target."""

    @abstractmethod
    def check_owner(self, table_name: str, load_epoch: int, name: str) -> None:
        """Raise TargetTaken unless a source table may be loaded into a target table of this name.

        It may not if the table exists and belongs to another source table, or if rows of this load
        epoch are in another table. SchemaConflict if the name is not a table's. `load` checks the
        same; this changes nothing.
        """

    def check_grants(self, name: str) -> None:  # noqa: B027
        """Raise UnknownGrantee if the table is yet to be created, for an unknown grantee."""

    @abstractmethod
    def check_rename(self, old: str, new: str) -> None:
        """Raise FloodmarkError if the ledger has both names of a source table; change nothing."""

    @abstractmethod
    def rename_source(self, old: str, new: str, manifests: Sequence[RenamedManifest]) -> None:
        """Rename a source table in the ledger, in one transaction. Idempotent.

        Entries of other manifests keep their digest, so that a load still refuses them.
        """

    @abstractmethod
    def count(self, table: TargetTable) -> int | None:
        """Count a table's rows that are not marked as deleted; None if there is no such table."""

    @abstractmethod
    def compare(self, table: TargetTable, dropped: Dropped = no_columns) -> list[Mismatch]:
        """Return how the target's table differs from what rows need; change nothing.

        Nothing if there is no such table; only RELATION if it is not a table. Extra columns that
        are nullable or have a default, and wider ones, do not count.
        """

    @abstractmethod
    def prepare(self, table: TargetTable, dropped: Dropped = no_columns) -> list[str]:
        """Create the ledger and the table, or widen the table, and return what was done.

        Columns that the source dropped become nullable. Idempotent. Called before data is loaded,
        never within a load. SchemaConflict, with both sides, if the table cannot be made to match.
        """

    def takes_any_size(self, table: TargetTable) -> bool:  # noqa: ARG002
        """Whether a first load takes no longer, and no more memory, in a single transaction.

        Then its size is not limited. False once the table has rows.
        """
        return False

    @abstractmethod
    def load(self, batch: LoadBatch) -> int:
        """Load the manifests that the ledger lacks, in one transaction; return the rows loaded.

        Idempotent, and safe to run concurrently: no manifest is loaded twice. Unrepresentable,
        and nothing is loaded, if the target refuses a row.
        """

    @abstractmethod
    def clock(self) -> datetime:
        """Return the target's time."""

    @abstractmethod
    def probe(self) -> TargetFacts:
        """Check that tables can be created and filled; leave nothing behind."""

    def encryption(self) -> Encryption | None:
        """Return how the connection is encrypted; None if there is no connection."""
        return None

    @abstractmethod
    def columns_held(self, table: TargetTable) -> tuple[str, ...]:
        """Return those columns of a table that the target has; none if it has no such table."""

    @abstractmethod
    def rewritten_json(self, table: TargetTable) -> tuple[str, ...]:
        """Return the JSON columns whose text the target does not preserve."""

    @abstractmethod
    def read(self, table: TargetTable, extents: Sequence[Extent]) -> "Iterator[pa.RecordBatch]":
        """Read the rows that are in all extents: the table's columns, in order.

        A batch holds each value exactly, in its own type or as text that casts to it.
        """

    @abstractmethod
    def key_bounds(self, compared: ComparedTable) -> tuple[int, int] | None:
        """Return the least and greatest leading number of a table; None if it is empty."""

    @abstractmethod
    def count_without_key(self, compared: ComparedTable) -> int:
        """Count the rows of a table that are NULL in a column of the key."""

    @abstractmethod
    def fingerprints(
        self, compared: ComparedTable, part: Slice, grouping: Grouping
    ) -> dict[int, Fingerprint]:
        """Return the fingerprint of each group of a slice's rows that count.

        If rows are grouped by version, those without one are in the group NO_VERSION. UsageError
        if a column has a type in the target that cannot be compared.
        """

    @abstractmethod
    def keys(self, compared: ComparedTable, part: Slice) -> list[KeyRow]:
        """Read keys and versions of all rows of a slice."""

    @abstractmethod
    def key_lines(self, compared: ComparedTable, part: Slice) -> str | None:
        """Return a line of key and version for each row of a slice that counts, as one text.

        The key is an integer. None if they are too many, or the database has no such text.
        """

    def count_respelled(self, documents: Sequence[str]) -> int:  # noqa: ARG002
        """Count the JSON documents whose text would be another one in the target."""
        return 0

    hashes_any_length = True
    """Whether the text of a row may be of any length in `checksums`."""

    @abstractmethod
    def checkable(self, table: TargetTable, checked: Sequence[CheckedColumn]) -> tuple[str, ...]:
        """Return the columns whose text is the same in the source and in this target."""

    @abstractmethod
    def count_outside(self, table: TargetTable, ranges: Sequence[Sequence[Extent]]) -> int:
        """Count the rows that are in none of these ranges, and not marked as deleted."""

    @abstractmethod
    def checksums(
        self,
        table: TargetTable,
        checked: Sequence[CheckedColumn],
        windows: Sequence[Sequence[Extent]],
    ) -> list[Checksum]:
        """Compute the checksums of windows that follow each other, inside the target."""

    @abstractmethod
    def unsupported_values(self, table: TargetTable) -> "Sequence[UnsupportedValue]":
        """Return every kind of value that the lake may contain and the target cannot hold."""

    def scratch_schemas(self, prefix: str) -> list[str]:  # noqa: ARG002
        """Return the schemas whose names start with a prefix; none if there are no schemas."""
        return []

    def drop_scratch(self, schema: str) -> None:  # noqa: B027
        """Drop a schema and everything in it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refuse_stopping(table: str, mismatches: Sequence[Mismatch]) -> None:
    """Raise SchemaConflict, with all of them, if mismatches stop the table."""
    stopping = [mismatch for mismatch in mismatches if mismatch.stops]
    if not stopping:
        return
    hints = list(dict.fromkeys(m.hint for m in stopping if m.hint))
    raise SchemaConflict(
        "; ".join(both_sides(table, m.column, m.target, m.source) for m in stopping),
        # Without a hint of its own, a column needs the whole table to be loaded again.
        hint="; ".join(hints) if hints and all(m.hint for m in stopping) else None,
    )


def not_a_table(what: str) -> Mismatch:
    """Return the mismatch of a name that is not a table's in the target."""
    return Mismatch(
        column=RELATION,
        source="a table",
        target=what,
        hint="rename it in the target; or let 'target_name' name a table: the one behind it, to"
        " continue with its rows, or a new one",
    )


def both_sides(table: str, column: str, held: str, kind: str) -> str:
    """Describe a column that does not fit."""
    if column == RELATION:
        return f"{table} is {held} in the target, and rows can only be loaded into a table"
    what = f"the primary key of {table}" if column == KEY else f"{table}.{column}"
    return f"{what} is {held} in the target, but {kind} in the source's schema"
