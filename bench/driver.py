"""Measure the work of driver and workers for a window: planning, tasks, receipts and commits."""

import os
import statistics
from typing import Any
from unittest.mock import patch

import runs
import tables
from meter import driver_cpu, tree_cpu
from place import Place

_FEW, _MANY = 200, 2200
_MORE = _MANY - _FEW
_TABLES = {f"windows_{number}": number for number in (_FEW, _MANY)}
_ROWS = 4  # in a window
_SETTINGS = {"FLOODMARK_EXTRACTION": f"{{window_rows: {_ROWS}, windows_per_chunk: 64}}"}


def measure_driver(place: Place, rounds: int) -> dict[str, Any]:
    """Return the CPU seconds for a window with hardly any rows, of real syncs with many windows.

    The driver is Python and Java, the rest are its workers. What a sync costs with few windows is
    subtracted from what it costs with many.
    """
    for name, windows in _TABLES.items():
        tables.create(place.source, name, tables.NARROW, windows * _ROWS)
    with patch.dict(os.environ, _SETTINGS):
        warm = runs.WarmFloodmark(place)
    found: list[tuple[float, float]] = []
    try:
        for number in range(rounds + 1):
            few, many = (_sync(place, warm, name, number) for name in _TABLES)
            if number:  # Java compiles its code in the first round
                found.append(((many[0] - few[0]) / _MORE, (many[1] - few[1]) / _MORE))
    finally:
        warm.stop()
    return {
        "CPU of a window": statistics.median(driver for driver, _ in found),
        "CPU of workers for a window": statistics.median(workers for _, workers in found),
        "windows": _MANY,
    }


def _sync(place: Place, warm: runs.WarmFloodmark, table: str, number: int) -> tuple[float, float]:
    """Extract a table; return the CPU seconds of the driver and of its workers."""
    folder = place.floodmark(f"driver_{table}_{number}")
    driver, everything = driver_cpu(warm.pid), tree_cpu(warm.pid)
    warm.run(folder, "sync", "-t", f"bench.{table}", "--backup-only")
    driver = driver_cpu(warm.pid) - driver
    return driver, tree_cpu(warm.pid) - everything - driver
