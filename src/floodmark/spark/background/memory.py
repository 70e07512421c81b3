"""The memory of a process and its descendants."""

import os
from contextlib import suppress


def resident_bytes(pid: int) -> int:
    """Return the memory of a process and all its descendants; shared pages are counted once."""
    return _own_bytes(pid) + sum(map(resident_bytes, _children(pid)))


def _own_bytes(pid: int) -> int:
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    return found
