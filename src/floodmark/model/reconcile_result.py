"""The result of reconciling a table."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from floodmark.model.formatting import counted
from floodmark.model.reconcile_policy import Deletes
from floodmark.model.reconciliation import FoundKey, IntervalDifferences, Key


class ReconcileResult(Struct, frozen=True, kw_only=True):
    """What a run compared, found and repaired, with all keys.

    `key` has the names of the key columns. `complete` is false if the next run continues the pass,
    or if only a range was compared. `repaired` and `removed` are the rows that were loaded and
    deleted, `left` those that are deleted in the source and still in the target. `skipped` says why
    the table was not compared at all. `quarantined` rows are not in the target, because it cannot
    hold them; `unkeyed` ones are there without a key, so that they cannot be repaired.
    """

    key: tuple[str, ...] = ()
    source_rows: int = 0
    target_rows: int = 0
    segments: int = 0
    deleted: tuple[FoundKey, ...] = ()
    missing: tuple[Key, ...] = ()
    stale: tuple[Key, ...] = ()
    duplicate: tuple[Key, ...] = ()
    quarantined: int = 0
    unkeyed: int = 0
    deletes: Deletes = "report"
    dry_run: bool = False
    complete: bool = False
    repaired: int = 0
    removed: int = 0
    left: int = 0
    manifest: str | None = None
    pass_started: datetime | None = None
    skipped: str | None = None
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def to_repair(self) -> tuple[Key, ...]:
        """The keys whose rows must be read again."""
        return (*self.missing, *self.stale, *self.duplicate)

    @property
    def differences(self) -> int:
        """The number of keys that differ."""
        return len(self.deleted) + len(self.to_repair)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of keys that differ, by what is wrong with them; without zeros."""
        kinds = ("deleted", "missing", "stale", "duplicate")
        return {kind: count for kind in kinds if (count := len(getattr(self, kind)))}

    @property
    def summary(self) -> str:
        """What was found, in one line."""
        parts = (
            f"{len(keys):,} {what}"
            for keys, what in (
                (self.deleted, "deleted in the source"),
                (self.missing, "missing in the target"),
                (self.stale, "outdated in the target"),
                (self.duplicate, "duplicated in the target"),
            )
            if keys
        )
        return ", ".join(parts) or "no differences"

    @property
    def rest(self) -> str:
        """What is left in the target, in one line."""
        return f"{counted(self.left, 'row')} deleted in the source, and only reported"

    def sample(self, most: int) -> list[tuple[str, dict[str, Any]]]:
        """Return some of the keys that differ, with what is wrong."""
        found = [("deleted", one.key) for one in self.deleted[:most]]
        for kind in ("missing", "stale", "duplicate"):
            found += [(kind, key) for key in getattr(self, kind)[:most]]
        return [(kind, dict(zip(self.key, key, strict=True))) for kind, key in found[:most]]

    def __str__(self) -> str:
        if self.skipped:
            return f"not reconciled: {self.skipped}"
        rows = f"{counted(self.source_rows, 'row')} compared in {self.seconds:.1f} s"
        done = [f"{self.repaired:,} repaired"] if self.repaired else []
        if self.removed:
            done.append(f"{self.removed:,} {'marked as ' if self.deletes == 'soft' else ''}deleted")
        if self.quarantined:
            done.append(f"{counted(self.quarantined, 'row')} in quarantine")
        if self.unkeyed:
            done.append(f"{counted(self.unkeyed, 'row')} without a key in the target")
        rest = "" if self.complete else "; the next run continues" if self.pass_started else ""
        return f"{rows}: {self.summary}{''.join(f', {one}' for one in done)}{rest}"


def merged(key: tuple[str, ...], found: list[IntervalDifferences]) -> ReconcileResult:
    """Combine the differences of intervals."""
    return ReconcileResult(
        key=key,
        source_rows=sum(one.source_rows for one in found),
        target_rows=sum(one.target_rows for one in found),
        segments=len(found),
        deleted=tuple(one for each in found for one in each.deleted),
        missing=tuple(one for each in found for one in each.missing),
        stale=tuple(one for each in found for one in each.stale),
        duplicate=tuple(one for each in found for one in each.duplicate),
        quarantined=sum(one.quarantined for one in found),
        unkeyed=sum(one.unkeyed for one in found),
    )
