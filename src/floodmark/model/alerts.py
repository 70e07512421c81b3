"""Which failures were reported, so that each is reported once and its end is noticed."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from floodmark.model.run_record import RunRecord

RUN = ""
"""Stands for the run itself: an error that kept it from its tables."""


class Alert(Struct, frozen=True, kw_only=True):
    """A failure that was reported."""

    error: str
    """The error."""
    since: datetime
    """When it was first reported."""
    sent_at: datetime
    """When it was last reported."""


class Alerts(Struct, frozen=True, kw_only=True):
    """The failures that were reported and have not ended, by table name."""

    failing: dict[str, Alert] = {}


def to_report(
    known: Alerts, record: RunRecord, now: datetime, repeat: timedelta
) -> tuple[list[str], list[str]]:
    """Return the tables whose failure, and those whose recovery, is to be reported."""
    failing = []
    for name, error in _failures(record).items():
        alert = known.failing.get(name)
        if alert is None or alert.error != error or now - alert.sent_at >= repeat:
            failing.append(name)
    return failing, [name for name in known.failing if _has_recovered(name, record)]


def reported(
    known: Alerts, record: RunRecord, now: datetime, *, failed: Iterable[str], ended: Iterable[str]
) -> Alerts:
    """Return what is known after these failures and recoveries were reported."""
    failures, over = _failures(record), set(ended)
    left = {name: alert for name, alert in known.failing.items() if name not in over}
    for name in failed:
        since = left[name].since if name in left else now
        left[name] = Alert(error=failures[name], since=since, sent_at=now)
    return Alerts(failing=left)


def _failures(record: RunRecord) -> dict[str, str]:
    found = {table.table_name: str(table.error) for table in record.failures}
    return {**found, RUN: record.error} if record.error else found


def _has_recovered(name: str, record: RunRecord) -> bool:
    if name == RUN:
        return record.error is None and record.status in ("success", "partial", "differs", "busy")
    table = record.of(name)
    return table is not None and table.status in ("success", "held_back")
