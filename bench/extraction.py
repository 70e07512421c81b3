"""Stage 1 at two sizes: the cost of a row, and the memory of driver and workers, as ratios.

FLOODMARK_BENCH_ROWS sets the smaller size; the larger is ten times that.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from floodmark.embedded.mariadb import PrivateMariaDB

ROWS = int(os.environ.get("FLOODMARK_BENCH_ROWS", "1000000"))
FACTOR = 10

CONFIG = """
lake: ./lake
connections:
  PROD: {{type: mysql, port: {port}, user: {user}, password: "{password}"}}
  warehouse: {{type: duckdb, path: ./warehouse.duckdb}}
pipelines:
  main:
    source: PROD
    target: warehouse
    tables:
      bench.small: {{cursor: [update_at, id]}}
      bench.large: {{cursor: [update_at, id]}}
      bench.small_keyless: {{cursor: none}}
      bench.large_keyless: {{cursor: none}}
"""
KEYS = ", PRIMARY KEY (id), KEY by_change (update_at, id)"


def main() -> None:
    """Print one line a size and the ratios, for a table with keys and for one without."""
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as name:
        folder = Path(name)
        options = {"innodb_buffer_pool_size": "1G"}
        with PrivateMariaDB(folder / "mariadb", options) as source:
            source.execute("CREATE DATABASE bench")
            config = CONFIG.format(port=source.port, user=source.user, password=source.password)
            (folder / "floodmark.yml").write_text(config)
            create(source, "small", ROWS, keys=KEYS)
            extract(folder, "small")  # so that neither pays for a cold disk and class archive
            reset(folder, "small")
            create(source, "large", ROWS * FACTOR, keys=KEYS)
            compare("with keys", extract(folder, "small"), extract(folder, "large"))
            source.execute("DROP TABLE bench.large")
            create(source, "small_keyless", ROWS)
            create(source, "large_keyless", ROWS * FACTOR)
            compare(
                "without a key, streamed",
                extract(folder, "small_keyless"),
                extract(folder, "large_keyless"),
            )


def compare(title: str, small: dict[str, float], large: dict[str, float]) -> None:
    """Print what two sizes cost."""
    print(title)
    print(f"{'rows':>12}{'seconds':>10}{'rows/s':>10}{'driver MB':>11}{'worker MB':>11}{'MB':>8}")
    for result in (small, large):
        print(
            f"{result['rows']:12,.0f}{result['seconds']:10.1f}"
            f"{result['rows'] / result['seconds']:10,.0f}{result['driver'] / 1e6:11.0f}"
            f"{result['worker'] / 1e6:11.0f}{result['bytes'] / 1e6:8.0f}"
        )
    per_row = (large["seconds"] / large["rows"]) / (small["seconds"] / small["rows"])
    print(f"cost of a row, large against small: {per_row:.2f}")
    print(f"memory of the driver's Python:      {large['driver'] / small['driver']:.2f}")
    print(f"memory of a Python worker:          {large['worker'] / small['worker']:.2f}\n")


def create(source: PrivateMariaDB, table: str, rows: int, *, keys: str = "") -> None:
    """Make a narrow table of so many rows."""
    source.execute(
        f"CREATE TABLE bench.{table} (id BIGINT NOT NULL, amount DECIMAL(12,4), note VARCHAR(20),"
        f" update_at DATETIME NOT NULL ON UPDATE CURRENT_TIMESTAMP{keys})"
    )
    for first in range(1, rows + 1, 1_000_000):
        last = min(first + 999_999, rows)
        source.execute(
            f"INSERT INTO bench.{table} SELECT seq, seq / 7, CONCAT('note ', seq % 1000),"
            " '2025-06-01' + INTERVAL seq DIV 100 SECOND"
            f" FROM bench.seq_{first}_to_{last}"
        )
    source.execute(f"ANALYZE TABLE bench.{table}")


def extract(folder: Path, table: str) -> dict[str, float]:
    """Run stage 1 for a table with the real command."""
    found = json.loads(run(folder, "sync", "-t", f"bench.{table}", "--backup-only", "--json"))
    result = found["tables"][0]
    return {
        "rows": result["rows"],
        "seconds": result["seconds"],
        "bytes": result["bytes"],
        "worker": result["worker_peak_bytes"],
        "driver": found["driver_peak_bytes"],
    }


def reset(folder: Path, table: str) -> None:
    """Send a table back to its start."""
    run(folder, "watermark", "reset", "-t", f"bench.{table}")


def run(folder: Path, *words: str) -> str:
    """Run the command and return what it prints."""
    command = [sys.executable, "-m", "floodmark", *words]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
