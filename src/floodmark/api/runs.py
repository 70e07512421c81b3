"""Read what runs have recorded: the runs themselves, and the history of a table."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice

from msgspec import Struct, structs

from floodmark.api.arguments import Names, as_list
from floodmark.api.context import RunContext
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.run_record import RunRecord, RunStatus, TableRun
from floodmark.model.table import TableName
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.recovery_records import Recovery
from floodmark.state.run_records import RunRecords

MOST_RUNS = 200
MOST_MANIFESTS = 10_000
LAST_MANIFESTS = 50
_AT_ONCE = 16


class DayOfTable(Struct, frozen=True, kw_only=True):
    """What was read of a table on a day (UTC), from its manifests.

    Of the first day only what followed `TableHistory.since` is counted if it is `partial`. Repaired
    rows are not counted: they were read before.
    """

    day: str
    partial: bool = False
    rows: int = 0
    bytes: int = 0
    files: int = 0
    chunks: int = 0
    seconds: float = 0.0


class RunOfTable(Struct, frozen=True, kw_only=True):
    """What a run did with a table."""

    run_id: str
    command: str
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None
    table: TableRun


class FoundInRun(Struct, frozen=True, kw_only=True):
    """What a run found: rows deleted in the source; missing, stale or duplicate in the target.

    It committed their removal and repair, the last part `at` this time.
    """

    run_id: str
    at: datetime
    deleted: int = 0
    missing: int = 0
    stale: int = 0
    duplicate: int = 0


class TableHistory(Struct, frozen=True, kw_only=True):
    """What happened to a table.

    since        from when on `days`, `changes` and `found` are complete: the first midnight (UTC),
                 or later in a log of very many manifests
    days         rows and bytes read on each day with any, oldest first
    runs         the recorded runs that worked on it, oldest first; `table.fresh` is how fresh it
                 was after each
    changes      manifests that are not data: an operator's changes and imports, oldest first
    found        what reconciliations found and repaired, oldest first
    last         the last manifests of any kind, oldest first
    recoveries   recoveries of its watermark on these days, oldest first
    """

    table_name: str
    since: datetime
    days: tuple[DayOfTable, ...] = ()
    runs: tuple[RunOfTable, ...] = ()
    changes: tuple[Manifest, ...] = ()
    found: tuple[FoundInRun, ...] = ()
    last: tuple[Manifest, ...] = ()
    recoveries: tuple[Recovery, ...] = ()


def read_runs(
    run: RunContext,
    pipelines: Names = None,
    *,
    failed: bool = False,
    most: int | None = None,
    known: Mapping[str, RunRecord] | None = None,
) -> Iterator[RunRecord]:
    """Yield the recorded runs that match, newest first; do not read those `known` to have ended."""
    named = set(as_list("pipelines", pipelines))
    found = (
        record
        for record in RunRecords(run.store.objects, run.run.clock).newest(known=known)
        if (pipelines is None or named & set(record.pipelines)) and (not failed or record.failed)
    )
    return islice(found, most)


def read_run(run: RunContext, run_id: str) -> RunRecord:
    """Return the record of a run; UsageError if there is none."""
    return RunRecords(run.store.objects, run.run.clock).get(run_id)


def read_history(
    run: RunContext,
    table: TableName,
    *,
    days: int,
    most_runs: int = MOST_RUNS,
    records: Iterable[RunRecord] | None = None,
) -> TableHistory:
    """Return the history of a table over the last days, with at most so many runs.

    `records` are the runs to look at, newest first; by default they are read.
    """
    first_day = since = oldest = _midnight(run.run.clock() - timedelta(days=days - 1))
    read: dict[str, DayOfTable] = {}
    changes: list[Manifest] = []
    found: dict[str, FoundInRun] = {}
    last: list[Manifest] = []
    log = ManifestLog(run.store.objects, at_once=_AT_ONCE)
    for number, manifest in enumerate(log.manifests(table, newest_first=True)):
        if number < LAST_MANIFESTS:
            last.append(manifest)
        if manifest.created_at < first_day:
            break
        if number == MOST_MANIFESTS:
            since = oldest
            break
        oldest = manifest.created_at
        if not isinstance(manifest.change, Chunk):
            changes.append(manifest)
            continue
        day = f"{manifest.created_at:%Y-%m-%d}"
        read[day] = _add(read.get(day) or DayOfTable(day=day), manifest.change)
        _count_found(found, manifest)
    if records is None:
        records = RunRecords(run.store.objects, run.run.clock).newest(since=first_day)
    cut = f"{since:%Y-%m-%d}" if since > first_day else None
    recoveries = [seen for seen in run.store.recoveries.of(table) if seen.at >= first_day]
    return TableHistory(
        table_name=str(table),
        since=since,
        days=tuple(structs.replace(read[d], partial=d == cut) for d in sorted(read)),
        runs=runs_of(str(table), records, most_runs),
        changes=tuple(reversed(changes)),
        found=tuple(reversed(found.values())),
        last=tuple(reversed(last)),
        recoveries=tuple(recoveries),
    )


def runs_of(
    table_name: str, records: Iterable[RunRecord], most: int = MOST_RUNS
) -> tuple[RunOfTable, ...]:
    """Return what runs, given newest first, did with a table; oldest first."""
    found = (
        RunOfTable(
            run_id=record.run_id,
            command=record.command,
            status=record.status,
            started_at=record.started_at,
            ended_at=done.ended_at or record.ended_at,
            table=done,
        )
        for record in records
        if (done := record.of(table_name)) is not None
    )
    return tuple(reversed(list(islice(found, most))))


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _count_found(found: dict[str, FoundInRun], manifest: Manifest) -> None:
    """Add what a manifest repairs to what its run has found; manifests come newest first."""
    change = manifest.change.reconciled if isinstance(manifest.change, Chunk) else None
    counts = ("deleted", "missing", "stale", "duplicate")
    if change is None or not any(getattr(change, name) for name in counts):
        return  # a range that was read again, and nothing was compared
    run_id = manifest.session_id
    before = found.get(run_id) or FoundInRun(run_id=run_id, at=manifest.created_at)
    more = {name: getattr(before, name) + getattr(change, name) for name in counts}
    found[run_id] = structs.replace(before, **more)


def _add(day: DayOfTable, chunk: Chunk) -> DayOfTable:
    return structs.replace(
        day,
        rows=day.rows + chunk.extracted_rows,
        bytes=day.bytes + chunk.bytes,
        files=day.files + len(chunk.files),
        chunks=day.chunks + 1,
        seconds=round(day.seconds + chunk.seconds, 3),
    )
