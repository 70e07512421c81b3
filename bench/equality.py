"""Compare tables with PostgreSQL: keys and versions, deleted rows, and all columns.

The table of 1,000 deletes and that of the comparison of all columns has half of the rows. reladiff
looks for deleted rows in a copy that no one repairs, so that it finds the same rows as Floodmark;
Floodmark also commits and applies the deletes.
"""

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import meter
import runs
import tables
from meter import Cost
from place import PEERS, Place
from runs import Contender

EQUAL, DELETED, COMPARED = "equal", "1,000 deleted", "all columns"
FLOODMARK, RELADIFF, RELOAD = "Floodmark", "reladiff", "full reload"
BY_ROW = "Floodmark, row by row"
NO_JSON = "Floodmark, without JSON"
OLD = "Floodmark, last release"
WITH_JSONB = "Floodmark, JSONB"

_DELETES = 1000
_COPY = "reconciled_copy"
_BY_ROW = Path(__file__).parent / "contenders/verify_rows.py"
_VERIFY = ("sync", "-t", "bench.half", "--load-only", "--verify-data=all")
_KEY_AND_VERSION = ("-k", "id", "-c", "update_at", "-j", "4")
# It has no common form of JSON in MySQL and PostgreSQL.
_COLUMNS = [name for name, kind, _ in tables.WIDE if kind != "JSON" and name != "id"]
_LEAST_CPU = 0.25e-6  # seconds a row, in both databases

Interleaved = Callable[..., dict[str, Any]]


def measure_equality(place: Place, rows: int, interleaved: Interleaved) -> dict[str, Any]:
    """Measure the whole commands, and what reladiff needs on the same tables."""
    tables.create(place.source, "half", tables.WIDE, rows // 2)
    measured = {
        EQUAL: interleaved(place, _equal(place, rows)),
        COMPARED: interleaved(place, _all_columns(place, rows // 2)),
        DELETED: _deleted(place, rows // 2, interleaved),
    }
    return {f"{what}: {who}": cost for what, one in measured.items() for who, cost in one.items()}


def _equal(place: Place, rows: int) -> dict[str, Contender]:
    """Reconcile equal tables; a reload reads the same table into an empty schema."""
    folder = place.floodmark("equal", "postgres")
    runs.floodmark(folder, "sync", "-t", "bench.wide")
    found: dict[str, Contender] = {
        FLOODMARK: lambda _: runs.floodmark(folder, "reconcile", "-t", "bench.wide"),
        RELOAD: lambda number: runs.floodmark(
            place.floodmark(f"reload_{number}", "postgres"), "sync", "-t", "bench.wide"
        ),
    }
    copy = f"{place.schema('equal')}.wide"
    return found | _reladiff(place, rows, "wide", copy, _KEY_AND_VERSION)


def _all_columns(place: Place, rows: int) -> dict[str, Contender]:
    """Compare all columns of equal tables."""
    folder, with_jsonb = (
        place.floodmark(name, target)
        for name, target in (("verify", "postgres, text"), ("verify_jsonb", "postgres"))
    )
    without_json = place.floodmark("verify_no_json", "postgres", half=", exclude: [extra]")
    for one in (folder, with_jsonb, without_json):
        runs.floodmark(one, "sync", "-t", "bench.half")
    found: dict[str, Contender] = {
        FLOODMARK: lambda _: runs.floodmark(folder, *_VERIFY),
        NO_JSON: lambda _: runs.floodmark(without_json, *_VERIFY),
        WITH_JSONB: lambda _: runs.floodmark(with_jsonb, *_VERIFY),
        BY_ROW: lambda _: meter.run([sys.executable, str(_BY_ROW), *_VERIFY], folder),
    }
    if runs.has_release(place):
        old = place.floodmark("verify_old", "postgres")
        runs.last_release(old, "sync", "-t", "bench.half")
        found[OLD] = lambda _: runs.last_release(old, *_VERIFY)
    columns = [part for name in _COLUMNS for part in ("-c", name)]
    copy = f"{place.schema('verify')}.half"
    return found | _reladiff(place, rows, "half", copy, ("-k", "id", *columns, "-j", "4"))


def _deleted(place: Place, rows: int, interleaved: Interleaved) -> dict[str, Any]:
    """Delete rows that are spread over the table, and find them."""
    folder = place.floodmark("deleted", "postgres")
    runs.floodmark(folder, "sync", "-t", "bench.half")
    copy = place.schema(_COPY)
    numbers = count()

    def delete() -> None:
        _copy(place, copy)
        every = rows // _DELETES
        place.source.execute(f"DELETE FROM bench.half WHERE id MOD {every} = {next(numbers)}")

    def check(name: str) -> None:
        if name == FLOODMARK:
            held = place.target.execute(f"SELECT count(*) FROM {place.schema('deleted')}.half")
            left = place.source.execute("SELECT COUNT(*) FROM bench.half")
            assert held[0][0] == left[0][0], f"{held} rows in the target, {left} in the source"

    reconcile = ("reconcile", "-t", "bench.half", "--deletes", "hard")
    found: dict[str, Contender] = {FLOODMARK: lambda _: runs.floodmark(folder, *reconcile)}
    found |= _reladiff(place, rows, "half", f"{copy}.half", _KEY_AND_VERSION)
    return interleaved(place, found, before=delete, after=check)


def _copy(place: Place, schema: str) -> None:
    """Copy keys and versions for reladiff."""
    for statement in (
        f"DROP SCHEMA IF EXISTS {schema} CASCADE",
        f"CREATE SCHEMA {schema}",
        f"CREATE TABLE {schema}.half AS SELECT id, update_at FROM {place.schema('deleted')}.half",
        f"ALTER TABLE {schema}.half ADD PRIMARY KEY (id)",
        f"ANALYZE {schema}.half",
    ):
        place.target.execute(statement)


def _reladiff(
    place: Place, rows: int, table: str, copy: str, options: tuple[str, ...]
) -> dict[str, Contender]:
    """Return the peer, if it is installed."""
    if not (PEERS / "bin/reladiff").exists():
        return {}
    command = [str(PEERS / "bin/reladiff"), place.source_url, table, place.target_url, copy]

    def run(_: int) -> Cost:
        spent = place.databases_cpu()
        cost = meter.run([*command, *options], place.folder)
        # It ends well even if it cannot compare anything.
        assert place.databases_cpu() - spent > rows * _LEAST_CPU, "reladiff compared nothing"
        return cost

    return {RELADIFF: run}
