"""Which failures were reported, so that each is reported once and its end is noticed.

A failure belongs to a stage of a table. It is over when a run has completed that stage and the
table's state in the lake does not have it any more: a load that fails has not recovered because an
extraction succeeded, nor has a table that differs. A table has recovered when nothing of it fails
or differs any more. An error that kept a run from its tables ends with a run of the same kind.
"""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from msgspec import Struct

from floodmark.model.run import WorkStage
from floodmark.model.run_record import RunRecord, TableRun

RUN = ""
"""Stands for the run itself: an error that kept it from its tables."""

_ORDER: tuple[WorkStage, ...] = ("extract", "load", "reconcile", "verify")
_REACHED_TABLES = ("success", "partial", "differs", "busy")


class Alert(Struct, frozen=True, kw_only=True):
    """A failure that was reported."""

    table: str
    """The table's name; empty for the run itself."""
    stage: str
    """The stage that fails, or that found a difference; for a run what it does, and where."""
    error: str
    """The error."""
    since: datetime
    """When it was first reported."""
    sent_at: datetime
    """When it was last reported."""


class Alerts(Struct, frozen=True, kw_only=True):
    """The failures that were reported and are not over, by table and stage."""

    failing: dict[str, Alert] = {}


class News(Struct, frozen=True, kw_only=True):
    """What a run makes known.

    failing     keys of the failures that are to be reported
    over        keys of known failures that are over
    recovered   those of them whose end is to be reported: nothing of the table fails any more
    """

    failing: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()


def news_of(
    known: Alerts,
    record: RunRecord,
    now: datetime,
    repeat: timedelta,
    failing_stages: Callable[[str], Collection[str]],
) -> News:
    """Return what to report after a run.

    `failing_stages` returns the stages of a table that fail or differ by its state in the lake.
    """
    failures = _failures(record)
    to_report = []
    for key, failure in failures.items():
        alert = known.failing.get(key)
        if alert is None or alert.error != failure.error or now - alert.sent_at >= repeat:
            to_report.append(key)
    over = [
        key
        for key, alert in known.failing.items()
        if key not in failures and _is_over(alert, record, failing_stages)
    ]
    still = {table_of(key) for key in (*known.failing, *failures) if key not in over}
    recovered = [
        key
        for key in over
        if not (table := table_of(key)) or (table not in still and not failing_stages(table))
    ]
    return News(failing=tuple(to_report), over=tuple(over), recovered=tuple(recovered))


def reported(
    known: Alerts,
    record: RunRecord,
    now: datetime,
    news: News,
    *,
    failed: bool = True,
    recovered: bool = True,
) -> Alerts:
    """Return what is known after the failures, the recoveries or both were reported."""
    failures, left = _failures(record), dict(known.failing)
    for key in news.failing if failed else ():
        since = left[key].since if key in left else now
        alert = failures[key]
        left[key] = Alert(
            table=alert.table, stage=alert.stage, error=alert.error, since=since, sent_at=now
        )
    others = {table_of(key) for key in left if key not in news.over} - {RUN}
    for key in news.over:
        # Keep an alert of the table until its recovery is reported.
        if table_of(key) in others or (recovered and key in news.recovered):
            left.pop(key, None)
    return Alerts(failing=left)


def table_of(key: str) -> str:
    """Return the table that the key of a failure names; `RUN` for one of a run."""
    return key.rpartition(" ")[0] if not key.startswith(" ") else RUN


class _Failure(Struct, frozen=True):
    table: str
    stage: str
    error: str


def _failures(record: RunRecord) -> dict[str, _Failure]:
    found = [
        _Failure(table.table_name, table.stage or "extract", str(table.error))
        for table in record.failures
    ]
    if record.error:
        found.append(_Failure(RUN, _kind(record), record.error))
    return {f"{failure.table} {failure.stage}": failure for failure in found}


def _kind(record: RunRecord) -> str:
    """Return what a run does, and where: an error of another kind of run may still be there."""
    stages = record.options.get("stages", ())
    return " ".join([record.command, *stages, *record.pipelines])


def _is_over(
    alert: Alert, record: RunRecord, failing_stages: Callable[[str], Collection[str]]
) -> bool:
    if alert.table == RUN:
        same = alert.stage == _kind(record)
        return same and record.error is None and record.status in _REACHED_TABLES
    table = record.of(alert.table)
    if table is None or alert.stage not in _completed(table, record):
        return False
    return alert.stage not in failing_stages(alert.table)


def _completed(table: TableRun, record: RunRecord) -> tuple[str, ...]:
    """Return the stages that a run has completed for a table."""
    if table.status == "busy" or "dry_run" in record.options:
        return ()
    options = record.options
    done = options.get("stages", ["extract", "load"]) if record.command == "sync" else ["load"]
    done = [] if record.command == "verify" else [*done]
    if table.reconcile_seconds:
        done.append("reconcile")
    if record.command == "verify" or "verify" in options:
        done.append("verify")
    if table.status in ("failed", "differs"):
        before = _ORDER[: _ORDER.index(table.stage)] if table.stage else ()
        done = [stage for stage in done if stage in before]
    return tuple(done)
