"""What the page shows, as JSON values, read from the lake alone.

Times, states and counts have the names that `status --json`, `runs --json` and the watermark use.
What is unknown is left out.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from floodmark import __version__
from floodmark.api.metrics import LastDrill, MirrorState
from floodmark.api.project import Project
from floodmark.api.runs import TableHistory, read_history, read_runs, runs_of
from floodmark.api.status import STATES, TableStatus
from floodmark.cli.runs import what
from floodmark.cli.status import WITH_CAUSE, cause_of, value_of
from floodmark.cli.watermark_text import show_change
from floodmark.errors import FloodmarkError
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.run_record import RunRecord
from floodmark.model.watermark import Watermark

DAYS = 30
"""The days that the history of a table covers."""
MOST_RUNS = 500
"""The runs that are kept in memory, and listed."""
MOST_RESULTS = 200_000
"""The results of tables in all these runs; a run of 10,000 tables has as many."""
MOST_FOUND = 100
"""The runs of a table that found deleted or differing rows."""
_MOST_HISTORIES = 200


class Overview(Struct, frozen=True, kw_only=True):
    """All tables and runs at one time."""

    values: dict[str, Any]
    statuses: dict[str, TableStatus]
    records: dict[str, RunRecord]
    mirror: MirrorState | None = None
    drill: LastDrill | None = None


class Reader:
    """Reads the lake for the page. What cannot have changed is not read again."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._records: dict[str, RunRecord] = {}
        self._histories: dict[str, tuple[object, TableHistory]] = {}

    def overview(self, found: Sequence[TableStatus], *, everything: bool = True) -> Overview:
        """Return these tables and the last runs; if not `everything`, of runs only these tables."""
        run = self._project.reading()
        records = self._read_records()
        if not everything:
            names = {str(seen.table) for seen in found}
            some = ((run_id, _narrowed(record, names)) for run_id, record in records.items())
            records = {run_id: record for run_id, record in some if record.table_count}
        mirror, drill = self._project.mirror_state, self._project.last_drill
        now = run.run.clock()
        hints = _hints_of_held(found, records.values())
        values = {
            "as_of": now,
            "program": __version__,
            "lake": str(run.store.objects),
            "states": STATES,
            "with_cause": WITH_CAUSE,
            "tables": [
                _known(value_of(seen, now) | _cause(seen) | hints.get(str(seen.table), {}))
                for seen in found
            ],
            "runs": [summary(record) for record in records.values()],
            "days": DAYS,
        }
        if mirror is not None:
            values["mirror"] = _known({"text": str(mirror), "behind_since": mirror.since})
        if drill is not None:
            values["drill"] = {"text": str(drill), "at": drill.at, "failed": drill.failed}
        statuses = {str(seen.table): seen for seen in found}
        return Overview(
            values=values, statuses=statuses, records=records, mirror=mirror, drill=drill
        )

    def table(self, status: TableStatus, overview: Overview) -> dict[str, Any]:
        """Return the stages and the history of a table."""
        name = str(status.table)
        values: dict[str, Any] = {"table_name": name, "stages": stages(status)}
        try:
            history = self._history(status)
        except FloodmarkError as error:
            return values | {"problem": error.message}
        return values | {
            "since": history.since,
            "history_days": history.days,
            "runs": [
                msgspec.to_builtins(run)
                | {"every_seconds": overview.records[run.run_id].every_seconds}
                for run in runs_of(name, overview.records.values())
            ],
            "manifests": [_manifest(manifest) for manifest in history.last],
            "changes": [_manifest(manifest) for manifest in history.changes],
            "found": history.found[-MOST_FOUND:],
            "recoveries": history.recoveries,
        }

    def _read_records(self) -> dict[str, RunRecord]:
        records: dict[str, RunRecord] = {}
        results = 0
        run, known = self._project.reading(), self._records
        for record in read_runs(run, most=MOST_RUNS, known=known):
            results += len(record.tables) + len(record.unchanged)
            if results > MOST_RESULTS and records:
                break
            records[record.run_id] = record
        self._records = records
        return records

    def _history(self, status: TableStatus) -> TableHistory:
        """Return the history of a table; the known one if it has the same last manifest."""
        name, watermark = str(status.table), status.watermark
        run = self._project.reading()
        today = f"{run.run.clock():%Y-%m-%d}"
        state = (watermark.head, watermark.revision, today) if watermark else None
        known = self._histories.pop(name, None)
        if known is None or state is None or known[0] != state:
            known = (state, read_history(run, status.table, days=DAYS, records=()))
        self._histories[name] = known
        while len(self._histories) > _MOST_HISTORIES:
            del self._histories[next(iter(self._histories))]
        return known[1]


