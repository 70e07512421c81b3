"""Backfill one table: read a range of rows again, and replace them in the target.

    load → lease → checks of the source → for each chunk: read, check the receipts, commit → load

| step             | a crash right after it leaves                                               |
| ---------------- | --------------------------------------------------------------------------- |
| load what is     | what any load leaves                                                        |
| pending          |                                                                             |
| read a chunk     | files that no manifest lists                                                |
| commit a chunk   | the manifest, pending: any load takes it. The log says how far the backfill |
|                  | is, and the same command continues there                                    |
| load             | done; the count of rows before the start may be too high                    |

The chunks start and end at the table's position, which does not move. Their rows are the source's
current ones, so they replace what the target holds, whatever its version is. A row that changed
beyond the position since is not among them: the next sync brings it. What was read counts as
synced, so that a reconciliation compares it, even before the table's start.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from msgspec import Struct, structs

from floodmark.config.models import TableSettings
from floodmark.errors import LeaseLost, UsageError
from floodmark.model.backfill_result import BackfillResult
from floodmark.model.bound import Bound
from floodmark.model.extraction import Receipt
from floodmark.model.history import RowsBefore
from floodmark.model.log_state import Backfill
from floodmark.model.manifest import Chunk, Reconciled
from floodmark.model.notice import Notice
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.transitions import history_counted
from floodmark.model.unfilled_columns import backfill_hint, describe_unfilled
from floodmark.model.verification import SyncedRange
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.gtids import worth_keeping
from floodmark.mysql.row_estimates import count_outside, estimate_rows
from floodmark.planning.access_path import choose_route
from floodmark.planning.backfill_range import backfill_range
from floodmark.planning.cursor import version_column
from floodmark.planning.cursor_change import describe_cursor
from floodmark.planning.reconcile_ranges import CursorRange
from floodmark.state.lease import Lease
from floodmark.sync.chunks_in_flight import ChunksInFlight, ReadChunk
from floodmark.sync.column_checks import check_columns
from floodmark.sync.extraction import Extraction
from floodmark.sync.load import load_after, load_table
from floodmark.sync.load_result import LoadResult
from floodmark.sync.loading import Loading
from floodmark.sync.machine_clock import check_against_source
from floodmark.sync.new_columns import NewColumns
from floodmark.sync.plan import TablePlan, lake_columns
from floodmark.sync.progress import Progress
from floodmark.sync.reconcile_checks import HeldBack, check_source
from floodmark.sync.reconcile_plan import comparable, plan_reading
from floodmark.sync.result import TableResult, keeping

_ANY_SIZE = 2**63  # no scan along the key that stops half-way: its rows are not a range


class Backfilling(Struct, frozen=True, kw_only=True):
    """How to backfill a table in this run.

    With `restart`, an interrupted backfill of the same range is not continued.
    """

    extraction: Extraction
    loading: Loading
    within: CursorRange
    restart: bool = False
    dry_run: bool = False


def backfill_table(
    backfilling: Backfilling, table: TableName, settings: TableSettings
) -> TableResult:
    """Read the range again, load it, and return what was read."""
    loading, store = backfilling.loading, backfilling.extraction.store
    pending = LoadResult() if backfilling.dry_run else load_table(loading, table)
    with store.lease(table) as lease, backfilling.extraction.source.session() as session:
        run = _Run(backfilling, table, settings, lease, session)
        with keeping(lambda: pending.added_to(run.result)):
            found = run.run()
    return found if backfilling.dry_run else load_after(pending.added_to(found), loading, table)


class _Run:
    """One backfill of one table."""

    def __init__(
        self,
        backfilling: Backfilling,
        table: TableName,
        settings: TableSettings,
        lease: Lease,
        session: MysqlSession,
    ) -> None:
        self._with = backfilling
        self._extraction = backfilling.extraction
        self._store = backfilling.extraction.store
        self._table = table
        self._settings = settings
        self._lease = lease
        self._session = session
        self._began = self._committed = time.monotonic()
        self._in_flight: ChunksInFlight
        self._result = TableResult(table_name=str(table)).beginning("extract", self._store.now())
        self._watermark: Watermark
        self._plan: TablePlan
        self._range: SyncedRange
        self._new = NewColumns()

    def run(self) -> TableResult:
        """Read and commit chunk by chunk."""
        check_against_source(self._session, self._store.now)
        watermark = self._store.get(self._table)
        if watermark is None:
            raise _not_yet(self._table, "nothing of it is synced yet")
        watermark.refuse_moved()
        self._watermark = watermark
        held = self._make_plan()
        if held is not None:
            return structs.replace(
                self._result, status="held_back", held_back=held.reason, hint=held.hint
            )
        reached = self._continued()
        if reached is not None:
            self._plan = structs.replace(self._plan, start=reached.reached)
        found = BackfillResult(
            start=self._range.start,
            end=self._range.end,
            continued=reached.reached if reached else None,
            earlier_rows=self._rows_before(reached) if reached else 0,
        )
        if self._with.dry_run:
            rows = self._plan.expected_rows
            return self._ended(structs.replace(found, rows=rows, dry_run=True))
        self._new = check_columns(
            self._extraction,
            self._table,
            self._watermark,
            self._plan,
            self._settings.schema_changes,
        )
        self._read_chunks()
        if self._result.chunks == 0 and self._watermark.mysql_state.unfilled:
            # No row is left in the range, so none of it lacks a value.
            part = (self._plan.start, self._range.end)
            self._save(lambda current: self._chunk(current, (), *part, since=self._began))
        self._count_history()
        self._report_unfilled()
        return self._ended(
            structs.replace(found, rows=self._result.rows, chunks=self._result.chunks)
        )

    def _make_plan(self) -> HeldBack | None:
        """Plan what to read, and check that the source shows what was synced from it."""
        extraction, watermark, session = self._extraction, self._watermark, self._session
        plan = plan_reading(extraction, session, self._table, self._settings, watermark)
        cursor = plan.choice.cursor
        _refuse(plan, watermark)
        self._range = backfill_range(
            self._table, self._with.within, cursor, watermark.position.base
        )
        held = check_source(extraction, session, watermark, plan)
        if held is not None:
            return held
        start, end = self._range.start, self._range.end
        index, rows = plan.choice.index, plan.source.estimated_rows
        if index is not None:
            rows = estimate_rows(session, plan.source, cursor, start, end, index=index)
        self._plan = structs.replace(
            comparable(plan, self._with.loading),
            columns=plan.columns,  # also those that the target does not have yet
            start=start,
            bound=Bound(position=end),
            expected_rows=rows,
            route=choose_route(plan.source, cursor, start, rows_in_range=0, large=_ANY_SIZE),
        )
        return None

    def _continued(self) -> Backfill | None:
        """Return how far an interrupted backfill of this range is."""
        part = self._watermark.mysql_state.backfill
        if part is None or self._with.restart:
            return None
        return part if (part.first, part.last) == (self._range.start, self._range.end) else None

    def _rows_before(self, reached: Backfill) -> int:
        """Count the rows that an interrupted run has read."""
        rows = 0
        for chunk in self._store.log.chunks(self._table, newest_first=True):
            part = chunk.reconciled.backfill if chunk.reconciled else None
            if part is None or (part.first, part.last) != (reached.first, reached.last):
                continue
            rows += chunk.rows
            if part.start == part.first:
                break
        return rows

    def _read_chunks(self) -> None:
        extraction = self._extraction.of_rows(self._plan.expected_rows)
        chunks = extraction.chunks(
            self._session, self._plan, limit=None, watermark=lambda: self._watermark
        )
        self._in_flight = ChunksInFlight(
            extraction,
            self._plan,
            first=self._watermark.log_state.next_head,
            progress=self._report,
        )
        with closing(chunks), self._in_flight.read(chunks) as found:
            for chunk in found:
                self._commit(chunk)

    def _commit(self, chunk: ReadChunk) -> None:
        plan = chunk.plan
        # Behind the last row there is nothing up to the end.
        reached = self._range.end if plan.final else plan.end

        def change(current: Watermark) -> Chunk:
            chunk.check_next(self._table, current.log_state.next_head)
            return self._chunk(current, chunk.receipts, plan.start, reached, since=chunk.began)

        self._save(change)
        self._add(chunk)
        self._report(finished=chunk.plan.final)

    def _save(self, change: Callable[[Watermark], Chunk]) -> None:
        self._check()
        self._watermark = self._store.commit(self._table, change)
        self._committed, self._new = time.monotonic(), NewColumns()

    def _report_unfilled(self) -> None:
        """Report rows outside of this range that still lack values of new columns."""
        left = self._watermark.mysql_state.unfilled
        if hint := backfill_hint(self._table, left):
            message = f"{self._table}: {describe_unfilled(left)}"
            self._extraction.report(
                Notice("warning", message, "column_unfilled", str(self._table), hint=hint)
            )

    def _check(self) -> None:
        self._with.loading.check()
        self._lease.check()

    def _chunk(
        self,
        current: Watermark,
        receipts: Sequence[Receipt],
        start: Position,
        reached: Position,
        *,
        since: float,
    ) -> Chunk:
        source, cursor = self._plan.source, self._plan.choice.cursor
        if current.position != self._watermark.position:
            raise LeaseLost(
                f"{self._table} was moved during this run", hint="run the command again"
            )
        return Chunk(
            start=current.position,
            end=current.position,
            files=tuple(file for receipt in receipts for file in receipt.files),
            quarantine=tuple(file for receipt in receipts for file in receipt.quarantine),
            strategy=self._extraction.strategy,
            columns=lake_columns(source, self._plan.columns),
            primary_key=source.primary_key,
            version=version_column(source, cursor),
            seconds=round(time.monotonic() - max(since, self._committed), 3),
            server=self._extraction.source.server.identity,
            clock=self._plan.clock,
            cursor=describe_cursor(source, cursor),
            gtids=worth_keeping(self._plan.gtids),
            fills=self._new.fills,
            unfilled=self._new.unfilled,
            reconciled=Reconciled(
                backfill=Backfill(
                    first=self._range.start,
                    last=self._range.end,
                    start=start,
                    reached=reached,
                )
            ),
        )

    def _add(self, chunk: ReadChunk) -> None:
        receipts = chunk.receipts
        files = [file for receipt in receipts for file in receipt.files]
        aside = [file for receipt in receipts for file in receipt.quarantine]
        result = self._result
        self._result = structs.replace(
            result,
            rows=result.rows + sum(file.rows for file in files),
            files=result.files + len(files),
            bytes=result.bytes + sum(file.bytes for file in files),
            chunks=result.chunks + 1,
            quarantined_rows=result.quarantined_rows + sum(file.rows for file in aside),
        )
        self._in_flight.committed(chunk)

    @property
    def result(self) -> TableResult:
        """What is committed so far."""
        return self._result

    def _report(self, *, finished: bool = False) -> None:
        done, slices, rows = self._in_flight.slices
        self._extraction.progress(
            self._table,
            Progress(
                rows=self._result.rows,
                bytes=self._result.bytes,
                expected_rows=self._plan.expected_rows,
                slices_done=done,
                slices=slices,
                seconds=time.monotonic() - self._began,
                chunk_rows=rows,
                finished=finished,
            ),
        )

    def _count_history(self) -> None:
        """Count the rows before the table's start again, if this range ends there or later."""
        before, start = self._watermark.mysql_state.before_start, self._range.start
        if before is None or self._range.end.compare(before.up_to) not in (0, 1):
            return
        if start.compare(before.up_to) in (0, 1):
            return
        left: RowsBefore | None = None
        if not start.is_start:
            choice = self._plan.choice
            count, _ = count_outside(
                self._session,
                self._plan.source,
                choice.cursor,
                index=choice.index,
                up_to=start,
                clock=None,
                most=None,
            )
            left = structs.replace(before, up_to=start, rows=count.rows, exact=count.exact)
        known = left if left and left.rows else None
        self._store.update(self._table, lambda current: history_counted(current, known))

    def _ended(self, found: BackfillResult) -> TableResult:
        seconds = round(time.monotonic() - self._began, 3)
        return structs.replace(
            self._result,
            backfill=structs.replace(found, seconds=seconds),
            seconds=seconds,
            start=found.start,
            end=found.end,
        )


def _refuse(plan: TablePlan, watermark: Watermark) -> None:
    """Raise UsageError if rows of this table cannot be read again one by one."""
    table = plan.source.name
    if plan.choice.cursor.kind == "none":
        raise UsageError(
            f"{table} has no cursor: every sync reads the whole table",
            hint=f"'floodmark sync -t {table}' reads all of it again",
        )
    if watermark.position.is_start:
        raise _not_yet(table, "nothing of it is synced yet")
    if watermark.position.walk is not None:
        raise _not_yet(table, "its first load is not complete")
    if not plan.source.primary_key:
        raise UsageError(
            f"{table} has no primary key, so rows that are read again would be duplicated",
            hint=f"'floodmark watermark reset -t {table} --force' and sync load all of it again; or"
            " add a primary key",
        )


def _not_yet(table: TableName, why: str) -> UsageError:
    return UsageError(f"{table}: {why}", hint=f"'floodmark sync -t {table}' reads it")
