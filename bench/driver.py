"""Measure the driver's work for a window: planning, scheduling, receipts and commits."""

import os
import statistics
from typing import Any
from unittest.mock import patch

import runs
import tables
from meter import driver_cpu
from place import Place

_FEW, _MANY = 500, 5000
_ROWS = 4  # in a window
_SETTINGS = {"FLOODMARK_EXTRACTION": f"{{window_rows: {_ROWS}, windows_per_chunk: 64}}"}


def measure_driver(place: Place, rounds: int) -> dict[str, Any]:
    """Return the CPU seconds of the driver, Python and Java, for a window with hardly any rows."""
    for windows in (_FEW, _MANY):
        tables.create(place.source, f"windows_{windows}", tables.NARROW, windows * _ROWS)
    with patch.dict(os.environ, _SETTINGS):
        warm = runs.WarmFloodmark(place)
    try:
        found = []
        for number in range(rounds + 1):
            spent = {}
            for windows in (_FEW, _MANY):
                before = driver_cpu(warm.pid)
                warm.run(
                    place.floodmark(f"driver_{windows}_{number}"),
                    *("sync", "-t", f"bench.windows_{windows}", "--backup-only"),
                )
                spent[windows] = driver_cpu(warm.pid) - before
            if number:  # Java compiles its code in the first round
                found.append((spent[_MANY] - spent[_FEW]) / (_MANY - _FEW))
    finally:
        warm.stop()
    return {"CPU of a window": statistics.median(found)}
