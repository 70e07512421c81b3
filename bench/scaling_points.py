"""Measure what the scaling model is checked against: stage 1 with one, two and four slots."""

from collections.abc import Callable
from typing import Any

import runs
from meter import Cost
from place import Place
from runs import Contender

SLOTS = (1, 2, 4)
WINDOW_ROWS = 150_000
_NOTHING = "few"

Interleaved = Callable[..., dict[str, Any]]


def measure_slots(place: Place, rows: int, interleaved: Interleaved) -> dict[str, Any]:
    """Extract the wide table in warm sessions; a table of 1,000 rows has the fixed costs."""
    warm = {slots: runs.WarmFloodmark(place, f"local[{slots},4]") for slots in SLOTS}

    def contender(slots: int, table: str) -> Contender:
        def run(number: int) -> Cost:
            folder = place.floodmark(f"slots_{slots}_{table}_{number}")
            return warm[slots].run(folder, "sync", "-t", f"bench.{table}", "--backup-only")[0]

        return run

    try:
        names = {slots: f"{slots} slot{'s' * (slots > 1)}" for slots in SLOTS}
        found, fixed = (
            interleaved(
                place,
                {names[slots]: contender(slots, table) for slots in SLOTS},
                unmeasured=tuple(names.values()),
            )
            for table in ("wide", _NOTHING)
        )
    finally:
        for one in warm.values():
            one.stop()
    return {
        name: {**cost, "fixed": fixed[name]["wall"], "window_rows": min(rows, WINDOW_ROWS)}
        for name, cost in found.items()
    }
