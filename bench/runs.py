"""Run each contender, and measure its cost."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

import meter
import tables
from meter import Cost
from place import JAR, PEERS, ROOT, Place
from servers.mysql import PrivateMySQL

Contender = Callable[[int], Cost]

RELEASE = ROOT / ".release/src"
"""The source of the last release, which `scripts/bench-release` unpacks."""

_HERE = Path(__file__).parent / "contenders"
_PEER = {
    "RUNTIME__DLTHUB_TELEMETRY": "false",
    "RUNTIME__LOG_LEVEL": "ERROR",
    "SLING_DISABLE_TELEMETRY": "true",
}


def floor(place: Place, name: str, rows: int, processes: int) -> Cost:
    """Run only connectorx and pyarrow."""
    folder = place.folder / name
    command = [sys.executable, str(_HERE / "floor.py"), place.source_url, str(rows), str(folder)]
    cost = meter.run([*command, str(processes)], place.folder)
    return structs.replace(cost, bytes=meter.bytes_below(folder))


def floodmark(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> Cost:
    """Run the real command, from a cold start."""
    before = _lake_bytes(folder)
    cost = meter.run([sys.executable, "-m", "floodmark", *arguments], folder, environment)
    return structs.replace(cost, bytes=_lake_bytes(folder) - before)


def without_spark(folder: Path, *arguments: str) -> Cost:
    """Run the real command, which reads the rows itself; it fails if it needs Java."""
    alone = {"FLOODMARK_SPARK": "{from_rows: 1_000_000_000}", "JAVA_HOME": "/nonexistent"}
    return floodmark(folder, *arguments, environment=alone)


def has_release(place: Place) -> bool:
    """Whether the last release can be measured here; on MySQL it did not work."""
    return RELEASE.exists() and not isinstance(place.source, PrivateMySQL)


def last_release(folder: Path, *arguments: str) -> Cost:
    """Run the command of the last release, from a cold start."""
    return floodmark(folder, *arguments, environment={"PYTHONPATH": str(RELEASE)})


def warm_up(place: Place) -> None:
    """Run commands once, unmeasured: the first one on a machine archives Java's classes."""
    tables.create(place.source, "few", tables.NARROW, 1000)
    for name, run in (("first", floodmark), ("first_old", last_release)):
        if name == "first" or RELEASE.exists():
            for number in range(2):
                folder = place.floodmark(f"{name}_{number}")
                run(folder, "sync", "-t", "bench.few", "--backup-only")


class WarmFloodmark:
    """Runs commands in a process with a running Spark."""

    def __init__(self, place: Place, master: str = "local[*,4]") -> None:
        self._server = meter.Server(
            [sys.executable, str(_HERE / "warm_floodmark.py"), master], place.folder
        )
        self.stop = self._server.stop
        self.pid = self._server.pid

    def run(self, folder: Path, *arguments: str) -> tuple[Cost, dict[str, Any]]:
        """Run a command; return its cost and its result."""
        before = _lake_bytes(folder)
        config = str(folder / "floodmark.yml")
        cost, answer = self._server.ask([*arguments, "--json", "--config", config])
        output = answer["output"]
        printed = json.loads(output) if output.strip() else {}
        return structs.replace(cost, bytes=_lake_bytes(folder) - before), printed


class KeptWarm:
    """Runs the real command, which attaches to a Spark in the background."""

    def __init__(self, place: Place) -> None:
        self._folder = place.folder
        self._variables = {
            "FLOODMARK_SPARK": "{keep_warm: 1h}",
            "XDG_CACHE_HOME": str(place.folder / "cache"),
        }
        self._server = 0

    def start(self, folder: Path, *arguments: str) -> None:
        """Run a command that starts Spark, without measuring it."""
        self._call(folder, *arguments)
        (found,) = json.loads(self._call(folder, "spark", "status", "--json"))
        self._server = found["pid"]

    def run(self, folder: Path, *arguments: str) -> Cost:
        """Run a command; its CPU time and memory include those of the Spark in the background."""
        before, spent = _lake_bytes(folder), meter.tree_cpu(self._server)
        command = [sys.executable, "-m", "floodmark", *arguments]
        cost = meter.run(command, folder, self._variables)
        return structs.replace(
            cost,
            cpu=cost.cpu + meter.tree_cpu(self._server) - spent,
            memory=cost.memory + meter.tree_memory(self._server),
            bytes=_lake_bytes(folder) - before,
        )

    def stop(self) -> None:
        """Stop the Spark in the background."""
        self._call(self._folder, "spark", "stop", "--now")

    def _call(self, folder: Path, *arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "floodmark", *arguments],
            cwd=folder,
            env={**os.environ, **self._variables},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout


