"""Read what runs have recorded: the runs themselves, and the history of a table."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from msgspec import Struct, structs

from floodmark.api.arguments import Names, as_list
from floodmark.api.context import RunContext
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.run_record import RunRecord, RunStatus, TableRun
from floodmark.model.table import TableName
from floodmark.state.recovery_records import Recovery
from floodmark.state.run_records import RunRecords

MOST_RUNS = 200


class DayOfTable(Struct, frozen=True, kw_only=True):
    """What was read of a table on a day (UTC), from its manifests."""

    day: str
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


class TableHistory(Struct, frozen=True, kw_only=True):
    """What happened to a table.

    days         rows and bytes read on each day with any, oldest first
    runs         the recorded runs that worked on it, oldest first; `table.fresh` is how fresh it
                 was after each
    changes      manifests that are not data: an operator's changes and imports, oldest first
    recoveries   recoveries of its watermark, oldest first
    """

    table_name: str
    days: tuple[DayOfTable, ...] = ()
    runs: tuple[RunOfTable, ...] = ()
    changes: tuple[Manifest, ...] = ()
    recoveries: tuple[Recovery, ...] = ()


def read_runs(
    run: RunContext, pipelines: Names = None, *, failed: bool = False, most: int | None = None
) -> Iterator[RunRecord]:
    """Yield the recorded runs that match, newest first."""
    named = set(as_list("pipelines", pipelines))
    found = (
        record
        for record in RunRecords(run.store.objects, run.run.clock).newest()
        if (pipelines is None or named & set(record.pipelines)) and (not failed or record.failed)
    )
    return islice(found, most)


def read_run(run: RunContext, run_id: str) -> RunRecord:
    """Return the record of a run; UsageError if there is none."""
    return RunRecords(run.store.objects, run.run.clock).get(run_id)


def read_history(
    run: RunContext, table: TableName, *, days: int, most_runs: int = MOST_RUNS
) -> TableHistory:
    """Return the history of a table over the last days, with at most so many runs."""
    since = run.run.clock() - timedelta(days=days)
    read: dict[str, DayOfTable] = {}
    changes: list[Manifest] = []
    for manifest in run.store.log.manifests(table, newest_first=True):
        if manifest.created_at < since:
            break
        if not isinstance(manifest.change, Chunk):
            changes.append(manifest)
            continue
        day = f"{manifest.created_at:%Y-%m-%d}"
        read[day] = _add(read.get(day) or DayOfTable(day=day), manifest.change)
    recoveries = [found for found in run.store.recoveries.of(table) if found.at >= since]
    return TableHistory(
        table_name=str(table),
        days=tuple(read[day] for day in sorted(read)),
        runs=tuple(reversed(list(islice(_runs_of(run, table, since), most_runs)))),
        changes=tuple(reversed(changes)),
        recoveries=tuple(recoveries),
    )


def _runs_of(run: RunContext, table: TableName, since: datetime) -> Iterator[RunOfTable]:
    for record in RunRecords(run.store.objects, run.run.clock).newest(since=since):
        if (done := record.of(str(table))) is not None:
            yield RunOfTable(
                run_id=record.run_id,
                command=record.command,
                status=record.status,
                started_at=record.started_at,
                ended_at=done.ended_at or record.ended_at,
                table=done,
            )


def _add(day: DayOfTable, chunk: Chunk) -> DayOfTable:
    return structs.replace(
        day,
        rows=day.rows + chunk.rows,
        bytes=day.bytes + chunk.bytes,
        files=day.files + len(chunk.files),
        chunks=day.chunks + 1,
        seconds=round(day.seconds + chunk.seconds, 3),
    )
