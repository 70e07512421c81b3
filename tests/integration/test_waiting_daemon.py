"""The daemon of Spark's workers that is started ahead: with and without Java, and what can fail."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
import pytest

from floodmark.spark.daemon_handover import FOLDER, JAVAS, WAITING
from floodmark.spark.worker_memory import ALLOCATION
from pipelines import wait_until

DAEMON = [sys.executable, "-m", "floodmark.spark.worker_daemon"]
Process = subprocess.Popen[bytes]


@pytest.fixture
def folder() -> Iterator[str]:
    with TemporaryDirectory(dir="/tmp") as made:  # no socket's path may be long
        yield made


@contextmanager
def waiting(folder: str, **variables: str) -> Iterator[Process]:
    """Start a daemon that waits, once it can be reached."""
    command = [*DAEMON, WAITING, folder]
    environment = {**os.environ, **JAVAS, **ALLOCATION, **variables}
    with subprocess.Popen(command, env=environment, stdin=-1, stderr=-3) as process:
        try:
            wait_until(lambda: os.listdir(folder) or process.poll() is not None)
            yield process
        finally:
            process.kill()


@contextmanager
def javas(folder: str, **variables: str) -> Iterator[Process]:
    """Start a daemon as Java does, and wait until it has told its port."""
    environment = {**os.environ, **JAVAS, **ALLOCATION, FOLDER: folder, **variables}
    command = [*DAEMON, "pyspark.worker"]
    with subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, stderr=-3) as process:
        try:
            assert process.stdout
            assert len(process.stdout.read(4)) == 4
            yield process
        finally:
            process.kill()


def imports(process: Process, module: str) -> bool:
    """Whether a process has loaded a library."""
    return module in Path(f"/proc/{process.pid}/maps").read_text()


def test_it_goes_on_in_the_place_of_javas(folder: str) -> None:
    with waiting(folder) as ahead, javas(folder) as daemon:
        assert imports(ahead, "connectorx")
        assert not imports(daemon, "connectorx")
        with javas(folder) as second:  # a second one has nobody to hand over to
            assert imports(second, "connectorx")
        assert daemon.stdin
        daemon.stdin.close()  # as Java does, or its end
        ahead.wait(10)
        assert daemon.wait(10) == 0


@pytest.mark.parametrize("ended", ["daemon", "ahead"])
def test_both_end_together(folder: str, ended: str) -> None:
    with waiting(folder) as ahead, javas(folder) as daemon:
        both = {"daemon": daemon, "ahead": ahead}
        killed = both.pop(ended)
        killed.kill()
        assert killed.wait(10) == -signal.SIGKILL
        (other,) = both.values()
        if ended == "daemon":  # Java closes its ends, too
            assert daemon.stdin
            daemon.stdin.close()
        other.wait(10)


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONPATH": "/tmp"},
        {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"},
        {"PYTHONHASHSEED": "7"},
        {"LD_PRELOAD": ""},
    ],
    ids=lambda variables: "".join(variables),
)
def test_one_that_was_started_differently_is_not_replaced(
    folder: str, variables: dict[str, str]
) -> None:
    with waiting(folder) as ahead, javas(folder, **variables) as daemon:
        assert imports(daemon, "connectorx")
        assert ahead.wait(10) == 0


def test_javas_goes_on_if_none_waits_any_more(folder: str) -> None:
    with waiting(folder) as ahead:
        ahead.kill()
        ahead.wait(10)
    with javas(folder) as daemon:
        assert imports(daemon, "connectorx")


def test_javas_goes_on_if_it_cannot_import_something(folder: str, tmp_path: Path) -> None:
    (tmp_path / "connectorx.py").write_text("import time\ntime.sleep(1)\nraise OSError('broken')")
    path = {"PYTHONPATH": str(tmp_path)}
    with waiting(folder, **path) as ahead, javas(folder, **path):
        assert ahead.wait(10) == 1


def test_it_ends_if_the_driver_does_before_there_are_tasks(folder: str) -> None:
    with waiting(folder) as ahead:
        assert ahead.stdin
        ahead.stdin.close()
        assert ahead.wait(10) == 0


RUN = """
import os, signal, sys, time
from pathlib import Path
from floodmark.spark.session import spark_session

