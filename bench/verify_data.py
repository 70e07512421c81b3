"""Measure the comparison of equal tables: by checksums, row by row, and by reladiff."""

import sys
from pathlib import Path

import meter
import runs
import tables
from meter import Cost
from place import PEERS, Place

_ROWS = Path(__file__).parent / "contenders/verify_rows.py"
_VERIFY = ("sync", "-t", "bench.wide", "--load-only", "--verify-data=all")
# It has no common form of JSON in MariaDB and PostgreSQL.
_COMPARED = [name for name, kind, _ in tables.WIDE if kind != "JSON" and name != "id"]
_LEAST_CPU = 0.5
BY_CHECKSUM = "Floodmark, by checksums"
WITH_JSONB = "Floodmark, by checksums, JSONB read"
BY_ROW = "Floodmark, row by row"
RELADIFF = "reladiff, all columns but JSON"


def contenders(place: Place) -> dict[str, runs.Contender]:
    """Load the wide table, and return the commands that compare it."""
    folder = place.floodmark("verify", "postgres, text")
    with_jsonb = place.floodmark("verify_jsonb", "postgres")
    for one in (folder, with_jsonb):
        runs.floodmark(one, "sync", "-t", "bench.wide")
    found: dict[str, runs.Contender] = {
        BY_CHECKSUM: lambda _: runs.floodmark(folder, *_VERIFY),
        WITH_JSONB: lambda _: runs.floodmark(with_jsonb, *_VERIFY),
        BY_ROW: lambda _: meter.run([sys.executable, str(_ROWS), *_VERIFY], folder),
    }
    if (PEERS / "bin/reladiff").exists():
        found[RELADIFF] = lambda _: _reladiff(place)
    return found


def _reladiff(place: Place) -> Cost:
    columns = [part for name in _COMPARED for part in ("-c", name)]
    sides = [place.source_url, "wide", place.target_url, "verify.wide"]
    command = [str(PEERS / "bin/reladiff"), *sides, "-k", "id", *columns]
    spent = place.databases_cpu()
    cost = meter.run(command, place.folder)
    # It ends well even if it cannot compare anything.
    assert place.databases_cpu() - spent > _LEAST_CPU, "reladiff compared nothing"
    return cost
