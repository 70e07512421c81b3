"""The state of each table, from the lake alone: no source, no warehouse, no Spark.

| state | meaning |
| --- | --- |
| failing | a stage failed and has not succeeded since, or the table's state cannot be read |
| differs | the last comparison found a difference between source and target |
| held back | something in the source keeps newer rows from being read |
| behind | rows in the lake are not loaded, the last extraction did not finish, the position was moved, or the last complete run is too long ago (`TableStatus.behind_after`) or in the future |
| never synced | no run has read the table to its end, and none has failed |
| in step | everything that was in the source at `fresh` is in the warehouse |

The source may have newer rows at any moment: the lake cannot know. So *behind* means that what is
known is too old, or incomplete.
"""  # noqa: E501

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal, get_args

from msgspec import Struct

from floodmark.api.arguments import Names, as_list
from floodmark.api.context import RunContext
from floodmark.errors import UsageError
from floodmark.model.failure import Failure
from floodmark.model.formatting import counted, span
from floodmark.model.table import TableName
from floodmark.model.timestamps import FIRST_MOMENT, stamped
from floodmark.model.unfilled_columns import backfill_hint, describe_unfilled
from floodmark.model.watermark import Watermark, in_future
from floodmark.state.lease import LeaseDocument
from floodmark.state.watermark_list import Overview, read_overview

State = Literal["failing", "differs", "held back", "behind", "never synced", "in step"]
STATES: tuple[State, ...] = get_args(State)
"""All states, the worst first."""

INTERVALS = 3
"""A table that is synced by rounds is behind after this many intervals."""
LEAST_BEHIND = timedelta(minutes=3)
DEFAULT_BEHIND = timedelta(hours=24)


class TableStatus(Struct, frozen=True, kw_only=True):
    """The state of a table.

    state         see the module
    reason        why, in one line; None if it is in step
    hint          what to do about it, if that is known
    since         since when it is in this state, if that is known
    fresh         everything in the source at this time is in the warehouse; None if unknown
    read_fresh    everything in the source at this time is in the lake; None if unknown
    rows_today    rows that were read since midnight UTC; None if unknown
    verified      when source and target were last compared; None if never
    reconciled    when they were last reconciled; None if never
    failures      the stages that fail, with their errors
    warnings      what the last run found in the table's schema, and columns that are not filled
    running       the session that works on it now, if any
    last_run      when a run last succeeded or failed for it; None if unknown
    pipeline      its pipeline; None if it is in the lake, but no longer configured
    behind_after  how old `fresh` may be
    watermark     the table's watermark; None if there is none, or it cannot be read
    """

    table: TableName
    state: State
    reason: str | None = None
    hint: str | None = None
    since: datetime | None = None
    fresh: datetime | None = None
    read_fresh: datetime | None = None
    rows_today: int | None = None
    verified: datetime | None = None
    reconciled: datetime | None = None
    failures: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()
    running: str | None = None
    last_run: datetime | None = None
    pipeline: str | None = None
    behind_after: timedelta
    watermark: Watermark | None = None

    @property
    def error(self) -> str | None:
        """The last error in one line."""
        if self.failures:
            return self.failures[-1].error
        return self.reason if self.state in ("failing", "differs") else None

    def older_than(self, age: timedelta, now: datetime) -> bool:
        """Return whether the data of a configured table is older than this, or of unknown age."""
        if self.fresh is None or in_future(self.fresh, now):
            return self.pipeline is not None
        return self.pipeline is not None and now - self.fresh > age


def read_status(
    run: RunContext, tables: Names = None, pipelines: Names = None
) -> tuple[TableStatus, ...]:
    """Return the status of tables, the worst first; those no longer configured come last."""
    known = run.config.tables
    wanted: set[TableName] | None = None
    if tables is not None or pipelines is not None:
        wanted = _wanted(run, tables, pipelines)
    now = run.run.clock()
    found = read_overview(run.store, known, remote=run.config.lake.is_s3, write_back=False)
    statuses = [_status(run, seen, now) for seen in found if wanted is None or seen.table in wanted]
    return tuple(sorted(statuses, key=_badness))


