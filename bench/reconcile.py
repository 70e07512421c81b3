"""Reconcile the wide table with PostgreSQL: equal sides, and rows that were deleted.

reladiff compares keys and `update_at` of a copy that no one repairs, so that it finds the same rows
as Floodmark; Floodmark also commits and applies the deletes.
"""

from collections.abc import Callable
from typing import Any

import meter
import runs
from meter import Cost
from place import PEERS, Place

SCHEMA = "reconciled"
_COPY = "reconciled_copy"
_DELETED = 1000

Interleaved = Callable[..., dict[str, Any]]


def measure_reconcile(place: Place, rows: int, interleaved: Interleaved) -> dict[str, Any]:
    """Measure the whole command, and what the other tool needs to find the same rows."""
    folder = place.floodmark(SCHEMA, "postgres")
    runs.floodmark(folder, "sync", "-t", "bench.wide")
    contenders: dict[str, Callable[[int], Cost]] = {
        "Floodmark": lambda _: runs.floodmark(
            folder, "reconcile", "-t", "bench.wide", "--deletes", "hard"
        )
    }
    if PEERS.exists():
        contenders["reladiff, find only"] = lambda _: _reladiff(place)
    numbers = iter(range(rows // _DELETED))

    def delete() -> None:
        _copy(place)
        every, number = rows // _DELETED, next(numbers)
        place.source.execute(f"DELETE FROM bench.wide WHERE id MOD {every} = {number}")

    _copy(place)
    equal = interleaved(place, contenders)
    deleted = interleaved(place, contenders, before=delete)
    measured = {f"{rows:,} equal rows": equal, f"{_DELETED:,} deleted of {rows:,}": deleted}
    return {f"{what}: {who}": cost for what, one in measured.items() for who, cost in one.items()}


def _copy(place: Place) -> None:
    """Copy keys and versions for the other tool."""
    for statement in (
        f"DROP SCHEMA IF EXISTS {_COPY} CASCADE",
        f"CREATE SCHEMA {_COPY}",
        f"CREATE TABLE {_COPY}.wide AS SELECT id, update_at FROM {SCHEMA}.wide",
        f"ALTER TABLE {_COPY}.wide ADD PRIMARY KEY (id)",
        f"ANALYZE {_COPY}.wide",
    ):
        place.target.execute(statement)


def _reladiff(place: Place) -> Cost:
    tables = [place.source_url, "wide", place.target_url, f"{_COPY}.wide"]
    options = ["-k", "id", "-c", "update_at", "-j", "4", "--stats"]
    return meter.run([str(PEERS / "bin/reladiff"), *tables, *options], place.folder)
