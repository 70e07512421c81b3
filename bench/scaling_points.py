"""Measure what the scaling model needs: stage 1 with one, two and four slots, and window edges."""

from collections.abc import Callable
from typing import Any

import runs
from floodmark.planning.windows import even_rows
from meter import Cost
from place import Place
from runs import Contender

SLOTS = (1, 2, 4)
_WINDOW_ROWS, _WINDOWS = 150_000, 8  # the defaults
_EDGES = 20
_NOTHING = "few"

Interleaved = Callable[..., dict[str, Any]]


def measure_slots(place: Place, rows: int, interleaved: Interleaved) -> dict[str, Any]:
    """Extract the wide table in warm sessions; a table of 1,000 rows has the fixed costs."""
    warm = {slots: runs.WarmFloodmark(place, f"local[{slots},4]") for slots in SLOTS}
    names = {slots: f"{slots} slot{'s' * (slots > 1)}" for slots in SLOTS}

    def contender(slots: int, table: str) -> Contender:
        def run(number: int) -> Cost:
            folder = place.floodmark(f"slots_{slots}_{table}_{number}")
            return warm[slots].run(folder, "sync", "-t", f"bench.{table}", "--backup-only")[0]

        return run

    try:
        fixed, found = (
            interleaved(
                place,
                {names[slots]: contender(slots, table) for slots in SLOTS},
                unmeasured=tuple(names.values()),
            )
            for table in (_NOTHING, "wide")
        )
    finally:
        for one in warm.values():
            one.stop()
    window_rows = even_rows(rows, most_rows=_WINDOW_ROWS, windows_per_chunk=_WINDOWS)
    return {
        name: {**cost, "fixed": fixed[name]["wall"], "window_rows": window_rows}
        for name, cost in found.items()
    }


def measure_edges(place: Place, rows: int) -> dict[str, float]:
    """Return the source's CPU seconds a row to find edges of windows by skipping index entries."""
    before, last, stride = place.databases_cpu(), 0, rows // _EDGES
    for _ in range(_EDGES):
        ((last,),) = place.source.execute(
            f"SELECT id FROM bench.wide WHERE id > {last} ORDER BY id LIMIT 1 OFFSET {stride - 1}"
        )
    return {"row": (place.databases_cpu() - before) / rows}
