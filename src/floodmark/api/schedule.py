"""Rounds: the same tables again and again, at fixed times."""

from collections import Counter
from collections.abc import Sequence
from math import floor

from msgspec import Struct

from floodmark.errors import ExitCode
from floodmark.sync.result import TableResult


class Round(Struct, frozen=True, kw_only=True):
    """What one round did; `error` if it failed before it came to any table."""

    session_id: str
    seconds: float
    tables: Sequence[TableResult] = ()
    error: str | None = None
    hint: str | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The round in numbers; a table that another run holds has not failed."""
        codes = Counter(table.exit_code for table in self.tables if table.failed)
        busy = codes.pop(ExitCode.BUSY, 0)
        return {
            "tables": len(self.tables),
            "rows": sum(table.rows for table in self.tables),
            "loaded_rows": sum(table.loaded_rows for table in self.tables),
            "busy": busy,
            "held_back": sum(table.held_back is not None for table in self.tables),
            "failed": codes.total(),
        }

    def __str__(self) -> str:
        if self.error:
            return f"the round failed after {self.seconds:.1f} s: {self.error}"
        counts = self.counts
        held = f"{counts['busy']:,} held by another run, " if counts["busy"] else ""
        held += f"{counts['held_back']:,} held back, " if counts["held_back"] else ""
        return (
            f"{counts['tables']:,} tables, {counts['rows']:,} rows extracted,"
            f" {counts['loaded_rows']:,} loaded, {held}{counts['failed']:,} failed"
            f" in {self.seconds:.1f} s"
        )


def next_tick(began: float, every: float, now: float) -> float:
    """When the next round begins: at the first tick that is still to come.

    Ticks are `every` seconds apart, counted from the first round, so rounds do not drift. Ticks
    that a long round ran over are left out, so rounds do not pile up.
    """
    return began + (floor((now - began) / every) + 1) * every
