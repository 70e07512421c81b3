"""Rounds: sync the same tables at a fixed interval."""

from collections import Counter
from collections.abc import Sequence
from math import floor

from msgspec import Struct

from floodmark.errors import ExitCode
from floodmark.model.formatting import counted
from floodmark.sync.result import TableResult


class Round(Struct, frozen=True, kw_only=True):
    """The result of one round; `error` if it failed before the first table."""

    session_id: str
    seconds: float
    tables: Sequence[TableResult] = ()
    error: str | None = None
    hint: str | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Totals of the round; a table held by another run does not count as failed."""
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
            f"{counted(counts['tables'], 'table')}, {counted(counts['rows'], 'row')} extracted,"
            f" {counts['loaded_rows']:,} loaded, {held}{counts['failed']:,} failed"
            f" in {self.seconds:.1f} s"
        )


def next_tick(began: float, every: float, now: float) -> float:
    """Return when the next round starts: at the first tick after `now`.

    Ticks are `every` seconds apart, counted from the first round, so rounds do not drift. Ticks
    missed during a long round are skipped, so rounds do not pile up.
    """
    return began + (floor((now - began) / every) + 1) * every
