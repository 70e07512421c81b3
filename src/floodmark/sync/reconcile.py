"""Reconcile one table: make the target equal to the source, deletes included.

    load → lease → checks of the source → find differences → guard → read rows → commit → load

| step                         | a crash right after it leaves                                  |
| ---------------------------- | -------------------------------------------------------------- |
| load what is pending         | what any load leaves                                           |
| find differences             | nothing                                                        |
| write rows and deleted keys  | files that no manifest lists                                   |
| record the start of the pass | that time                                                      |
| commit the manifest          | the manifest, pending: the next sync or reconciliation loads   |
|                              | it. The pass repeats this part, and finds nothing any more     |
| load                         | the same, already loaded                                       |
| record the place             | done                                                           |

The manifest counts what it deletes and repairs, so that nothing counts twice. It starts and ends at
the table's position, which does not move. Rows that change while this runs are not lost: what is
beyond the position is left to the next sync, and a deleted key applies only to rows of earlier
manifests, so a row that comes back survives.
"""

import time
from collections.abc import Callable, Iterable

from msgspec import structs

from floodmark.config.models import TableSettings
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model.extraction import ColumnPlan
from floodmark.model.formatting import counted
from floodmark.model.position import Position
from floodmark.model.reconcile_result import ReconcileResult, merged
from floodmark.model.reconciled_state import (
    ReconciledState,
    advanced,
    begun,
    finished,
    skipped,
    stopped,
)
from floodmark.model.reconciliation import IntervalDifferences, Place
from floodmark.model.table import TableName
from floodmark.model.verification import SyncedRange
from floodmark.model.watermark import Watermark
from floodmark.planning.reconcile_ranges import clipped
from floodmark.state.lease import Lease
from floodmark.sync.column_checks import check_columns
from floodmark.sync.find_differences import find_differences
from floodmark.sync.load import load_table
from floodmark.sync.load_result import LoadResult
from floodmark.sync.machine_clock import check_against_source
from floodmark.sync.plan import TablePlan
from floodmark.sync.reconcile_checks import (
    HeldBack,
    check_source,
    refuse_column,
    refuse_without_key,
    why_skipped,
)
from floodmark.sync.reconcile_commit import chunk_of, write_files
from floodmark.sync.reconcile_guard import Excess, excess_deletes, has_synced_rows, refusal
from floodmark.sync.reconcile_plan import (
    comparable,
    loaded_position,
    loaded_ranges,
    plan_reading,
    refuse_type_of_mark,
)
from floodmark.sync.reconcile_report import add_reconciliation, keys_alone, moved_before
from floodmark.sync.reconciliation import Reconciliation
from floodmark.sync.repair import gone
from floodmark.sync.result import TableResult, attach, done_before

_MOST_FOUND = 500_000  # keys in memory; the next run continues
_KEPT = (
    "stayed in the target: a trigger or rule there keeps rows, or they were inserted again; the"
    " next reconciliation checks again"
)


def reconcile_after(
    synced: TableResult, reconciliation: Reconciliation, table: TableName, settings: TableSettings
) -> TableResult:
    """Reconcile a table after its load; a failure keeps the result so far."""
    run = _Run(reconciliation, table, settings)
    synced = synced.beginning("reconcile", run.since)
    try:
        found = run.run()
    except Exception as error:
        synced = run.loaded.added_to(synced)
        if isinstance(error, FloodmarkError):
            return synced.with_failure(error, "reconcile")
        attach(error, synced)
        raise
    return add_reconciliation(
        run.loaded.added_to(synced), found, table, reconciliation.loading.target_name
    )


