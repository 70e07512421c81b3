"""Stage 1 of one table: from MySQL into the lake, chunk by chunk.

    lease → watermark → plan → for each chunk: read all windows, check the receipts, commit

A crash before a commit leaves files that nobody names; the next run starts at the last commit.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct, structs

from floodmark.config.models import (
    ExtractionSettings,
    LakeSettings,
    TableSettings,
)
from floodmark.errors import ExitCode, FloodmarkError, LeaseLost, WrongClock
from floodmark.model.extraction import ChunkPlan, Receipt, Window
from floodmark.model.history import StartedBy
from floodmark.model.manifest import Change, Chunk
from floodmark.model.notice import Report
from floodmark.model.position import START, Position
from floodmark.model.run import Strategy
from floodmark.model.table import TableName
from floodmark.model.transitions import (
    extract_failed,
    extract_started,
    history_counted,
    nothing_new,
)
from floodmark.model.verification import Comparison, WindowPair
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.replication import worth_keeping
from floodmark.planning.columns import refuse_names
from floodmark.planning.cursor import version_column
from floodmark.planning.cursor_change import describe_cursor
from floodmark.planning.next_position import position_after
from floodmark.state.lease import Lease
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.clock_change import check_clock_change
from floodmark.sync.cursor_check import last_chunk, refuse_another_time
from floodmark.sync.extraction_job import extraction_job
from floodmark.sync.hash_warning import clear_text_left
from floodmark.sync.history import Outside, remarks_on, rows_outside
from floodmark.sync.log_facts import known_of
from floodmark.sync.machine_clock import check_against_source
from floodmark.sync.new_columns import find_fills
from floodmark.sync.plan import TablePlan, chunks_of, lake_columns, plan_table
from floodmark.sync.receipt_check import check_receipts
from floodmark.sync.result import TableResult
from floodmark.sync.server_change import check_server_change
from floodmark.sync.source import Source

if TYPE_CHECKING:
    from floodmark.worker.compare_window import VerificationJob
    from floodmark.worker.job import ExtractionJob


Item = TypeVar("Item")

_ALMOST = 0.99


class Progress(Struct, frozen=True, kw_only=True):
    """How far a table has come in this run. Rows and bytes are those of committed chunks.

    Of the `chunk_rows` that a chunk under way will have, by its plan, some windows are done.
    """

    rows: int
    bytes: int
    expected_rows: int
    windows_done: int
    windows: int
    seconds: float
    chunk_rows: int = 0
    finished: bool = False

    @property
    def read_rows(self) -> int:
        """The rows that are read, also in the chunk that is not committed yet."""
        return self.rows + self.chunk_rows * self.windows_done // max(1, self.windows)

    @property
    def share(self) -> float:
        """How much of the expected rows is read; all of it only once it is committed."""
        read = self.read_rows / max(1, self.expected_rows)
        return 1.0 if self.finished else min(_ALMOST, read)


class Engine(Protocol):
    """Whatever reads windows into the lake."""

    def extract(
        self, job: "ExtractionJob", windows: Sequence[Window], progress: Callable[[int], None]
    ) -> list[Receipt]:
        """Read all windows of a chunk."""

    def compare(self, job: "VerificationJob", pairs: Sequence[WindowPair]) -> list[Comparison]:
        """Compare windows with the target."""


class Extraction(Struct, frozen=True, kw_only=True):
    """How tables are extracted in this run; `prepare` is called when there is something to read.

    `reserved` tells which names of columns the target keeps for its own.
    """

    store: WatermarkStore
    source: Source
    settings: ExtractionSettings
    lake: LakeSettings
    engine: Engine
    strategy: Strategy
    session_id: str
    default_start: Position
    start_by: StartedBy = "default"
    limit: int | None = None
    reserved: Callable[[Iterable[str]], Sequence[str]] = lambda _names: ()
    prepare: Callable[[], None] = lambda: None
    progress: Callable[[TableName, Progress], None] = lambda _table, _progress: None
    report: Report = lambda _notice: None


def extract_table(extraction: Extraction, table: TableName, wanted: TableSettings) -> TableResult:
    """Bring everything new of a table into the lake, and say how much that was."""
    store = extraction.store
    with store.lease(table) as lease:
        try:
            with extraction.source.session() as session:
                check_against_source(session, store.now)
                watermark = store.get(table)
                if watermark is not None:
                    watermark.refuse_moved()
                run = _TableRun(extraction, table, lease, watermark)
                if run.follow(session, wanted).walked and not run.is_full:
                    # The walk may have taken long, or begun long ago: its bound is an old one.
                    run.follow(session, wanted, since=time.monotonic())
                return run.finish()
        except FloodmarkError as error:
            # The position stays; what went wrong is there for whoever looks next.
            if error.exit_code == ExitCode.FAILED and not isinstance(error, WrongClock):
                message = error.message
                store.update(table, lambda current: extract_failed(current, message))
            raise


class _TableRun:
    """One table's chunks in this run, added up."""

    def __init__(
        self,
        extraction: Extraction,
        table: TableName,
        lease: Lease,
        watermark: Watermark | None,
    ) -> None:
        self._extraction = extraction
        self._table = table
        self._lease = lease
        self._watermark = watermark
        self._began = time.monotonic()
        self._plan: TablePlan
        self._asked: TablePlan | None = None
        self._fills: dict[str, str | None] = {}
        self._outside = Outside()
        self._result = TableResult(table_name=str(table), status="success")

    @property
    def is_full(self) -> bool:
        """Whether as many rows were read as may be."""
        limit = self._extraction.limit
        return limit is not None and self._result.rows >= limit

    @property
    def _reloads(self) -> bool:
        return self._plan.choice.cursor.kind == "none"

    def follow(
        self, session: MysqlSession, wanted: TableSettings, since: float = float("-inf")
    ) -> TablePlan:
        """Plan what is new behind the table's position, and read all of it."""
        extraction, result = self._extraction, self._result
        limit = None if extraction.limit is None else extraction.limit - result.rows
        plan = self._plan = plan_table(
            extraction.source,
            session,
            self._table,
            wanted,
            extraction.settings,
            position=self._watermark.position if self._watermark else START,
            known=known_of(extraction.store.log, self._table, self._watermark),
            default_start=extraction.default_start,
            limit=limit,
            since=since,
        )
        names = extraction.reserved(column.name for column in plan.columns)
        refuse_names(plan.source, plan.choice.cursor, names)
        outside = rows_outside(
            session, plan, self._watermark, extraction.start_by, extraction.store.now()
        )
        self._outside = outside = outside.after(self._outside)
        self._refuse_repetition()
        if self._watermark and self._watermark.mysql_state.cursor is None:
            refuse_another_time(
                extraction.store, plan.source, plan.choice.cursor, self._watermark.position
            )
        check_clock_change(extraction.source, extraction.settings, self._watermark, plan)
        check_server_change(
            extraction.store, extraction.source, session, self._watermark, plan, extraction.report
        )
        self._result = structs.replace(
            result,
            start=result.start if result.chunks else plan.start,
            end=plan.start,
            before_start=outside.before if outside.begins else None,
            future_rows=outside.future,
            warnings=tuple(dict.fromkeys((*result.warnings, *plan.warnings))),
        )
        chunks = chunks_of(
            session,
            plan,
            extraction.settings,
            windows_per_chunk=extraction.settings.windows_at_once(extraction.strategy),
            limit=limit,
            found=extraction.prepare,
        )
        for chunk in prefetch(chunks):
            self._read(chunk)
        return plan

    def _refuse_repetition(self) -> None:
        """FloodmarkError if another cursor has read rows without a key: they would be there twice.

        Where an operator moved the position meanwhile, that was asked for.
        """
        table, cursor, watermark = self._table, self._plan.choice.cursor, self._watermark
        if watermark is None or self._plan.source.primary_key or self._reloads:
            return
        position = watermark.position
        begun = position.timestamp if cursor.kind == "timestamp" else position.id
        chunk = last_chunk(self._extraction.store, table) if begun is None else None
        if chunk is not None and chunk.rows:
            raise FloodmarkError(
                f"{table} has no primary key, and was read before by another cursor: read by"
                f" {cursor} from the start, its rows would be there twice",
                hint=f"'floodmark watermark reset -t {table}', then sync, empties its table in the"
                " target and reads it anew; or name the cursor that it had",
            )

    def _read(self, plan: ChunkPlan) -> None:
        """Read a chunk's windows and commit them."""
        began = time.monotonic()
        extraction = self._extraction
        self._lease.check()
        if self._result.chunks == 0:
            before = self._outside.before
            self._watermark = extraction.store.update(
                self._table, lambda current: extract_started(history_counted(current, before))
            )
            log = extraction.store.log
            if left := clear_text_left(log, self._table, self._watermark, self._plan):
                extraction.report(left)
        self._find_fills()
        sequence = self._watermark.standing.next_head.sequence if self._watermark else 1
        job = extraction_job(extraction, self._plan, self._table, sequence)
        receipts = extraction.engine.extract(job, plan.windows, lambda done: self._tell(done, plan))
        check_receipts(plan, receipts)
        self._lease.check()
        self._watermark = extraction.store.commit(
            self._table, lambda current: self._chunk(current, plan, receipts, began)
        )
        self._add(plan, receipts)
        self._tell(0, plan, finished=plan.final)

    def _find_fills(self) -> None:
        """Ask once a plan for the values of columns that are new in it."""
        extraction, self._fills = self._extraction, {}
        if self._watermark is not None and self._plan is not self._asked:
            self._asked = self._plan
            self._fills = find_fills(
                extraction.source,
                extraction.store.log,
                self._watermark,
                self._plan,
                extraction.settings.zero_dates,
                extraction.report,
            )

    def finish(self) -> TableResult:
        """Say what was done, when there are no more chunks."""
        result, plan, outside = self._result, self._plan, self._outside
        # What a table that began earlier left out then is shown by 'watermark list'.
        news = outside if outside.begins else structs.replace(outside, before=None)
        told = remarks_on(news, plan.source, plan.choice, synced=result.chunks > 0)
        self._result = structs.replace(result, warnings=(*result.warnings, *map(str, told)))
        store, server = self._extraction.store, self._extraction.source.server.identity
        held, before = plan.held_back, outside.before
        self._lease.note_held(self._plan.held_by)
        self._result = structs.replace(
            self._result, held_back=self._plan.held_by, fresh=self._plan.fresh
        )
        if held is not None:
            self._result = structs.replace(self._result, status="held_back", hint=held.hint)
        elif self._result.chunks == 0 and (before or self._watermark):
            # What is left out is written down also for a table that has no other rows.
            store.update(
                self._table, lambda current: nothing_new(history_counted(current, before), server)
            )
        if self._extraction.limit is None and held is None:
            self._lease.note_in_step(self._plan.fresh)
        return structs.replace(self._result, seconds=time.monotonic() - self._began)

    def _chunk(
        self, current: Watermark, plan: ChunkPlan, receipts: list[Receipt], began: float
    ) -> Change:
        position = self._watermark.position if self._watermark else START
        if current.position != position:
            raise LeaseLost(
                f"{self._table} was moved from {position} to {current.position} meanwhile",
                hint="run the command again",
            )
        end = position_after(plan, receipts, before=position, by_key=self._plan.route.by == "key")
        return Chunk(
            start=position if plan.start.walk else plan.start,
            # The whole table at some moment is no position of any cursor.
            end=START if self._reloads else end,
            files=tuple(file for receipt in receipts for file in receipt.files),
            quarantine=tuple(file for receipt in receipts for file in receipt.quarantine),
            strategy=self._extraction.strategy,
            columns=lake_columns(self._plan.source, self._plan.columns),
            primary_key=self._plan.source.primary_key,
            version=version_column(self._plan.source, self._plan.choice.cursor),
            seconds=round(time.monotonic() - began, 3),
            server=self._extraction.source.server.identity,
            clock=self._plan.clock,
            cursor=describe_cursor(self._plan.source, self._plan.choice.cursor),
            gtids=worth_keeping(self._plan.gtids),
            final=plan.final,
            reload=self._reloads,
            fills=self._fills,
        )

    def _add(self, plan: ChunkPlan, receipts: list[Receipt]) -> None:
        result = self._result
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

    def _tell(self, windows_done: int, plan: ChunkPlan, *, finished: bool = False) -> None:
        self._extraction.progress(
            self._table,
            Progress(
                rows=self._result.rows,
                bytes=self._result.bytes,
                expected_rows=self._plan.expected_rows,
                windows_done=windows_done,
                windows=len(plan.windows),
                seconds=time.monotonic() - self._began,
                chunk_rows=plan.rows,
                finished=finished,
            ),
        )


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the same items, and fetch the next one in a thread while the caller uses the current.

    An error is raised when its item is due. Closing the iterator waits for a fetch that is running.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