def seen(_):
    words = Path(f"/proc/{os.getppid()}/cmdline").read_text().replace("\\0", " ").strip()
    told = ("PYTHONHASHSEED", "SPARK_REUSE_WORKER", "GLIBC_TUNABLES")
    return f"{os.getppid()} {os.getpid()} {words} | {[os.environ.get(name) for name in told]}"

def say(*words):
    print(*words, flush=True)

with spark_session(log_file="spark.log") as spark:
    say("up")
    input()
    for _ in range(2):
        (one,) = spark.run("test", seen, 1, None)
        say(one)
        if input() == "kill":
            for pid in one.split()[:2]:
                os.kill(int(pid), signal.SIGKILL)
"""


class Driver:
    """A Spark in a process of its own, which answers line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def says(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def told(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def children(self) -> list[str]:
        """Return the processes of this driver, and theirs."""
        found, all_of = [str(self.process.pid)], children()
        for pid in found:
            found += all_of.get(pid, [])
        return found[1:]


def children() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    listed = subprocess.check_output(["ps", "-eo", "pid=,ppid="], text=True)
    for pid, parent in (line.split() for line in listed.splitlines()):
        found.setdefault(parent, []).append(pid)
    return found


NewDriver = Callable[..., Driver]


@pytest.fixture(scope="module")
def started_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with which Java is started directly."""
    if pyspark.__version__ < "4":
        pytest.skip("PySpark 3.5 starts Java by its scripts each time")
    cache = tmp_path_factory.mktemp("cache")
    subprocess.run(
        [sys.executable, "-c", RUN],
        input="\n\n\n",
        env=environment(cache),
        cwd=cache,
        text=True,
        check=True,
        timeout=300,
    )
    return cache


def environment(cache: Path) -> dict[str, str]:
    found = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return {**found, "XDG_CACHE_HOME": str(cache), "TMPDIR": "/tmp"}


@pytest.fixture
def driver(started_before: Path) -> Iterator[NewDriver]:
    processes = []

    def new(**variables: str) -> Driver:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN],
            env={**environment(started_before), **variables},
            cwd=started_before,
            stdin=-1,
            stdout=-1,
            text=True,
        )
        processes.append(process)
        made = Driver(process)
        assert made.says() == "up"
        return made

    yield new
    for process in processes:
        with process:
            process.kill()


def test_workers_are_forked_from_it(driver: NewDriver) -> None:
    it = driver()
    it.told("")
    said = it.says()
    assert WAITING in said
    told = "'0', '1', 'glibc.malloc.tcache_count=512"
    assert told in said
    started = it.children()
    it.told("")
    assert it.says().split()[0] == said.split()[0]  # the same for each task
    it.told("")
    assert it.process.wait(60) == 0
    assert not set(started) & {pid for pids in children().values() for pid in pids}


def test_a_user_may_set_what_is_in_force_from_the_start(driver: NewDriver) -> None:
    it = driver(GLIBC_TUNABLES="glibc.malloc.arena_max=1", PYTHONHASHSEED="9")
    it.told("")
    said = it.says()
    assert WAITING in said
    assert said.endswith("['9', '1', 'glibc.malloc.arena_max=1']")


def test_another_python_for_workers_has_none(driver: NewDriver, tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o700)
    it = driver(PYSPARK_PYTHON=str(other))
    it.told("")
    assert WAITING not in it.says()


def test_workers_go_on_without_it(driver: NewDriver) -> None:
    it = driver()
    it.told("")
    first = it.says()
    it.told("kill")
    second = it.says()
    assert WAITING in first
    assert re.search("worker_daemon pyspark.worker", second)


@pytest.mark.parametrize("tasks", [0, 1])
def test_nothing_is_left_of_a_driver_that_is_killed(driver: NewDriver, tasks: int) -> None:
    it = driver()
    if tasks:
        it.told("")
        it.says()
    started = set(it.children())
    assert any(WAITING in command(pid) for pid in started)
    it.process.kill()
    wait_until(lambda: not any("worker_daemon" in command(pid) for pid in started))


def command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
