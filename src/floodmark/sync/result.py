"""The result of a run for each table."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Self, TypeVar

from msgspec import Struct, structs

from floodmark.errors import FloodmarkError
from floodmark.model.backfill_result import BackfillResult
from floodmark.model.history import RowCount, RowsBefore
from floodmark.model.position import Position
from floodmark.model.reconcile_result import ReconcileResult
from floodmark.model.run import WorkStage
from floodmark.model.takeover_result import TakeoverResult
from floodmark.model.verification import VerificationResult

D = TypeVar("D")
_ATTRIBUTE = "floodmark_done"


@contextmanager
def keeping(so_far: Callable[[], object]) -> Iterator[None]:
    """Attach what was done so far to an error that leaves the block, so that it is reported."""
    try:
        yield
    except Exception as error:
        attach(error, so_far())
        raise


def attach(error: Exception, done: object) -> None:
    """Attach what was done before an error."""
    setattr(error, _ATTRIBUTE, done)


def done_before(error: Exception, nothing: D) -> D:
    """Return what was done before an error; `nothing` if that is unknown."""
    done = getattr(error, _ATTRIBUTE, None)
    return done if isinstance(done, type(nothing)) else nothing


class TableResult(Struct, frozen=True, kw_only=True):
    """Result of a run for one table, complete or failed.

    `stage` is the one that failed, or found a difference. `known_warnings` are those that an
    earlier run reported. `fresh` and `loaded_fresh` are the times up to which everything in the
    source is read, and loaded. `began_at` has the time at which each stage began.
    """

    table_name: str
    status: str = "success"
    rows: int = 0
    files: int = 0
    bytes: int = 0
    chunks: int = 0
    seconds: float = 0.0
    start: Position | None = None
    end: Position | None = None
    warnings: tuple[str, ...] = ()
    known_warnings: tuple[str, ...] = ()
    zero_dates: dict[str, int] = {}
    worker_peak_bytes: int = 0
    loaded_rows: int = 0
    quarantined_rows: int = 0
    deleted_rows: int = 0
    loaded_manifests: int = 0
    load_seconds: float = 0.0
    target_changes: tuple[str, ...] = ()
    adopted_files: int = 0
    adopted_rows: int = 0
    left_out_files: int = 0
    left_out_manifests: int = 0
    left_out_rows: int = 0
    before_start: RowsBefore | None = None
    future_rows: RowCount = RowCount()
    verification: VerificationResult | None = None
    reconciliation: ReconcileResult | None = None
    backfill: BackfillResult | None = None
    takeover: TakeoverResult | None = None
    held_back: str | None = None
    fresh: datetime | None = None
    loaded_fresh: datetime | None = None
    began_at: dict[WorkStage, datetime] = {}
    stage: WorkStage | None = None
    error: str | None = None
    hint: str | None = None
    exit_code: int = 0

    def with_failure(self, error: FloodmarkError, stage: WorkStage) -> Self:
        """Return this result with the error of a stage."""
        return structs.replace(
            self,
            status="failed",
            stage=stage,
            error=error.message,
            hint=error.hint,
            exit_code=error.exit_code,
        )

    def beginning(self, stage: WorkStage, now: datetime) -> Self:
        """Return this result with the time at which a stage began."""
        return structs.replace(self, began_at={**self.began_at, stage: now})

    @property
    def failed(self) -> bool:
        """Whether the table needs attention."""
        return self.error is not None
