"""Extract one table: from MySQL into the lake, chunk by chunk.

    lease → watermark → plan → for each chunk: read all windows, check the receipts, commit

Several chunks are in flight, and committed in order (`sync.chunks_in_flight`). A crash before a
commit leaves files that no manifest lists; the next run starts at the last commit.

If a table's first run finds nothing to read, it commits a manifest with the columns and no files. A
crash before that leaves nothing; after it, the manifest is loaded by the next run, like any other.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import chain

from msgspec import structs

from floodmark.config.models import (
    TableSettings,
)
from floodmark.errors import FloodmarkError, LeaseLost
from floodmark.model.extraction import ChunkPlan
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Change, Chunk
from floodmark.model.position import START, Position
from floodmark.model.schema_change import SchemaChanges
from floodmark.model.table import TableName
from floodmark.model.transitions import (
    extract_failed,
    extract_started,
    history_counted,
    nothing_new,
)
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.gtids import worth_keeping
from floodmark.planning.columns import refuse_names
from floodmark.planning.cursor import version_column
from floodmark.planning.cursor_change import describe_cursor
from floodmark.planning.next_position import position_after
from floodmark.state.lease import Lease
from floodmark.sync.chunks_in_flight import ChunksInFlight, ReadChunk
from floodmark.sync.clock_change import check_clock_change
from floodmark.sync.column_checks import check_columns
from floodmark.sync.cursor_check import refuse_another_time, refuse_reading_twice
from floodmark.sync.extraction import Extraction
from floodmark.sync.history import Outside, remarks_on, rows_outside
from floodmark.sync.load_while_reading import LoadWhileReading
from floodmark.sync.log_facts import known_of
from floodmark.sync.machine_clock import check_against_source
from floodmark.sync.new_columns import NewColumns
from floodmark.sync.plan import TablePlan, lake_columns, plan_table
from floodmark.sync.progress import Progress
from floodmark.sync.result import TableResult, keeping
from floodmark.sync.server_change import check_server_change


def extract_table(
    extraction: Extraction, table: TableName, table_settings: TableSettings
) -> TableResult:
    """Read everything new of a table into the lake, and return what was read.

    An error has what was read and loaded before it.
    """
    store = extraction.store
    with store.lease(table, "extract") as lease:
        loads = LoadWhileReading(extraction.loading, table, lease)
        run = _TableRun(extraction, table, lease, loads)
        with keeping(lambda: loads.result.added_to(run.so_far)):
            try:
                with loads, extraction.source.session() as session:
                    result = run.read(session, table_settings)
            except FloodmarkError as error:
                # Keep the position, and record the error in the watermark.
                if store.takes_failure(table, error):
                    message = error.message
                    store.update(table, lambda current: extract_failed(current, message))
                raise
        return loads.result.added_to(result)


class _TableRun:
    """Extract one table: plan, check, then read and commit chunk by chunk."""

    def __init__(
        self,
        extraction: Extraction,
        table: TableName,
        lease: Lease,
        loads: LoadWhileReading,
    ) -> None:
        self._extraction = extraction
        self._loads = loads
        self._table = table
        self._lease = lease
        self._watermark: Watermark | None = None
        self._began = self._committed = time.monotonic()
        self._plan: TablePlan
        self._in_flight: ChunksInFlight
        self._policy: SchemaChanges | None = None
        self._new = NewColumns()
        self._outside = Outside()
        now = extraction.store.now()
        self._result = self._nothing = TableResult(table_name=str(table)).beginning("extract", now)

    def read(self, session: MysqlSession, table_settings: TableSettings) -> TableResult:
        """Read everything new."""
        store = self._extraction.store
        check_against_source(session, store.now)
        self._watermark = store.get(self._table)
        if self._watermark is not None:
            self._watermark.refuse_moved()
        if self.follow(session, table_settings).walked and not self.is_full:
            # A first load takes long, or began long ago: its bound is old by now.
            self.follow(session, table_settings, since=time.monotonic())
        return self.finish()

    @property
    def so_far(self) -> TableResult:
        """What is committed, and nothing else."""
        if not self._result.chunks:
            return self._nothing
        return structs.replace(self._result, seconds=time.monotonic() - self._began)

    @property
    def is_full(self) -> bool:
        """Whether the limit of rows is reached."""
        limit = self._extraction.limit
        return limit is not None and self._result.rows >= limit

    @property
    def _reloads(self) -> bool:
        return self._plan.choice.cursor.kind == "none"

    def follow(
        self, session: MysqlSession, table_settings: TableSettings, since: float = float("-inf")
    ) -> TablePlan:
        """Plan what is new after the table's position, and read all of it."""
        limit = self._rows_left
        self._policy = table_settings.schema_changes
        self._plan = self._make_plan(session, table_settings, limit, since)
        self._check_plan(session)
        self._result = self._planned_result()
        rows = self._plan.expected_rows
        extraction = self._extraction.of_rows(rows if limit is None else min(rows, limit))
        chunks = extraction.chunks(
            session, self._plan, limit=limit, watermark=lambda: self._watermark
        )
        with closing(chunks):
            if (found := next(chunks, None)) is not None:
                self._begin()
                self._read(extraction, chain([found], chunks))
        return self._plan

    @property
    def _rows_left(self) -> int | None:
        limit = self._extraction.limit
        return None if limit is None else limit - self._result.rows

    def _make_plan(
        self, session: MysqlSession, table_settings: TableSettings, limit: int | None, since: float
    ) -> TablePlan:
        extraction = self._extraction
        return plan_table(
            extraction.source,
            session,
            self._table,
            table_settings,
            extraction.settings,
            position=self._watermark.position if self._watermark else START,
            known=known_of(extraction.store.log, self._table, self._watermark),
            default_start=extraction.default_start,
            limit=limit,
            since=since,
        )

    def _check_plan(self, session: MysqlSession) -> None:
        """Raise FloodmarkError if reading by this plan would miss or duplicate rows."""
        extraction, plan, watermark = self._extraction, self._plan, self._watermark
        store = extraction.store
        names = extraction.reserved(column.name for column in plan.columns)
        refuse_names(plan.source, plan.choice.cursor, names)
        outside = rows_outside(session, plan, watermark, extraction.start_by, store.now())
        self._outside = outside.after(self._outside)
        if watermark is not None:
            refuse_reading_twice(store, plan.source, plan.choice.cursor, watermark.position)
            if watermark.mysql_state.cursor is None:
                refuse_another_time(store, plan.source, plan.choice.cursor, watermark.position)
        check_clock_change(extraction.source, extraction.settings, watermark, plan)
        check_server_change(store, extraction.source, session, watermark, plan, extraction.report)

    def _planned_result(self) -> TableResult:
        result, plan, outside = self._result, self._plan, self._outside
        return structs.replace(
            result,
            start=result.start if result.chunks else plan.start,
            end=plan.start,
            before_start=outside.before if outside.begins else None,
            future_rows=outside.future,
            warnings=tuple(dict.fromkeys((*result.warnings, *plan.warnings))),
        )

    def _begin(self) -> None:
        """Note that this plan has something to read, and check what that means for the columns."""
        extraction = self._extraction
        self._lease.check()
        if self._result.chunks == 0:
            before = self._outside.before
            self._watermark = extraction.store.update(
                self._table, lambda current: extract_started(history_counted(current, before))
            )
        if self._watermark is not None:
            self._new = check_columns(
                extraction, self._table, self._watermark, self._plan, self._policy
            )
            if self._new.notice:
                extraction.report(self._new.notice)

    def _read(self, extraction: Extraction, chunks: Iterator[ChunkPlan]) -> None:
        """Read chunks, several at once, and commit them in order."""
        first = self._watermark.log_state.next_head if self._watermark else ManifestId(1, 1)
        self._in_flight = ChunksInFlight(extraction, self._plan, first=first, progress=self._report)
        with self._in_flight.read(chunks) as found:
            for chunk in found:
                self._commit(chunk)

    def _commit(self, chunk: ReadChunk) -> None:
        self._lease.check()
        self._watermark = self._extraction.store.commit(
            self._table, lambda current: self._chunk(current, chunk)
        )
        self._committed, self._new = time.monotonic(), NewColumns()
        self._add(chunk)
        self._loads.committed(self._watermark, chunk.bytes)
        self._report(finished=chunk.plan.final)

    def finish(self) -> TableResult:
        """Record the end of the extraction, and return its result."""
        result, plan, outside = self._result, self._plan, self._outside
        # For a table that began earlier, 'watermark list' shows the rows before its start.
        news = outside if outside.begins else structs.replace(outside, before=None)
        remarks = remarks_on(news, plan.source, plan.choice, synced=result.chunks > 0)
        self._result = structs.replace(result, warnings=(*result.warnings, *map(str, remarks)))
        store, server = self._extraction.store, self._extraction.source.server.identity
        held, before = plan.held_back, outside.before
        self._lease.note_held(self._plan.held_by)
        self._lease.note_interval(self._extraction.every_seconds)
        known = self._lease.note_warnings(plan.choice.warnings)
        self._result = structs.replace(self._result, known_warnings=known)
        self._result = structs.replace(
            self._result,
            held_back=self._plan.held_by,
            fresh=self._plan.fresh if self._extraction.limit is None or held else None,
        )
        if held is None and self._is_unknown:
            self._watermark = store.commit(self._table, self._empty_chunk)
        if held is not None:
            self._result = structs.replace(self._result, status="held_back", hint=held.hint)
        elif self._result.chunks == 0 and (before or self._watermark):
            # Record the rows left out, even if the table has no others.
            store.update(
                self._table, lambda current: nothing_new(history_counted(current, before), server)
            )
        if self._extraction.limit is None and held is None:
            self._lease.note_in_step(self._plan.fresh)
        return structs.replace(self._result, seconds=time.monotonic() - self._began)

    @property
    def _is_unknown(self) -> bool:
        """Whether nothing was ever read: then only the table's columns are committed."""
        return self._watermark is None or self._watermark.mysql_state.last_manifest is None

    def _empty_chunk(self, current: Watermark) -> Change:
        """Return a chunk without rows, from which the load creates the table.

        It stays at the start, and keeps neither server nor cursor: no row depends on them.
        """
        self._lease.check()
        if current.mysql_state.last_manifest is not None:
            raise self._moved(START, current)
        return Chunk(
            start=START,
            end=START,
            files=(),
            strategy=self._extraction.strategy,
            columns=lake_columns(self._plan.source, self._plan.columns),
            primary_key=self._plan.source.primary_key,
            version=version_column(self._plan.source, self._plan.choice.cursor),
        )

    def _moved(self, position: Position, current: Watermark) -> LeaseLost:
        return LeaseLost(
            f"{self._table} was moved from {position} to {current.position} during this run",
            hint="run the command again",
        )

    def _chunk(self, current: Watermark, chunk: ReadChunk) -> Change:
        plan, receipts = chunk.plan, chunk.receipts
        position = self._watermark.position if self._watermark else START
        if current.position != position:
            raise self._moved(position, current)
        chunk.check_next(self._table, current.log_state.next_head)
        end = position_after(plan, receipts, before=position, by_key=self._plan.route.by == "key")
        return Chunk(
            start=position if plan.start.walk else plan.start,
            # A full reload has no cursor, and so no position.
            end=START if self._reloads else end,
            files=tuple(file for receipt in receipts for file in receipt.files),
            quarantine=tuple(file for receipt in receipts for file in receipt.quarantine),
            strategy=self._extraction.strategy,
            columns=lake_columns(self._plan.source, self._plan.columns),
            primary_key=self._plan.source.primary_key,
            version=version_column(self._plan.source, self._plan.choice.cursor),
            # The time that it took alone: others were read at the same time.
            seconds=round(time.monotonic() - max(chunk.began, self._committed), 3),
            server=self._extraction.source.server.identity,
            clock=self._plan.clock,
            cursor=describe_cursor(self._plan.source, self._plan.choice.cursor),
            gtids=worth_keeping(self._plan.gtids),
            final=plan.final,
            reload=self._reloads,
            fills=self._new.fills,
            unfilled=self._new.unfilled,
        )

    def _add(self, chunk: ReadChunk) -> None:
        result, plan, receipts = self._result, chunk.plan, chunk.receipts
        zero_dates = dict(result.zero_dates)
        for receipt in receipts:
            for column, count in receipt.zero_dates.items():
                zero_dates[column] = zero_dates.get(column, 0) + count
        files = [file for receipt in receipts for file in receipt.files]
        self._result = structs.replace(
            result,
            rows=result.rows + sum(file.rows for file in files),
            files=result.files + len(files),
            bytes=result.bytes + sum(file.bytes for file in files),
            chunks=result.chunks + 1,
            quarantined_rows=result.quarantined_rows
            + sum(file.rows for receipt in receipts for file in receipt.quarantine),
            end=self._watermark.position if self._watermark and not self._reloads else plan.end,
            zero_dates=zero_dates,
            worker_peak_bytes=max(
                [result.worker_peak_bytes, *(receipt.peak_memory_bytes for receipt in receipts)]
            ),
        )
        self._in_flight.committed(chunk)

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
                loaded_rows=self._loads.result.rows,
                finished=finished,
            ),
        )
