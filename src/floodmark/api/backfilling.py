"""Build the backfill of a table from the options of a run."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from floodmark.api.arguments import expect, expect_flags
from floodmark.errors import UsageError
from floodmark.planning.reconcile_ranges import CursorRange
from floodmark.sync.backfill import Backfilling
from floodmark.sync.extraction import Extraction
from floodmark.sync.loading import Loading


class BackfillOptions(Struct, frozen=True, kw_only=True):
    """What a caller asked for; see `Project.backfill`."""

    start: datetime | int | str | None = None
    end: datetime | int | str | None = None
    restart: bool = False
    dry_run: bool = False

    @property
    def given(self) -> dict[str, Any]:
        """The options that are not defaults, as values for JSON."""
        values = {"start": text(self.start), "end": text(self.end)}
        flags = {"restart": self.restart, "dry_run": self.dry_run}
        return {name: value for name, value in (values | flags).items() if value}

    def check(self) -> None:
        """Raise UsageError for arguments of a wrong type, or without a range."""
        expect("start", self.start, datetime, int, str, optional=True)
        expect("end", self.end, datetime, int, str, optional=True)
        expect_flags(restart=self.restart, dry_run=self.dry_run)
        if self.start is None and self.end is None:
            raise UsageError(
                "no range to read again", hint="give the first value of the cursor, or the last"
            )


def backfill_of(extraction: Extraction, loading: Loading, options: BackfillOptions) -> Backfilling:
    """Return how to backfill a table."""
    return Backfilling(
        extraction=extraction,
        loading=loading,
        within=CursorRange(first=text(options.start), last=text(options.end)),
        restart=options.restart,
        dry_run=options.dry_run,
    )


def text(value: datetime | int | str | None) -> str | None:
    """Return a cursor value as text."""
    if value is None:
        return None
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)
