"""Measure a command: wall time, CPU time and memory of all its processes."""

import ctypes
import json
import os
import re
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

_TICKS = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.05
_PAUSE = 9  # times as long as a sample: the kernel counts the pages of each process


class Cost(Struct, frozen=True, kw_only=True):
    """The cost of one run. Memory is the peak of all processes together."""

    wall: float
    cpu: float
    memory: int
    bytes: int = 0


class CommandFailed(Exception):
    """A contender did not finish."""


def adopt_orphans() -> None:
    """Become the parent of orphaned processes, so that their CPU time is counted."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(
    command: Sequence[str],
    folder: Path,
    environment: dict[str, str] | None = None,
    *,
    allowed: Sequence[int] = (0,),
) -> Cost:
    """Run a command, and wait until all its descendants have ended."""
    before, began = _spent(), time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with _watched(process.pid) as seen:
        output, _ = process.communicate()
        wall = time.monotonic() - began
    if process.returncode not in allowed:
        raise CommandFailed(f"{' '.join(command[:4])} …: {output[-2000:]}")
    _wait_for(list(seen.cpu))
    # A parent that ignores SIGCHLD, like Spark's daemon, loses its children's CPU time.
    cpu = max(_spent() - before, sum(seen.cpu.values()))
    return Cost(wall=wall, cpu=cpu, memory=seen.memory)


class Server:
    """A process that answers each line of JSON with a line of JSON, and is measured meanwhile."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.pid = self._process.pid
        self._read()

    def ask(self, request: object) -> tuple[Cost, dict[str, Any]]:
        """Send a request, and return its cost and the answer."""
        assert self._process.stdin is not None
        before, began = tree_cpu(self._process.pid), time.monotonic()
        with _watched(self._process.pid) as seen:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = self._read()
            wall = time.monotonic() - began
        if answer["code"] != 0:
            raise CommandFailed(str(answer))
        cpu = tree_cpu(self._process.pid) - before
        return Cost(wall=wall, cpu=cpu, memory=seen.memory), answer

    def stop(self) -> None:
        """Stop the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise CommandFailed(self._log.read()[-3000:])
        return json.loads(line)


def bytes_below(folder: Path) -> int:
    """Return the size of a folder's files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait_for(pids: list[int]) -> None:
    """Wait for orphans that became our children."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


class _Seen:
    """CPU time and memory of processes, sampled while they run."""

    def __init__(self) -> None:
        self.memory = 0
        self.cpu: dict[int, float] = {}


@contextmanager
def _watched(root: int) -> Iterator[_Seen]:
    over, seen = threading.Event(), _Seen()

    def watch() -> None:
        pause = _POLL_SECONDS
        while not over.wait(pause):
            began = time.thread_time()
            pids = _tree(root)
            seen.cpu.update({pid: cpu for pid in pids if (cpu := _own_cpu(pid)) is not None})
            seen.memory = max(seen.memory, sum(map(_resident, pids)))
            # At most a tenth of a core, which the measured processes would miss.
            pause = max(_POLL_SECONDS, _PAUSE * (time.thread_time() - began))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def _tree(root: int) -> list[int]:
    children, found = _children(), [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _resident(pid: int) -> int:
    """Return a process's share of memory: what several processes share is divided among them."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    share = re.search(r"^Pss: +(\d+) kB$", rollup, re.MULTILINE)
    return int(share[1]) * 1024 if share else 0


def _own_cpu(pid: int) -> float | None:
    fields = _stat(pid)
    return sum(map(int, fields[11:13])) / _TICKS if fields else None


def tree_cpu(pid: int) -> float:
    """Return the CPU time of a process and its descendants, including ended ones."""
    ticks = 0
    for one in _tree(pid):
        if fields := _stat(one):
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


def driver_cpu(pid: int) -> tuple[float, float]:
    """Return the CPU seconds of a process and of its Java, without Python workers, so far."""
    return _own_cpu(pid) or 0.0, sum(_own_cpu(one) or 0.0 for one in _java_of(pid))


def executor_cpu(pid: int) -> dict[int, float]:
    """Return the CPU seconds so far of threads that run tasks in the Java of a process, by thread.

    Spark calls them "Executor task launch worker" and "Executor task idle worker", of which the
    kernel keeps 15 characters.
    """
    found: dict[int, float] = {}
    for java in _java_of(pid):
        for thread in Path(f"/proc/{java}/task").iterdir():
            with suppress(OSError):  # it has ended
                name, _, fields = (thread / "stat").read_text().partition("(")[2].rpartition(")")
                if name.startswith("Executor task"):
                    found[int(thread.name)] = sum(map(int, fields.split()[11:13])) / _TICKS
    return found


def _java_of(pid: int) -> list[int]:
    children = _children().get(pid, [])
    return [one for one in children if Path(f"/proc/{one}/comm").read_text().strip() == "java"]


def tree_memory(pid: int) -> int:
    """Return the memory of a process and its descendants."""
    return sum(map(_resident, _tree(pid)))