class WarmJdbc:
    """Plain Spark, warm."""

    def __init__(self, place: Place, rows: int) -> None:
        source = place.source
        # Spark quotes names as in MySQL only with this scheme, which the driver also accepts.
        url = f"jdbc:mysql://{source.host}:{source.port}/bench"
        script = str(_HERE / "warm_jdbc.py")
        arguments = [script, str(JAR), url, source.user, source.password, str(rows)]
        self._server = meter.Server([sys.executable, *arguments], place.folder)
        self.stop = self._server.stop

    def run(self, folder: Path) -> Cost:
        """Write the table to a folder."""
        cost, _ = self._server.ask(str(folder))
        return structs.replace(cost, bytes=meter.bytes_below(folder))


def cold_start() -> dict[str, Any]:
    """Return the cost of each step of a start of Spark."""
    command = [sys.executable, str(_HERE / "cold_start.py")]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return dict(json.loads(printed))


def memory(folder: Path, table: str) -> dict[str, float]:
    """Run stage 1 of a table by the real command; return the peak memory of its processes."""
    arguments = ["sync", "-t", f"bench.{table}", "--backup-only", "--json"]
    command = [sys.executable, "-m", "floodmark", *arguments]
    printed = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE).stdout
    found = json.loads(printed)
    result = found["tables"][0]
    return {
        "rows": result["rows"],
        "seconds": result["seconds"],
        "worker": result["worker_peak_bytes"],
        "driver": found["driver_peak_bytes"],
    }


def dlt(place: Place, folder: Path, to: str, backend: str, mode: str, table: str = "wide") -> Cost:
    """Run dlt to a folder, PostgreSQL or DuckDB; `folder` holds its state."""
    source = place.source_url.replace("mysql:", "mysql+pymysql:")
    places = {"postgres": place.target_url, "duckdb": str(folder / "warehouse.duckdb")}
    destination = places.get(to, str(folder / "files"))
    command = [str(PEERS / "bin/python"), str(_HERE / "dlt_peer.py"), source, table]
    dataset = place.schema(folder.name)
    cost = meter.run([*command, destination, backend, mode, dataset], folder, _PEER)
    files = folder / "files"
    return structs.replace(cost, bytes=meter.bytes_below(files) if files.exists() else 0)


def sling(place: Place, folder: Path, to: str, table: str = "wide") -> Cost:
    """Run Sling to a CSV file or, merging by key, to PostgreSQL."""
    (binary,) = PEERS.glob("lib/python*/site-packages/sling_linux_amd64/bin/sling-linux-amd64")
    command = [str(binary), "run", "--src-conn", "BENCH_SOURCE", "--src-stream", f"bench.{table}"]
    file = folder / "wide.csv"
    if to == "postgres":
        command += [
            "--tgt-conn",
            "BENCH_TARGET",
            "--tgt-object",
            f"{place.schema(folder.name)}.wide",
        ]
        command += ["--mode", "incremental", "--primary-key", "id", "--update-key", "update_at"]
    else:
        command += ["--tgt-object", f"file://{file}", "--mode", "full-refresh"]
    environment = {
        **_PEER,
        "BENCH_SOURCE": place.source_url,
        "BENCH_TARGET": f"{place.target_url}?sslmode=disable",
        "HOME": str(place.folder),
    }
    cost = meter.run(command, folder, environment)
    return structs.replace(cost, bytes=os.path.getsize(file) if file.exists() else 0)


def _lake_bytes(folder: Path) -> int:
    lake = folder / "lake" / "incremental"
    return meter.bytes_below(lake) if lake.exists() else 0
