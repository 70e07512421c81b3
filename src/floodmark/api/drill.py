"""Rehearse recovery, and keep the result."""

import time
from datetime import datetime
from threading import Lock
from typing import Self

from msgspec import Struct, structs

from floodmark.api.context import RunContext
from floodmark.errors import DifferenceFound, FloodmarkError
from floodmark.model.formatting import counted
from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.state.drill_scratch import scratch_space
from floodmark.state.last_drill import DrilledTable, LastDrill, record_drill
from floodmark.storage.objects import ObjectStore
from floodmark.storage.threads import in_threads
from floodmark.sync.drill import Rehearsal, TableDrill, drill_or_error

__all__ = ["DrillResult", "LastDrill", "Rehearsal", "TableDrill", "run_drill"]

_KEPT_FAILURES = 3
_AT_ONCE = 4
_REPORT_SECONDS = 5.0


class DrillResult(Struct, frozen=True, kw_only=True):
    """The rehearsals of each table."""

    at: datetime
    tables: tuple[TableDrill, ...]
    seconds: float

    @property
    def failures(self) -> tuple[str, ...]:
        """What could not be recovered."""
        return tuple(failure for table in self.tables for failure in table.failures)

    def raise_for_failures(self) -> Self:
        """Return the result; DifferenceFound if something could not be recovered."""
        if self.failures:
            more = f" (and {len(self.failures) - 1:,} more)" if len(self.failures) > 1 else ""
            raise DifferenceFound(
                f"{self.failures[0]}{more}",
                hint="the state itself was not touched; 'floodmark watermark validate --lake-only'"
                " checks it",
            )
        return self


def run_drill(
    run: RunContext, mirror: ObjectStore | None, tables: list[TableName], *, target: bool
) -> DrillResult:
    """Rehearse the recovery of tables; `run` must use the lake without its mirror."""
    lake, began, at = run.store.objects, time.monotonic(), run.run.clock()
    # Recoveries of scratch are not news.
    quiet = structs.replace(run.run, report=lambda _notice: None)
    with scratch_space(lake, run.run.session_id, run.run.clock) as scratch:
        progress = _Progress(run, len(tables))

        def drill(table: TableName) -> TableDrill:
            result = drill_or_error(lake, scratch, mirror, table, quiet)
            progress.done()
            return result

        found = in_threads(drill, tables, at_once=_AT_ONCE)
    if target:
        found = [_with_load(run, name, drill) for name, drill in zip(tables, found, strict=True)]
    seconds = round(time.monotonic() - began, 3)
    result = DrillResult(at=at, tables=tuple(found), seconds=seconds)
    drilled = ((drill.table_name, _drilled(drill, at)) for drill in found)
    if results := {name: one for name, one in drilled if one is not None}:
        names = {str(table) for table in run.config.tables}
        record_drill(lake, results, names, at=at, author=run.run.author, seconds=seconds)
    return result


class _Progress:
    """Reports every few seconds how many tables are done. Thread-safe."""

    def __init__(self, run: RunContext, tables: int) -> None:
        self._report = run.report
        self._tables = tables
        self._done = 0
        self._reported = time.monotonic()
        self._lock = Lock()

    def done(self) -> None:
        with self._lock:
            self._done += 1
            if time.monotonic() - self._reported < _REPORT_SECONDS:
                return
            self._reported = time.monotonic()
            text = f"drill: {self._done:,} of {counted(self._tables, 'table')} done"
        self._report(Notice("info", text, "progress"))


def _with_load(run: RunContext, table: TableName, drill: TableDrill) -> TableDrill:
    from floodmark.sync.drill_load import NAME, rehearse_load
    from floodmark.tunnels.tunnel import Tunnels

    try:
        with Tunnels(run.folder) as tunnels, tunnels.through(run.target(table)) as connection:
            load = rehearse_load(
                run.store.objects,
                run.config.lake,
                connection,
                run.table_settings(table),
                table,
                run.config.target_of(table)[1],
                run.run.clock(),
            )
    except FloodmarkError as error:
        load = Rehearsal(name=NAME, recovered=False, detail=error.message)
    return structs.replace(drill, rehearsals=(*drill.rehearsals, load))


def _drilled(drill: TableDrill, at: datetime) -> DrilledTable | None:
    """Return the result of a table; None if nothing was tried."""
    tried = [one for one in drill.rehearsals if one.recovered is not None]
    if not tried and not drill.failures:
        return None
    return DrilledTable(
        at=at,
        rehearsals=len(tried),
        skipped=len(drill.rehearsals) - len(tried),
        failed=len(drill.failures),
        slowest_seconds=max((one.seconds for one in tried), default=0.0),
        failures=drill.failures[:_KEPT_FAILURES],
    )
