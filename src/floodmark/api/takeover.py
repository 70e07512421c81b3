"""Take over tables: compare all of them first, and change nothing if one does not match."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from msgspec import Struct

from floodmark.api.arguments import expect, expect_flags
from floodmark.api.context import RunContext
from floodmark.api.reconciling import ReconcileOptions, reconciliation_of
from floodmark.errors import UsageError
from floodmark.model.run import WorkStage
from floodmark.model.table import TableName
from floodmark.sync.extraction import Extraction
from floodmark.sync.loading import Loading
from floodmark.sync.reconcile import reconcile_after
from floodmark.sync.result import TableResult
from floodmark.sync.takeover import Takeover, inspect_table, take_table

Work = Callable[[Extraction, Loading], TableResult]
Finished = Callable[[TableName, TableResult, datetime], None]


class Each(Protocol):
    """Runs work for each table."""

    def __call__(
        self, work: Callable[[TableName], TableResult], *, stage: WorkStage, finished: Finished
    ) -> list[TableResult]:
        """Run the work, and return the results in the order of the tables."""


class TakeoverOptions(Struct, frozen=True, kw_only=True):
    """What a caller asked for; see `Project.takeover`."""

    margin: timedelta = timedelta(hours=1)
    skip_mismatches: bool = False
    dry_run: bool = False

    @property
    def given(self) -> dict[str, Any]:
        """The options as values for JSON."""
        flags = {"skip_mismatches": self.skip_mismatches, "dry_run": self.dry_run}
        chosen = {name: True for name, value in flags.items() if value}
        return {"margin_seconds": self.margin.total_seconds(), **chosen}

    def check(self) -> None:
        """Raise UsageError for arguments of a wrong type or out of range."""
        expect("margin", self.margin, timedelta)
        expect_flags(skip_mismatches=self.skip_mismatches, dry_run=self.dry_run)
        if self.margin < timedelta(0):
            raise UsageError(f"margin {self.margin} is negative")


def take_over_tables(
    run: RunContext,
    options: TakeoverOptions,
    tables: Sequence[TableName],
    each: Each,
    with_table: Callable[[TableName, Work], TableResult],
    finished: Finished,
) -> list[TableResult]:
    """Compare all tables; then take over and reconcile those that match."""

    def inspect(table: TableName) -> TableResult:
        return with_table(
            table,
            lambda extraction, loading: inspect_table(
                _takeover_of(run, options, table, extraction, loading),
                table,
                run.table_settings(table),
            ),
        )

    def take(table: TableName) -> TableResult:
        result = found[table]
        if result.failed or result.takeover is None or result.takeover.skipped:
            return result
        return with_table(
            table, lambda extraction, loading: _take(run, options, table, extraction, loading)
        )

    inspected = each(inspect, stage="reconcile", finished=lambda *_end: None)
    found = dict(zip(tables, inspected, strict=True))
    stopped = any(result.failed for result in inspected) and not options.skip_mismatches
    if options.dry_run or stopped:
        return each(lambda table: found[table], stage="reconcile", finished=finished)
    return each(take, stage="reconcile", finished=finished)


def _takeover_of(
    run: RunContext,
    options: TakeoverOptions,
    table: TableName,
    extraction: Extraction,
    loading: Loading,
) -> Takeover:
    policy = run.config.reconcile_policy(table)
    return Takeover(
        extraction=extraction,
        loading=loading,
        margin=options.margin,
        deleted_at=policy.deleted_at if policy.deletes == "soft" else None,
    )


def _take(
    run: RunContext,
    options: TakeoverOptions,
    table: TableName,
    extraction: Extraction,
    loading: Loading,
) -> TableResult:
    settings = run.table_settings(table)
    takeover = _takeover_of(run, options, table, extraction, loading)
    result = take_table(takeover, table, settings)
    if result.failed or result.takeover is None or result.takeover.skipped:
        return result
    how = reconciliation_of(run, table, extraction, loading, ReconcileOptions())
    return reconcile_after(result, how, table, settings)
