"""Loads into a target, and the target's ledger of them."""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from floodmark.model.log_state import Count, ManifestId
from floodmark.model.manifest import Column


class TargetTable(Struct, frozen=True, kw_only=True):
    """A target table, derived from the source's schema.

    Rows with the same `primary_key` replace each other; the `version` column decides which of two
    is newer. Without a key, rows are appended. Rows in which the target's own column `deleted_at`
    is set are deleted in the source.
    """

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    version: str | None
    deleted_at: str | None = None

    def column(self, name: str) -> Column:
        """Return a column by name."""
        return next(column for column in self.columns if column.name == name)


class LoadChunk(Struct, frozen=True, kw_only=True):
    """The data files of one manifest; `sizes` are their bytes, in the order of `paths`.

    Of the manifest's `rows`, `quarantined_rows` are not in the files, because the target cannot
    represent them. `deleted_rows` is how many rows its deletes removed or marked.
    """

    head: ManifestId
    manifest: str
    digest: str
    rows: Count
    bytes: Count
    paths: tuple[str, ...]
    sizes: tuple[Count, ...] = ()
    start: str
    end: str
    quarantined_rows: Count = 0
    deleted_rows: Count = 0

    @property
    def fitting_rows(self) -> int:
        """The number of rows to load."""
        return self.rows - self.quarantined_rows


class LoadDeletes(Struct, frozen=True, kw_only=True):
    """The deleted keys of one manifest.

    The files have the key columns in the order of the key, then the version column if it is not one
    of them: `columns`. Rows of earlier manifests are dead whatever their version. If later ones are
    loaded already, rows that are newer than the version in the file are kept. `deleted_at` is the
    target's column to set to the time `at`; None removes the rows.
    """

    head: ManifestId
    keys: Count
    paths: tuple[str, ...]
    sizes: tuple[Count, ...]
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    version: str | None
    at: datetime
    deleted_at: str | None = None


class LoadBatch(Struct, frozen=True, kw_only=True):
    """Manifests that are loaded in one transaction.

    Their position ranges do not overlap, so no two rows have the same key and version. With
    `reload` there is one manifest, and it replaces all rows. `keep_newer_target_rows` keeps target
    rows that are not older: those of an older system, or of a later manifest that was loaded first.
    `keep_existing_rows` keeps all target rows: the load epoch began with a loss in the lake, not
    with a reset. `wins` replaces target rows whatever their version: an operator moved the
    position, or the version column has another type. `fills` are the values that existing rows get
    in columns that are new with this batch. `known_epochs` are the load epochs that the ledger had
    when the load began: another one since then means that another run has taken over. `deletes` are
    applied before the rows. `deleted_later` are those of later manifests: rows that they deleted
    are not loaded if such a manifest is loaded already.
    """

    table_name: str
    load_epoch: int
    table: TargetTable
    chunks: tuple[LoadChunk, ...]
    session_id: str
    reload: bool = False
    keep_newer_target_rows: bool = False
    keep_existing_rows: bool = False
    wins: bool = False
    fills: dict[str, str | None] = {}
    known_epochs: tuple[int, ...] | None = None
    deletes: LoadDeletes | None = None
    deleted_later: tuple[LoadDeletes, ...] = ()


class LedgerEntry(Struct, frozen=True, kw_only=True):
    """The target's record that a manifest is loaded: `rows` loaded, `quarantined_rows` not.

    `deleted_rows` were removed, or marked as deleted.
    """

    head: ManifestId
    digest: str
    rows: Count
    quarantined_rows: Count = 0
    deleted_rows: Count = 0
    loaded_at: datetime | None = None


class LedgerTotals(Struct, frozen=True, kw_only=True):
    """The sums of a load epoch's ledger entries, and the newest manifest among them."""

    entries: Count = 0
    rows: Count = 0
    quarantined_rows: Count = 0
    deleted_rows: Count = 0
    newest: ManifestId | None = None

    @property
    def all_rows(self) -> int:
        """The number of rows that were loaded, quarantined or deleted."""
        return self.rows + self.quarantined_rows + self.deleted_rows


def loaded_rows(ledger: Iterable[LedgerEntry]) -> int:
    """Add up the rows that were loaded."""
    return sum(entry.rows for entry in ledger)


def quarantined_rows(ledger: Iterable[LedgerEntry]) -> int:
    """Add up the rows that were quarantined."""
    return sum(entry.quarantined_rows for entry in ledger)


def deleted_rows(ledger: Iterable[LedgerEntry]) -> int:
    """Add up the rows that were deleted."""
    return sum(entry.deleted_rows for entry in ledger)


class RenamedManifest(Struct, frozen=True, kw_only=True):
    """A manifest copied to another table name: its digest `before` and now."""

    head: ManifestId
    before: str
    digest: str
    manifest: str