def _narrowed(record: RunRecord, names: set[str]) -> RunRecord:
    """Return what a run did with some tables."""
    tables = tuple(table for table in record.tables if table.table_name in names)
    unchanged = {name: fresh for name, fresh in record.unchanged.items() if name in names}
    return structs.replace(
        record,
        tables=tables,
        unchanged=unchanged,
        table_count=len(tables) + len(unchanged),
        notices=tuple(notice for notice in record.notices if notice.table in names),
    )


def summary(record: RunRecord) -> dict[str, Any]:
    """Return a run without its tables."""
    tables = record.tables
    return _known(
        {
            "run_id": record.run_id,
            "what": what(record),
            "status": record.status,
            "started_at": record.started_at,
            "ended_at": record.ended_at,
            "seen_at": record.seen_at,
            "pipelines": record.pipelines,
            "who": f"{record.user}@{record.host}",
            "table_count": record.table_count,
            "unchanged": len(record.unchanged),
            "failed": len(record.failures),
            "rows": record.rows,
            "loaded_rows": record.loaded_rows,
            "bytes": sum(table.bytes for table in tables),
            "seconds": round(sum(table.seconds for table in tables), 3),
            "load_seconds": round(sum(table.load_seconds for table in tables), 3),
            "verify_seconds": round(sum(table.verify_seconds for table in tables), 3),
            "error": record.error,
        }
    )


def run_values(record: RunRecord) -> dict[str, Any]:
    """Return a run with its tables; of those with nothing new, only the number."""
    values: dict[str, Any] = msgspec.to_builtins(record)
    values.pop("process", None)
    return values | summary(record)


def stages(seen: TableStatus) -> dict[str, Any] | None:
    """Return the state of each stage, with the keys of the watermark; None if nothing is known.

    The watermark says how a stage last ended. A stage that has failed since, or that is why the
    table is not in step, has that as its status.
    """
    found = _tracked(seen.watermark) if seen.watermark else {}
    if seen.watermark and seen.watermark.verified_state.status == "failed":
        found["verify"]["status"] = "differs"
    if seen.watermark and seen.watermark.reconciled_state.left:
        found["reconcile"]["status"] = "differs"
    for failure in seen.failures:
        found.setdefault(failure.stage, {}).update(status="failed", error=failure.error)
    done = all(found.get(stage, {}).get("status") == "success" for stage in ("extract", "load"))
    if seen.state == "held back" or (seen.state == "behind" and done):  # read too long ago
        found.setdefault("extract", {}).update(status=seen.state, error=seen.reason)
    return found or None


def _tracked(watermark: Watermark) -> dict[str, Any]:
    states: dict[str, Any] = msgspec.to_builtins(watermark)
    position, verified = watermark.position, watermark.verified_state.position
    return {
        "extract": _known(states["mysql_state"])
        | {"position": str(position), "manifest": str(watermark.head)},
        "load": _known(states["redshift_state"]) | {"manifest": str(watermark.loaded_head)},
        "verify": _known(states["verified_state"]) | {"position": str(verified)},
        "reconcile": _known(states.get("reconciled_state") or {}),
        "set_by_hand": watermark.metadata.manual_watermark,
    }


def _cause(seen: TableStatus) -> dict[str, str]:
    """Return the reason as it is for all tables that have it, if it names this one."""
    cause = cause_of(seen)
    return {"cause": cause} if seen.state in WITH_CAUSE and cause != seen.reason else {}


def _hints_of_held(
    found: Sequence[TableStatus], records: Iterable[RunRecord]
) -> dict[str, dict[str, str]]:
    """Return the hints for tables that are held back: the runs' records have them."""
    held = {str(seen.table) for seen in found if seen.state == "held back"}
    hints: dict[str, dict[str, str]] = {}
    for record in records if held else ():  # newest first
        for table in record.tables:
            if table.table_name in held:
                held.remove(table.table_name)
                if table.hint and table.held_back:
                    hints[table.table_name] = {"hint": table.hint}
        if not held:
            break
    return hints


def _manifest(manifest: Manifest) -> dict[str, Any]:
    return _known(
        {
            "id": str(manifest.head),
            "at": manifest.created_at,
            "author": manifest.author,
            "run_id": manifest.session_id,
            "what": show_change(manifest),
            "data": isinstance(manifest.change, Chunk),
            "position": str(manifest.standing.mysql_state.position),
        }
    )


def _known(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is unknown or empty; zero is known."""
    return {key: value for key, value in values.items() if value not in (None, [], (), {})}
