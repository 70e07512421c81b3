"""Rehearse recovery, and keep the result."""

import time
from datetime import datetime
from typing import Self

import msgspec
from msgspec import Struct, structs

from floodmark.api.context import RunContext
from floodmark.errors import DifferenceFound, FloodmarkError
from floodmark.model import lake_layout
from floodmark.model.table import TableName
from floodmark.state.drill_scratch import scratch_space
from floodmark.state.last_drill import LastDrill
from floodmark.storage.objects import ObjectStore
from floodmark.sync.drill import Rehearsal, TableDrill, drill_or_error

__all__ = ["DrillResult", "LastDrill", "Rehearsal", "TableDrill", "run_drill"]

_KEPT_FAILURES = 20


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
        found = [drill_or_error(lake, scratch, mirror, table, quiet) for table in tables]
    if target:
        found = [_with_load(run, name, drill) for name, drill in zip(tables, found, strict=True)]
    seconds = round(time.monotonic() - began, 3)
    result = DrillResult(at=at, tables=tuple(found), seconds=seconds)
    lake.put(lake_layout.LAST_DRILL, msgspec.json.encode(_summary(result, run.run.author)))
    return result


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


def _summary(result: DrillResult, author: str) -> LastDrill:
    tried = [r for table in result.tables for r in table.rehearsals]
    return LastDrill(
        at=result.at,
        author=author,
        tables=len(result.tables),
        rehearsals=sum(r.recovered is not None for r in tried),
        skipped=sum(r.recovered is None for r in tried),
        failed=len(result.failures),
        seconds=result.seconds,
        slowest_seconds=max((r.seconds for r in tried), default=0.0),
        failures=result.failures[:_KEPT_FAILURES],
    )
