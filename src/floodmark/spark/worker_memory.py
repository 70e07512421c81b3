"""How Python workers allocate memory, how much they need, and how much Spark leaves for them."""

import re
from collections.abc import Mapping
from math import ceil

from floodmark.worker.job import MEBIBYTE, most_ahead_bytes

# connectorx allocates a string for each text value, and by default glibc caches only seven blocks
# of a size per thread. It starts new threads for each window; with one arena per thread, and large
# blocks among small ones, memory would grow from window to window.
# Of Arrow's allocators, jemalloc retains the least memory.
ALLOCATION = {
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=512:glibc.malloc.arena_max=2"
    ":glibc.malloc.mmap_threshold=4194304:glibc.malloc.trim_threshold=4194304",
    "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
}
OVERHEAD = "spark.executor.memoryOverhead"
_OTHERS = (
    "spark.executor.memoryOverheadFactor",
    "spark.kubernetes.memoryOverheadFactor",
    "spark.executor.pyspark.memory",
)
_IMPORTS_MB = 192  # of a worker that has not read anything yet
_LEAST_MB = 384  # Spark's own default
_UNITS = {"": 1.0, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}


def needed_mb(settings: Mapping[str, str], window_mb: int) -> int:
    """Return the memory that the workers of an executor need: one runs for each task."""
    cores, cpus = (_number(settings, name) for name in ("spark.executor.cores", "spark.task.cpus"))
    each = _IMPORTS_MB + ceil(most_ahead_bytes(window_mb) / MEBIBYTE)
    return max(1, cores // cpus) * each


def given_mb(settings: Mapping[str, str]) -> int:
    """Return the memory of an executor that Spark leaves for them, by its settings."""
    pyspark = _mb(settings.get("spark.executor.pyspark.memory", "0"))
    if OVERHEAD in settings:
        return pyspark + _mb(settings[OVERHEAD])
    on_kubernetes = settings.get("spark.master", "").startswith("k8s")
    factor = settings.get(_OTHERS[0]) or settings.get(_OTHERS[1] if on_kubernetes else "")
    try:
        part = float(factor or (0.4 if on_kubernetes else 0.1))
    except ValueError:  # Spark reports it
        part = 0.0
    return pyspark + max(_LEAST_MB, int(part * _mb(settings.get("spark.executor.memory", "1g"))))


def overhead_for_workers(settings: Mapping[str, str], window_mb: int) -> str | None:
    """Return the overhead to ask for; None if the user set it, or Spark's default is enough."""
    needed = needed_mb(settings, window_mb)
    if any(name in settings for name in (OVERHEAD, *_OTHERS)) or given_mb(settings) >= needed:
        return None
    return f"{needed}m"


def _number(settings: Mapping[str, str], name: str) -> int:
    value = settings.get(name, "1").strip()
    return max(1, int(value)) if value.isdecimal() else 1  # Spark reports anything else


def _mb(text: str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)i?b?\s*", text.lower())
    return int(int(found[1]) * _UNITS[found[2]]) if found else 0
