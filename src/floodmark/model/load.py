"""What is loaded into a target, and how the target remembers it."""

import re
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from floodmark.errors import CorruptLog
from floodmark.model.log_state import Count, ManifestId
from floodmark.model.manifest import Column

UNLOADS = "loads/unloads/"
"""Where in the lake a target writes rows that are compared; nothing there is needed later."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def unload_folder(target_name: str) -> str:
    """The folder for what is unloaded of a target's table."""
    return f"{UNLOADS}{_UNSAFE.sub('_', target_name.lower())}/"


class TargetTable(Struct, frozen=True, kw_only=True):
    """A table in the target, as the source's schema asks for it.

    Rows of one `primary_key` replace each other; `version` is the column that says which of two is
    newer. Without a key, rows are appended.
    """

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    version: str | None

    def column(self, name: str) -> Column:
        """A column by its name."""
        return next(column for column in self.columns if column.name == name)


class LoadChunk(Struct, frozen=True, kw_only=True):
    """The data files of one manifest; `sizes` are their bytes, in the order of `paths`.

    Of the manifest's `rows`, `quarantined_rows` are not in the files, since the target cannot hold
    them.
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

    @property
    def fitting_rows(self) -> int:
        """How many rows are to be loaded."""
        return self.rows - self.quarantined_rows


class LoadBatch(Struct, frozen=True, kw_only=True):
    """Manifests that are loaded in one transaction.

    Their ranges of positions do not overlap, so no two rows of one key and version are among them.
    With `reload` there is one manifest, and it replaces all rows. `keep_newer_target_rows` keeps
    rows of the target that are not older: those of an older system, and those of a later manifest
    that was loaded first. `keep_existing_rows` keeps all rows of the target: the load epoch began
    with a loss in the lake, not with a reset. `wins` replaces rows of the target whatever their
    version: an operator moved the position, or the version has another type now. `fills` are the
    values that existing rows get in columns that are new with this batch.
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


class LedgerEntry(Struct, frozen=True, kw_only=True):
    """The target's own record that a manifest is loaded: `rows` of it, the others set aside."""

    head: ManifestId
    digest: str
    rows: Count
    quarantined_rows: Count = 0
    loaded_at: datetime | None = None


def loaded_rows(ledger: Iterable[LedgerEntry]) -> int:
    """Add up the rows that were loaded."""
    return sum(entry.rows for entry in ledger)


def quarantined_rows(ledger: Iterable[LedgerEntry]) -> int:
    """Add up the rows that were quarantined."""
    return sum(entry.quarantined_rows for entry in ledger)


class RenamedManifest(Struct, frozen=True, kw_only=True):
    """A manifest copied under another table name: its digest `before`, and what it is now."""

    head: ManifestId
    before: str
    digest: str
    manifest: str


class AnotherLake(CorruptLog):
    """The target's ledger knows other manifests than the lake: it is not the lake that was loaded.

    Most likely an older copy of it was put back. To load all of it under a new load epoch is right
    whatever happened: rows of a key replace each other, and a table without a key is emptied first.
    """

    def __init__(self, table_name: str, what: str) -> None:
        super().__init__(
            f"{what}: the lake was put back to an older state, or the target was loaded from"
            " another lake",
            hint=f"'floodmark watermark reset -t {table_name} --load-only', then sync, loads all"
            " that this lake has again",
        )
