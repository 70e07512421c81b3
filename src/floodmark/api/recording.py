"""Record a run in the lake while it goes on, and the failures of its tables.

Recording never fails a run: what cannot be written is reported as a warning.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from threading import Event, Lock, Thread
from typing import Any, Self

from msgspec import Struct, structs

from floodmark import __version__
from floodmark.api.context import RunContext
from floodmark.api.hooks import RunHooks
from floodmark.errors import ExitCode, FloodmarkError, UsageError
from floodmark.model.failure import Failure
from floodmark.model.notice import Notice
from floodmark.model.run import WorkStage
from floodmark.model.run_record import (
    RunNotice,
    RunRecord,
    RunStatus,
    TableOutcome,
    TableRun,
)
from floodmark.model.table import TableName
from floodmark.state.lease import record_failure
from floodmark.state.process_identity import this_process
from floodmark.state.run_records import BEAT, RunRecords
from floodmark.sync.notices import HELD_BACK
from floodmark.sync.result import TableResult
from floodmark.sync.run_tables import exit_code

MOST_NOTICES = 200
_PAUSE_SECONDS = 60.0
IDLE_RECORD = timedelta(hours=1)
"""Rounds in which nothing happens leave one record in this time."""

_STATUSES: dict[int, RunStatus] = {
    ExitCode.DONE: "success",
    ExitCode.PARTIAL: "partial",
    ExitCode.BUSY: "busy",
    ExitCode.DIFFERENCE: "differs",
}
_OUTCOMES: dict[int, TableOutcome] = {ExitCode.BUSY: "busy", ExitCode.DIFFERENCE: "differs"}


class Rounds:
    """What the recorded rounds of a process have reported, so that the same is not repeated."""

    def __init__(self) -> None:
        self.problems: object = None
        self.recorded_at: datetime | None = None
        self.pruned: str = ""
        self.hooks = RunHooks()


class RunTask(Struct, frozen=True, kw_only=True):
    """What a run is to do; `stage` is the one to blame if it fails before any stage."""

    command: str
    tables: tuple[TableName, ...]
    stage: WorkStage = "extract"
    options: dict[str, Any] = {}
    every: timedelta | None = None


class Recording:
    """Writes the record of one run. Use it as a context manager around the run's work.

    A single run is recorded from its start. A round of a series (`every`) is recorded once it has
    something to do (`begin`), once it takes longer than a minute, or at its end if it did anything,
    found another problem than the round before, or if there was no record for an hour.
    """

    def __init__(
        self,
        run: RunContext,
        task: RunTask,
        rounds: Rounds,
        on_result: Callable[[TableResult], None] = lambda _result: None,
    ) -> None:
        self._run = run
        self._on_result = on_result
        self._task = task
        self._rounds = rounds
        self._records = RunRecords(run.store.objects, run.run.clock)
        self._lock = Lock()
        self._stop = Event()
        self._beat = Thread(target=self._keep_writing, name="run record", daemon=True)
        self._began = run.run.clock()
        self._written = self._reported = self._failed = False
        self._pause_until = float("-inf")
        self._results: dict[str, TableRun] = {}
        self._final: tuple[RunStatus, tuple[Notice, ...]] | None = None

    def __enter__(self) -> Self:
        self._beat.start()
        return self

    def start(self) -> None:
        """Write the record of a single run: it is about to begin with its tables."""
        if self._task.every is None:
            self.begin()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._stop.set()
        self._beat.join()
        self._failed = error is not None
        if isinstance(error, FloodmarkError):
            self._blame_all(error)
        self._end(error)

    def begin(self) -> None:
        """Write the record if it is not written yet: there is something to do."""
        with self._lock:
            if not self._written:
                self._save(self._record())

    def add(self, table: TableName, result: TableResult, began: datetime) -> None:
        """Add the result of a table, and record its failure; called from any thread."""
        if result.failed and result.exit_code != ExitCode.BUSY and result.status != "differs":
            stage = result.stage or self._task.stage
            self._blame(table, stage, str(result.error), result.hint, result.exit_code, began)
        with self._lock:
            self._results[result.table_name] = _table_run(result, self._run.run.clock())
        self._on_result(result)

    def finish(self, results: list[TableResult], notices: tuple[Notice, ...]) -> None:
        """Take the results of all tables and the notices of the run for the record."""
        with self._lock:
            self._final = (_STATUSES.get(exit_code(results), "failed"), notices)

    def _end(self, error: BaseException | None) -> None:
        status, notices = self._final or ("failed", ())
        error_text = hint = None
        if error is not None:
            stopped = not isinstance(error, Exception)  # Ctrl-C, SIGTERM
            status = "interrupted" if stopped else "failed"
            if isinstance(error, FloodmarkError):
                error_text, hint = error.message, error.hint
            elif not stopped:
                error_text = f"unexpected {type(error).__name__}: {error}"
        with self._lock:
            now = self._run.run.clock()
            record = structs.replace(
                self._record(),
                status=status,
                ended_at=now,
                error=error_text,
                hint=hint,
                notices=_notices(notices),
            )
            if self._is_news(record, now):
                self._save(record)
        if status != "interrupted":
            self._rounds.hooks.after(self._run, record, lambda: self._save_once(record))
        if status == "success":  # so the clock is not wrong by days
            self._prune(now)

    def _is_news(self, record: RunRecord, now: datetime) -> bool:
        """Return whether to write the record of a round; if so, remember what it reports."""
        rounds = self._rounds
        problems = (
            record.status,
            record.error,
            {(t.table_name, t.status, t.error, t.held_back) for t in record.tables if _ails(t)},
        )
        moved = any(not _ails(table) or table.rows or table.has_changed for table in record.tables)
        same = problems == rounds.problems and not moved and not self._written
        recent = rounds.recorded_at is not None and now - rounds.recorded_at < IDLE_RECORD
        if self._task.every is not None and same and recent:
            return False
        rounds.problems, rounds.recorded_at = problems, now
        return True

    def _record(self) -> RunRecord:
        run, task = self._run.run, self._task
        user, _, host = run.author.partition("@")
        configured = self._run.config.tables
        results = self._results.values()
        idle = [table for table in results if table.is_idle]
        return RunRecord(
            run_id=run.session_id,
            command=task.command,
            options=task.options,
            pipelines=tuple(sorted({configured[t][0] for t in task.tables if t in configured})),
            user=user,
            host=host,
            program=__version__,
            process=this_process(),
            every_seconds=task.every.total_seconds() if task.every else None,
            started_at=self._began,
            seen_at=run.clock(),
            table_count=len(task.tables),
            tables=tuple(table for table in results if not table.is_idle),
            unchanged={table.table_name: table.fresh for table in idle},
            unchanged_loaded=bool(idle)
            and all(
                table.loaded_fresh and table.fresh in (None, table.loaded_fresh) for table in idle
            ),
        )

    def _save(self, record: RunRecord) -> None:
        try:
            self._records.save(record)
            self._written = True
        except FloodmarkError as error:
            self._report(f"the run is not recorded: {error.message}")

    def _save_once(self, record: RunRecord) -> None:
        """Save the record of a round that is no news by itself, unless it is saved."""
        if not self._written:
            self._save(record)

    def _keep_writing(self) -> None:
        while not self._stop.wait(BEAT.total_seconds()):
            with self._lock:
                self._save(self._record())

    def _prune(self, now: datetime) -> None:
        """Remove old records, once a day and process, after a record was written."""
        day = f"{now:%Y%m%d}"
        if not self._written or self._rounds.pruned == day:
            return
        self._rounds.pruned = day
        with suppress(FloodmarkError):  # the next run tries again
            self._records.prune(keep_days=self._run.config.settings.keep_runs_days)

    def _blame_all(self, error: FloodmarkError) -> None:
        """Record an error that stopped the run for all tables that it did not get to."""
        if type(error) is UsageError or error.exit_code == ExitCode.BUSY:
            return
        for table in self._task.tables:
            if str(table) not in self._results:
                stage, code = self._task.stage, error.exit_code
                self._blame(table, stage, error.message, error.hint, code, self._began)

    def _blame(
        self,
        table: TableName,
        stage: WorkStage,
        error: str,
        hint: str | None,
        code: int,
        began: datetime,
    ) -> None:
        if time.monotonic() < self._pause_until:
            return
        run = self._run.run
        now = run.clock()
        failure = Failure(
            stage=stage,
            error=error,
            hint=hint,
            exit_code=code,
            since=now,
            at=now,
            session_id=run.session_id,
        )
        try:
            objects = self._run.store.objects
            record_failure(objects, table, failure, owner=run.author, began=began)
        except FloodmarkError as problem:
            # Not for each of a thousand tables: every try waits for the lake.
            self._pause_until = time.monotonic() + _PAUSE_SECONDS
            self._report(f"failures are not recorded: {problem.message}")

    def _report(self, message: str) -> None:
        """Report a problem of recording, once a run; the error of a failed run matters more."""
        if not self._reported:
            self._reported = True
            self._run.report(Notice("debug" if self._failed else "warning", message, "record"))


def _table_run(result: TableResult, now: datetime) -> TableRun:
    status: TableOutcome = "success"
    if result.failed:
        status = _OUTCOMES.get(result.exit_code, "failed")
    elif result.held_back:
        status = "held_back"
    compared, reconciled = result.verification, result.reconciliation
    if reconciled is not None and reconciled.skipped:
        reconciled = None
    return TableRun(
        table_name=result.table_name,
        status=status,
        rows=result.rows,
        files=result.files,
        bytes=result.bytes,
        loaded_rows=result.loaded_rows,
        quarantined_rows=result.quarantined_rows,
        deleted_rows=result.deleted_rows,
        found=reconciled.counts if reconciled else {},
        verified_rows=compared.rows if compared else 0,
        seconds=round(result.seconds, 3),
        load_seconds=round(result.load_seconds, 3),
        verify_seconds=round(compared.seconds, 3) if compared else 0.0,
        reconcile_seconds=round(reconciled.seconds, 3) if reconciled else 0.0,
        ended_at=now,
        fresh=result.fresh,
        loaded_fresh=result.loaded_fresh,
        began_at=result.began_at,
        held_back=result.held_back,
        stage=result.stage,
        error=result.error,
        hint=result.hint if result.failed else None,
        exit_code=result.exit_code,
    )


def _ails(table: TableRun) -> bool:
    return table.status != "success"


def _notices(notices: tuple[Notice, ...]) -> tuple[RunNotice, ...]:
    """Return what to record; what holds a table back is in its own result."""
    others = [notice for notice in notices if notice.event != HELD_BACK]
    return tuple(
        RunNotice(level=n.level, message=n.message, event=n.event, table=n.table)
        for n in others[:MOST_NOTICES]
    )