def _wanted(run: RunContext, tables: Names, pipelines: Names) -> set[TableName]:
    named = as_list("pipelines", pipelines)
    for pipeline in named:
        if pipeline not in run.config.settings.pipelines:
            raise UsageError(
                f"unknown pipeline {pipeline!r}",
                hint="known pipelines: " + (", ".join(run.config.settings.pipelines) or "none"),
            )
    listed = {t for t, (pipeline, _) in run.config.tables.items() if pipeline in named}
    return {*run.tables(as_list("tables", tables)), *listed}


def _badness(status: TableStatus) -> tuple[object, ...]:
    fresh = status.fresh or FIRST_MOMENT
    return status.pipeline is None, STATES.index(status.state), fresh, status.table


def _status(run: RunContext, seen: Overview, now: datetime) -> TableStatus:
    entry = run.config.tables.get(seen.table)
    pipeline = run.config.settings.pipelines[entry[0]] if entry else None
    lease, watermark = seen.lease, seen.watermark
    limit = _behind_after(pipeline.behind_hours if pipeline else None, lease)
    read_fresh, fresh = _freshness(watermark, lease)
    state, reason, since = _judge(seen, now, fresh, limit)
    running = lease.session_id if lease and lease.held(now) else None
    syncs = entry is not None and running is None
    return TableStatus(
        table=seen.table,
        state=state,
        reason=reason,
        hint=_hint(seen, state) or (_hint_to_sync(seen, state, fresh, now) if syncs else None),
        since=since,
        fresh=fresh,
        read_fresh=read_fresh,
        rows_today=_rows_today(watermark, now),
        verified=watermark.verified_state.last_verified_time if watermark else None,
        reconciled=watermark.reconciled_state.last_finished if watermark else None,
        failures=tuple(sorted(lease.failures, key=lambda f: f.at)) if lease else (),
        warnings=(*(lease.warnings if lease else ()), *_unfilled(watermark)),
        running=running,
        last_run=_last_run(lease),
        pipeline=entry[0] if entry else None,
        behind_after=limit,
        watermark=watermark,
    )


def _behind_after(hours: float | None, lease: LeaseDocument | None) -> timedelta:
    if hours is not None:
        return timedelta(hours=hours)
    if lease is None or lease.every_seconds is None:
        return DEFAULT_BEHIND
    return max(LEAST_BEHIND, timedelta(seconds=INTERVALS * lease.every_seconds))


def _unfilled(watermark: Watermark | None) -> tuple[str, ...]:
    """Return a warning if older rows lack values of new columns."""
    left = watermark.mysql_state.unfilled if watermark else ()
    hint = backfill_hint(watermark.table_name, left) if watermark else None
    return (f"{describe_unfilled(left)}; {hint}",) if hint else ()


def _freshness(
    watermark: Watermark | None, lease: LeaseDocument | None
) -> tuple[datetime | None, datetime | None]:
    """Return the times up to which everything is read, and loaded."""
    read = lease.in_step_at if lease else None
    if watermark is None:
        return read, read
    extract, load = watermark.mysql_state, watermark.redshift_state
    if _moved(watermark) and extract.chunk_count == 0:
        return None, None  # it was reset
    if read is None and lease is not None and lease.succeeded_at is None:
        read = extract.last_extraction_time  # earlier versions recorded nothing else
    if extract.total_rows == 0 or load.status == "success":
        return read, read
    return read, lease.loaded_fresh if lease else None


