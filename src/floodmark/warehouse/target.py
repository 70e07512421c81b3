"""What every target promises."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from floodmark.errors import FloodmarkError
from floodmark.model.encryption import Encryption
from floodmark.model.load import LedgerEntry, LoadBatch, RenamedManifest, TargetTable
from floodmark.model.notice import Report
from floodmark.model.verification import Extent

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.warehouse.unsupported_values import UnsupportedValue


class SchemaConflict(FloodmarkError):
    """The target's table does not fit the source's, and no safe change makes it fit."""


class NameTooLong(SchemaConflict):
    """The target would cut the name of a column."""

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message)
        self.column = column


class TargetTaken(FloodmarkError):
    """The target's table belongs to another source table, or this one's rows are in another."""


class UnknownGrantee(FloodmarkError):
    """The configuration grants something to a user or group that the target does not have."""


class Unrepresentable(FloodmarkError):
    """The target refused rows, perhaps for a value that it cannot hold."""


class TargetFacts(Struct, frozen=True, kw_only=True):
    """What a target says of itself: its version and its time (UTC if it has no zone).

    `remarks` are what it cannot do, without which loads work all the same; with hints.
    """

    version: str
    now: datetime
    remarks: tuple[tuple[str, str], ...] = ()


class Target(ABC):
    """A warehouse.

    The ledger is a table in the target that names every manifest loaded. A manifest's rows and its
    ledger row are committed in one transaction, so whatever dies when, each manifest is loaded or
    it is not, and the ledger tells.
    """

    report: Report = staticmethod(lambda _notice: None)
    """Where remarks on the way go."""

    @abstractmethod
    def ledger(self, table_name: str, load_epoch: int) -> list[LedgerEntry]:
        """Every manifest of a source table that is loaded; none if there is no ledger yet."""

    @abstractmethod
    def check_owner(self, table_name: str, load_epoch: int, name: str) -> None:
        """TargetTaken unless a source table may be loaded into a target table of this name.

        It may not if the table is there and belongs to another source table, nor if rows of this
        load epoch are in another table. `load` refuses the same; this changes nothing.
        """

    def check_grants(self, name: str) -> None:  # noqa: B027
        """UnknownGrantee if the table is still to be made, for somebody whom nobody knows."""

    @abstractmethod
    def check_rename(self, old: str, new: str) -> None:
        """FloodmarkError if the ledger knows both names of a source table; changes nothing."""

    @abstractmethod
    def rename_source(self, old: str, new: str, manifests: Sequence[RenamedManifest]) -> None:
        """Let the ledger call a source table by another name, in one transaction.

        May be repeated. What it knows of other manifests stays, so that a load refuses it.
        """

    @abstractmethod
    def count(self, table: TargetTable) -> int | None:
        """How many rows a table holds; None if there is no such table."""

    @abstractmethod
    def prepare(self, table: TargetTable) -> list[str]:
        """Create the ledger and the table, or widen the table, and say what was done.

        May be repeated. Happens before any data is loaded, never within a load. SchemaConflict,
        with both sides, if the table cannot be made to fit.
        """

    @abstractmethod
    def load(self, batch: LoadBatch) -> int:
        """Load in one transaction what the ledger does not know yet; return the rows loaded.

        May be repeated, and run by several at once: what is loaded is not loaded again.
        Unrepresentable, and nothing is loaded, if the target refuses a row.
        """

    @abstractmethod
    def clock(self) -> datetime:
        """What time it is for the target."""

    @abstractmethod
    def probe(self) -> TargetFacts:
        """See that tables can be made and filled; whatever was made is undone."""

    def encryption(self) -> Encryption | None:
        """What protects the connection, as it says itself; None if there is no connection."""
        return None

    @abstractmethod
    def columns_held(self, table: TargetTable) -> tuple[str, ...]:
        """The columns of a table that the target has as well; none if it has no such table."""

    @abstractmethod
    def rewritten_json(self, table: TargetTable) -> tuple[str, ...]:
        """The columns of JSON whose text the target does not keep as it was written."""

    @abstractmethod
    def read(self, table: TargetTable, extents: Sequence[Extent]) -> "Iterator[pa.RecordBatch]":
        """Read the rows that lie in all extents: the table's columns, in their order.

        A batch holds each value exactly, of its own type or as text that casts to it.
        """

    @abstractmethod
    def unsupported_values(self, table: TargetTable) -> "Sequence[UnsupportedValue]":
        """Every kind of value that may lie in the lake and that the target cannot hold."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
