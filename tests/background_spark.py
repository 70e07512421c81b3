"""Background Sparks of tests, and what uses them."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipelines import Ended, cold_environment, finish, wait_until

PROGRAM = [sys.executable, "-m", "floodmark"]

# Attach, and run what follows with `spark`; `keep` is how long the server stays.
ATTACHED = """
import os, sys, time
from floodmark.config.models import SparkSettings
from floodmark.spark.background.client import background_spark
from floodmark.spark.background.place import Unavailable

settings = SparkSettings(keep_warm=os.environ.get("KEEP", "10m"), master="local[2]")
try:
    attached = background_spark(settings, lambda notice: print("notice:", notice.message))
    with attached as spark:
        print("attached", flush=True)
        %s
except Unavailable as why:
    print("unavailable:", why)
"""
BEATS = (
    'spark.run("beats", lambda n: [open("beat", "a").write("x") and time.sleep(0.1)'
    ' for _ in range(1200)] and "", 1, None)'
)


class Warm:
    """A cache folder of its own, and with it background Sparks of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.place = self.cache / "floodmark" / "background-spark"

    def environment(self, **variables: str) -> dict[str, str]:
        """The environment of a command; an empty variable is not set."""
        found = {**cold_environment(), "XDG_CACHE_HOME": str(self.cache), **variables}
        return {name: value for name, value in found.items() if value}

    def start(self, command: list[str], **variables: str) -> "subprocess.Popen[str]":
        """Start a command as a user would."""
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment(**variables),
        )

    def attach(self, script: str, **variables: str) -> str:
        """Attach, run a script with `spark`, and return what it printed."""
        ended = finish(self.start([sys.executable, "-c", ATTACHED % script], **variables), 300)
        assert ended.code == 0, ended.err
        return ended.out

    def attached(self, script: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a script, and wait until it is attached."""
        process = self.start([sys.executable, "-c", ATTACHED % script], **variables)
        assert process.stdout is not None
        while (line := process.stdout.readline()) != "attached\n":
            assert line, process.communicate()
        return process

    def floodmark(self, *arguments: str, **variables: str) -> Ended:
        """Run a command."""
        return finish(self.start([*PROGRAM, *arguments], **variables), 300)

    def servers(self) -> list[dict[str, Any]]:
        """What `spark status` says of the servers that answer."""
        ended = self.floodmark("spark", "status", "--json")
        assert ended.code == 0, ended
        return [server["state"] for server in ended.value if server["state"]]

    def server(self) -> dict[str, Any]:
        """The only server."""
        (found,) = self.servers()
        return found

    def log(self) -> str:
        """What all servers logged."""
        return "".join(path.read_text() for path in sorted(self.place.glob("*.log")))

    def files(self) -> set[str]:
        """The kinds of files that are there."""
        return {path.suffix for path in self.place.iterdir()} - {".log"}


def end(warm: Warm) -> None:
    """End all background Sparks of a cache folder."""
    pids = [state["pid"] for state in warm.servers()]
    warm.floodmark("spark", "stop", "--now")
    wait_until(lambda: not any(map(runs, pids)), 120)


def runs(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                found += tree(int(child))
    return found