def _judge(
    seen: Overview, now: datetime, fresh: datetime | None, limit: timedelta
) -> tuple[State, str | None, datetime | None]:
    """Return the state of a table, the reason, and since when."""
    watermark, lease = seen.watermark, seen.lease
    if seen.problem is not None:
        return "failing", seen.problem, None
    for failure in _failures(watermark, lease):
        return "failing", f"{failure.stage} failed: {failure.error}", failure.since
    if watermark is not None and watermark.verified_state.status == "failed":
        compared = watermark.verified_state
        return "differs", compared.error, compared.last_verified_time
    if watermark is not None and watermark.reconciled_state.left:
        state = watermark.reconciled_state
        rows = counted(state.left, "row")
        return "differs", f"{rows} deleted in the source", state.last_run_time
    if lease is not None and lease.held_by:
        return "held back", lease.held_by, lease.held_since
    if watermark is not None:
        for reason, since in _unfinished(watermark):
            return "behind", reason, since
    if fresh is None:
        if watermark is None or watermark.mysql_state.chunk_count == 0:
            return "never synced", None, None
        return "behind", "not read to the end yet", watermark.mysql_state.last_extraction_time
    if in_future(fresh, now):
        reason = f"its data is as of {stamped(fresh)}, in the future: a clock is or was wrong"
        return "behind", reason, None
    if now - fresh > limit:
        return "behind", f"no complete run for {span(now - fresh)}", fresh + limit
    return "in step", None, None


def _hint(seen: Overview, state: State) -> str | None:
    watermark = seen.watermark
    if state == "failing" and seen.problem is None:
        return next((failure.hint for failure in _failures(watermark, seen.lease)), None)
    if state == "differs" and watermark is not None:
        if watermark.verified_state.status == "failed":
            return f"'floodmark sync -t {seen.table} --verify-data --repair' loads them again"
        return f"'floodmark reconcile -t {seen.table} --deletes hard' removes them from the target"
    return None


def _hint_to_sync(
    seen: Overview, state: State, fresh: datetime | None, now: datetime
) -> str | None:
    """Return the command that ends what only is not done yet; a wrong clock it cannot set."""
    if state == "never synced":
        return f"'floodmark sync -t {seen.table}' reads it"
    if state == "behind" and not (fresh is not None and in_future(fresh, now)):
        return f"'floodmark sync -t {seen.table}' reads and loads what is new"
    return None


def _last_run(lease: LeaseDocument | None) -> datetime | None:
    if lease is None:
        return None
    ends = (lease.succeeded_at, lease.last_tried_at, *(failure.at for failure in lease.failures))
    return max(filter(None, ends), default=None)


def _failures(watermark: Watermark | None, lease: LeaseDocument | None) -> Iterator[Failure]:
    if lease is not None and (lease.failures or lease.succeeded_at is not None):
        yield from sorted(lease.failures, key=lambda failure: failure.since)
        return
    if watermark is None:
        return
    # Earlier versions recorded failures in the watermark only.
    extract, load = watermark.mysql_state, watermark.redshift_state
    at, session_id = watermark.updated_at, watermark.session_id
    if extract.status == "failed" and extract.error:
        yield Failure(stage="extract", error=extract.error, since=at, at=at, session_id=session_id)
    if load.status == "failed" and load.error:
        yield Failure(stage="load", error=load.error, since=at, at=at, session_id=session_id)


def _unfinished(watermark: Watermark) -> Iterator[tuple[str, datetime | None]]:
    """Yield what the watermark itself says is still to be done."""
    extract, load = watermark.mysql_state, watermark.redshift_state
    if _moved(watermark):
        yield "the position was moved, and nothing was read since", watermark.updated_at
    if extract.status == "in_progress":
        yield "the last extraction did not finish", extract.last_extraction_time
    if extract.total_rows and load.status != "success":
        yield "rows in the lake are not loaded yet", extract.last_extraction_time


def _moved(watermark: Watermark) -> bool:
    """Return whether an operator's change or an import is the last change of the position."""
    extract = watermark.mysql_state
    return extract.status == "pending" and extract.last_manifest is not None


def _rows_today(watermark: Watermark | None, now: datetime) -> int | None:
    if watermark is None:
        return 0
    extract = watermark.mysql_state
    last = extract.last_extraction_time
    if extract.day is None and last is not None and last.date() == now.date():
        return None  # earlier versions did not count them
    return extract.day_rows if extract.day == f"{now:%Y-%m-%d}" else 0