class _Run:
    """One run over one table."""

    def __init__(
        self, reconciliation: Reconciliation, table: TableName, settings: TableSettings
    ) -> None:
        self._with = reconciliation
        self._extraction = reconciliation.extraction
        self._loading = reconciliation.loading
        self._store = reconciliation.extraction.store
        self._policy = reconciliation.policy
        self._columns: tuple[ColumnPlan, ...] = ()
        self._whole = reconciliation.within.is_whole and reconciliation.known is None
        self._table = table
        self._settings = settings
        self._ranges: list[SyncedRange]
        self._loaded: Position
        self._marked: str | None
        self._began = time.monotonic()
        self.since = self._store.now()
        self.loaded = LoadResult()

    def run(self) -> ReconcileResult | HeldBack:
        """Reconcile the table; by a schedule, only note that it cannot be compared."""
        try:
            return self._reconcile()
        except UsageError as error:
            if not self._with.scheduled:
                raise
            return self._skipped(error.message)

    def _reconcile(self) -> ReconcileResult | HeldBack:
        """Find differences, repair them, and record how far the pass is."""
        if not self._with.dry_run:
            self._load()
        with self._store.lease(self._table, "reconcile") as lease:
            watermark = self._store.get(self._table)
            if watermark is None:
                return ReconcileResult(skipped="nothing is loaded yet")
            watermark.refuse_moved()
            plan = self._plan(watermark)
            if not isinstance(plan, TablePlan):
                return plan
            self._ranges = loaded_ranges(self._store, self._table, watermark, plan)
            if not self._ranges:
                return self._skipped("nothing is loaded yet")
            state = begun(watermark.reconciled_state, self.since, plan.source.primary_key)
            self._marked = watermark.mysql_state.deleted_at
            self._loaded = loaded_position(self._store, self._table, watermark)
            found, place = self._find(lease, plan, state)
            if self._with.dry_run:
                excess = self._excess(plan, state, found)
                allowed = (
                    f"{excess}; '--allow-deletes {excess.total}' allows them" if excess else ""
                )
                remarks = (*found.remarks, *([allowed] if allowed else []))
                return self._timed(structs.replace(found, remarks=remarks))
            self._guard(plan, state, found)
            if found.deleted and self._policy.deletes == "soft":
                refuse_type_of_mark(plan, self._loading, self._policy.deleted_at)
            found = self._commit(lease, plan, watermark, found)
        if found.manifest:
            loaded = self._load()
            if loaded.manifests and loaded.deleted_rows < found.removed:
                kept = counted(found.removed - loaded.deleted_rows, "deleted row")
                found = structs.replace(found, remarks=(*found.remarks, f"{kept} {_KEPT}"))
        if self._whole:
            self._record(plan, found, place)
        return self._timed(found)

    def _load(self) -> LoadResult:
        """Load what is pending; its time belongs to the reconciliation."""
        loaded = LoadResult()
        try:
            loaded = load_table(self._loading, self._table)
        except Exception as error:
            loaded = done_before(error, loaded)
            raise
        finally:
            self.loaded = self.loaded.plus(structs.replace(loaded, seconds=0.0, began=None))
        return loaded

    def _skipped(self, reason: str) -> ReconcileResult:
        if self._with.scheduled:
            now = self._store.now()
            self._update(lambda state: skipped(state, reason, now))
        return self._timed(ReconcileResult(skipped=reason))

    def _timed(self, found: ReconcileResult) -> ReconcileResult:
        return structs.replace(found, seconds=round(time.monotonic() - self._began, 3))

    def _plan(self, watermark: Watermark) -> TablePlan | HeldBack | ReconcileResult:
        """Plan how to read the table, and check that the source shows what was loaded from it."""
        extraction = self._extraction
        with extraction.source.session() as session:
            check_against_source(session, self._store.now)
            plan = plan_reading(extraction, session, self._table, self._settings, watermark)
            if (reason := why_skipped(plan, watermark.position)) is not None:
                return self._skipped(reason)
            refuse_without_key(plan.source)
            if self._policy.deletes == "soft":
                marked = watermark.mysql_state.deleted_at
                refuse_column(extraction, plan.source, self._policy.deleted_at, marked)
            held = check_source(extraction, session, watermark, plan)
        self._columns = plan.columns
        return held or comparable(plan, self._loading)

    def _find(
        self, lease: Lease, plan: TablePlan, state: ReconciledState
    ) -> tuple[ReconcileResult, Place | None]:
        """Compare within the budget; return what differs, and the place where the rest begins."""
        found: list[IntervalDifferences] = []
        for interval in self._intervals(lease, plan, state):
            found.append(interval)
            if interval.through is not None and self._is_spent(found):
                break
        place = found[-1].through if found else None
        by_key = plan.choice.cursor.timestamp is None and self._with.known is None
        alone = (keys_alone(self._table),) if by_key else ()
        result = structs.replace(
            merged(plan.source.primary_key, found),
            deletes=self._policy.deletes,
            dry_run=self._with.dry_run,
            complete=self._whole and place is None,
            pass_started=state.pass_started if self._whole else None,
            remarks=(*alone, *moved_before(self._table, self._ranges, found)),
        )
        return result, place

    def _intervals(
        self, lease: Lease, plan: TablePlan, state: ReconciledState
    ) -> Iterable[IntervalDifferences]:
        if self._with.known is not None:
            known = self._with.known(plan)
            return [structs.replace(known, deleted=gone(self._extraction, plan, known.deleted))]
        return find_differences(
            self._extraction,
            self._loading.open_target,
            self._loading.target_name,
            plan,
            clipped(self._ranges, self._with.within, plan.choice.cursor),
            loaded=self._loaded,
            start=state.place if self._whole else None,
            # A replica may lack rows that were read elsewhere, after the loaded position.
            all_shown=self._whole and self._extraction.source.activity().unseen is None,
            deleted_at=self._marked,
            check=lambda: self._check(lease),
        )

    def _check(self, lease: Lease) -> None:
        self._loading.check()
        lease.check()

    def _is_spent(self, found: list[IntervalDifferences]) -> bool:
        policy = self._policy
        late = policy.seconds is not None and time.monotonic() - self._began >= policy.seconds
        many = policy.segments is not None and len(found) >= policy.segments
        return late or many or sum(one.count for one in found) >= _MOST_FOUND

    def _guard(self, plan: TablePlan, state: ReconciledState, found: ReconcileResult) -> None:
        """Raise DifferenceFound if the pass would delete more rows than allowed."""
        if (excess := self._excess(plan, state, found)) is None:
            return
        error, now = refusal(self._table, self._policy, excess, found), self._store.now()
        self._update(lambda state: stopped(state, error.message, now))
        raise error

    def _excess(
        self, plan: TablePlan, state: ReconciledState, found: ReconcileResult
    ) -> Excess | None:
        return excess_deletes(
            self._policy,
            self._with.allowed,
            self._loading,
            plan,
            state if self._whole else None,
            found,
            marked=self._marked,
            has_source_rows=lambda: has_synced_rows(self._extraction.source, plan, self._ranges),
        )

    def _commit(
        self, lease: Lease, plan: TablePlan, watermark: Watermark, found: ReconcileResult
    ) -> ReconcileResult:
        """Write the rows to repair and the deleted keys, and commit both in one manifest."""
        left = len(found.deleted) if self._policy.deletes == "report" else 0
        found = structs.replace(found, left=left)
        if found.differences == left:
            return found
        # Rows are written with all columns, also those that the target does not have yet.
        plan = structs.replace(plan, columns=self._columns)
        new = check_columns(
            self._extraction, self._table, watermark, plan, self._settings.schema_changes
        )
        if new.notice:
            self._extraction.report(new.notice)
        written = write_files(self._extraction, plan, self._table, watermark, found)
        self._check(lease)
        if self._whole:
            self._update(lambda state: begun(state, self.since, plan.source.primary_key))
        saved = self._store.commit(
            self._table,
            lambda current: chunk_of(
                self._extraction,
                plan,
                watermark,
                current,
                found,
                written,
                new,
                self._policy,
                self._began,
            ),
        )
        return structs.replace(
            found,
            repaired=written.repaired,
            removed=written.deleted,
            manifest=saved.mysql_state.last_manifest,
        )

    def _record(self, plan: TablePlan, found: ReconcileResult, place: Place | None) -> None:
        """Record how far the pass is, once everything found so far is loaded."""
        rows, left, now = found.source_rows, found.left, self._store.now()

        def change(state: ReconciledState) -> ReconciledState:
            state = begun(state, self.since, plan.source.primary_key)
            if place is None:
                return finished(state, rows=rows, left=left, now=now)
            return advanced(state, place=place, rows=rows, left=left, now=now)

        self._update(change)

    def _update(self, change: Callable[[ReconciledState], ReconciledState]) -> None:
        self._store.update(
            self._table,
            lambda w: structs.replace(w, reconciled_state=change(w.reconciled_state)),
        )
