"""The results of syncs and comparisons."""

from typing import Self

from msgspec import Struct

from floodmark.errors import (
    BusyError,
    DifferenceFound,
    ExitCode,
    FloodmarkError,
    PartialFailure,
    UsageError,
)
from floodmark.model.notice import Notice
from floodmark.model.verification import VerificationResult
from floodmark.state.lake_validation import Findings
from floodmark.sync.notices import (
    HELD_BACK,
    describe_not_compared,
    failure_of,
    notices_of,
    notices_of_verification,
    reason_of,
)
from floodmark.sync.progress import Progress
from floodmark.sync.result import TableResult
from floodmark.sync.run_tables import exit_code

__all__ = [
    "HELD_BACK",
    "Findings",
    "Progress",
    "SyncResult",
    "TableResult",
    "VerificationResult",
    "describe_not_compared",
    "failure_of",
    "notices_of",
    "notices_of_verification",
    "reason_of",
]

_ERRORS: dict[int, type[FloodmarkError]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.PARTIAL: PartialFailure,
    ExitCode.BUSY: BusyError,
    ExitCode.DIFFERENCE: DifferenceFound,
}


class SyncResult(Struct, frozen=True, kw_only=True):
    """The result of a run for each table, in the order given.

    `notices` are all notices of the run, including those passed to `on_notice`.
    """

    session_id: str
    tables: tuple[TableResult, ...]
    notices: tuple[Notice, ...] = ()

    @property
    def failures(self) -> tuple[TableResult, ...]:
        """The tables that failed, are held by another run, or differ from their source."""
        return tuple(table for table in self.tables if table.failed)

    @property
    def exit_code(self) -> int:
        """The exit code of the equivalent command."""
        return exit_code(self.tables)

    @property
    def rows(self) -> int:
        """Number of rows extracted."""
        return sum(table.rows for table in self.tables)

    @property
    def loaded_rows(self) -> int:
        """Number of rows loaded."""
        return sum(table.loaded_rows for table in self.tables)

    def raise_for_failures(self) -> Self:
        """Return the result, or raise an error if a table failed.

        PartialFailure if other tables succeeded; BusyError if another run holds every table that
        failed; DifferenceFound if source and target differ; UsageError if the configuration must
        change; else FloodmarkError.
        """
        if not self.failures:
            return self
        error = _ERRORS.get(self.exit_code, FloodmarkError)
        reasons = (f"{table.table_name}: {reason_of(table)}" for table in self.failures)
        hint = next((table.hint for table in self.failures if table.hint), None)
        raise error("; ".join(reasons), hint=hint)
