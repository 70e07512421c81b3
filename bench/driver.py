"""Measure the work of driver and workers for a window: planning, tasks, receipts and commits."""

import os
import statistics
from typing import Any
from unittest.mock import patch

import runs
import tables
from meter import driver_cpu, executor_cpu, tree_cpu
from place import Place

_FEW, _MANY = 200, 2200
_MORE = _MANY - _FEW
_TABLES = {f"windows_{number}": number for number in (_FEW, _MANY)}
_ROWS = 4  # in a window
_SLOTS = 16  # with as many windows in a chunk, none has several slices
_SETTINGS = {"FLOODMARK_EXTRACTION": f"{{window_rows: {_ROWS}, windows_per_chunk: {_SLOTS}}}"}


def measure_driver(place: Place, rounds: int) -> dict[str, Any]:
    """Return the CPU seconds for a window with hardly any rows, of real syncs with many windows.

    The driver is Python and Java, which on one machine is the executor, too. The share of the
    threads that run tasks is shown as well, but not subtracted: the driver of a cluster has no such
    threads, but exchanges messages with executors instead. What a sync costs with few windows is
    subtracted from what it costs with many.
    """
    for name, windows in _TABLES.items():
        tables.create(place.source, name, tables.NARROW, windows * _ROWS)
    with patch.dict(os.environ, _SETTINGS):
        warm = runs.WarmFloodmark(place, f"local[{_SLOTS},4]")
    found: list[list[float]] = []
    try:
        for number in range(rounds + 1):
            few, many = (_sync(place, warm, name, number) for name in _TABLES)
            if number:  # Java compiles its code in the first round
                found.append([(m - f) / _MORE for f, m in zip(few, many, strict=True)])
    finally:
        warm.stop()
    python, java, tasks, workers = (statistics.median(costs) for costs in zip(*found, strict=True))
    return {
        "CPU of a window": python + java,
        "CPU of Python for a window": python,
        "CPU of Java for a window": java,
        "CPU of Java's threads that run tasks, for a window": tasks,
        "CPU of workers for a window": workers,
    }


def _sync(
    place: Place, warm: runs.WarmFloodmark, table: str, number: int
) -> tuple[float, float, float, float]:
    """Extract a table; return CPU seconds: Python, Java, its threads with tasks, workers."""
    folder = place.floodmark(f"driver_{table}_{number}")
    before = (*driver_cpu(warm.pid), tree_cpu(warm.pid))
    threads = executor_cpu(warm.pid)
    warm.run(folder, "sync", "-t", f"bench.{table}", "--backup-only")
    after = (*driver_cpu(warm.pid), tree_cpu(warm.pid))
    tasks = sum(cpu - threads.get(one, 0.0) for one, cpu in executor_cpu(warm.pid).items())
    written = sum(1 for _ in folder.rglob("*.parquet"))
    if written != _TABLES[table]:
        raise RuntimeError(f"{written} windows were read of {table}, not {_TABLES[table]}")
    python, java, everything = (end - start for start, end in zip(before, after, strict=True))
    return python, java, tasks, everything - python - java
