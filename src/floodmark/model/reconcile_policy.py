"""How a table is reconciled: when, what happens to deleted rows, and how many may be deleted."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from floodmark.model.reconciled_state import ReconciledState

Deletes = Literal["hard", "soft", "report"]

LEAST_ROWS = 1_000
_SHARE = 10


class Policy(Struct, frozen=True, kw_only=True):
    """The settings of one table, with all defaults applied.

    `max_deletes` is a number of rows, a share such as `5%`, or None for the default. `seconds` and
    `segments` are the budget of a run.
    """

    every: timedelta | None = None
    deletes: Deletes = "report"
    deleted_at: str = "_deleted_at"
    max_deletes: str | int | None = None
    seconds: float | None = None
    segments: int | None = None

    def most_deletes(self, *, target_rows: int, has_source_rows: Callable[[], bool]) -> int:
        """Return how many rows a pass may delete from a target of this many rows.

        By default none if the source has no synced rows left: it was emptied, or it is another
        server.
        """
        if isinstance(self.max_deletes, int):
            return self.max_deletes
        if self.max_deletes is not None:
            return int(target_rows * float(self.max_deletes.removesuffix("%")) / 100)
        return max(LEAST_ROWS, target_rows * _SHARE // 100) if has_source_rows() else 0

    def is_due(self, state: ReconciledState, now: datetime) -> bool:
        """Return whether the schedule asks for a run now.

        A pass in progress continues with each run. A stopped one waits, since an operator must look
        at it; so does a table that could not be compared.
        """
        if self.every is None:
            return False
        if state.status in ("failed", "pending") and state.last_run_time is not None:
            return now - state.last_run_time >= self.every
        if state.pass_started is not None or state.last_finished is None:
            return True
        return now - state.last_finished >= self.every
