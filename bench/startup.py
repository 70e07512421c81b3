"""Measure the start-up time of quick commands, relative to `python -c pass`."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 21
LIMIT = 10.0

CONFIG = """
lake: ./lake
connections:
  PROD: {type: mysql, user: reader}
  warehouse: {type: duckdb, path: ./warehouse.duckdb}
pipelines:
  main: {source: PROD, target: warehouse, tables: {shop.orders: {}, shop.items: {}}}
"""


def main() -> int:
    """Print one line a command; 1 if one of them takes more than ten times `pass`."""
    program = str(Path(sys.executable).with_name("floodmark"))
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "floodmark --help": [program, "--help"],
        "floodmark watermark get": [program, "watermark", "get", "-t", "shop.orders"],
        "floodmark watermark list": [program, "watermark", "list"],
    }
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "floodmark.yml").write_text(CONFIG)
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        run(
            [program, "watermark", "set", "-t", "shop.orders", "--id", "5", "--force"],
            folder,
            environment,
        )
        for _ in range(ROUNDS):
            # Interleaved, so that load on the machine affects all of them.
            for name, command in commands.items():
                seconds[name].append(run(command, folder, environment))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    base = medians["python -c pass"]
    print(f"{'command':28}{'median ms':>10}{'ratio':>8}")
    for name, median in medians.items():
        print(f"{name:28}{median * 1000:10.1f}{median / base:8.1f}")
    worst = max(medians.values()) / base
    print(f"limit {LIMIT:.0f}: {'kept' if worst <= LIMIT else 'EXCEEDED'}")
    return int(worst > LIMIT)


def run(command: list[str], folder: str, environment: dict[str, str]) -> float:
    """Return the seconds that a command takes."""
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
