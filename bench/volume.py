"""Sync 5.5 million rows in 110 files, and check every count that is shown.

Stage 1 and stage 2 run separately, into DuckDB and PostgreSQL; the second load is also killed in
the middle. Prints times; fails at the first wrong number. FLOODMARK_VOLUME_ROWS sets another number
of rows.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from floodmark.embedded.mariadb import PrivateMariaDB
from servers.postgres import PrivatePostgres

ROWS = int(os.environ.get("FLOODMARK_VOLUME_ROWS", "5500000"))
FILES = 110
MORE = 10_000  # rows that the limit leaves in the source
TABLE = "settlement.settlement_normal_delivery_detail"
NAME = "settlement_normal_delivery_detail"

CONFIG = """
lake: ./lake
connections:
  PROD: {{type: mysql, port: {port}, user: {user}, password: "{password}"}}
  warehouse: {target}
pipelines:
  main:
    source: PROD
    target: warehouse
    tables: {{{table}: {{cursor: [update_at, id]}}}}
extraction: {{window_rows: {window}, windows_per_chunk: 10}}
loading: {{batch_mb: 4}}
"""


def main() -> None:
    """Run and time each step, and check every number."""
    with ExitStack() as running, tempfile.TemporaryDirectory(prefix="floodmark-volume-") as name:
        folder = Path(name)
        options = {"innodb_buffer_pool_size": "1G"}
        source = running.enter_context(PrivateMariaDB(folder / "mysql_server", options))
        postgres = running.enter_context(PrivatePostgres(folder / "postgres_server"))
        timed("fill the source", fill, source)
        targets = {
            "duckdb": "{type: duckdb, path: ./warehouse.duckdb}",
            "postgres": json.dumps(
                {
                    "type": "postgres",
                    "host": postgres.host,
                    "port": postgres.port,
                    "database": "postgres",
                    "user": postgres.user,
                    "password": postgres.password,
                    "schema": "volume",
                }
            ),
        }
        for kind, target in targets.items():
            (folder / kind).mkdir()
            config = CONFIG.format(
                port=source.port,
                user=source.user,
                password=source.password,
                target=target,
                table=TABLE,
                window=ROWS // FILES,
            )
            (folder / kind / "floodmark.yml").write_text(config)
        limit = ("--limit", str(ROWS))
        first = folder / "duckdb"
        timed("stage 1", run, first, "sync", "-t", TABLE, "--backup-only", *limit)
        check_lake(first)
        shutil.copytree(first / "lake", folder / "postgres" / "lake")
        counts: dict[str, Callable[[], tuple[int, int, int]]] = {
            "duckdb": lambda: in_duckdb(first / "warehouse.duckdb"),
            "postgres": lambda: in_postgres(postgres),
        }
        for kind, count in counts.items():
            place = folder / kind
            if kind == "postgres":
                timed("killed in stage 2", kill_load, place)
            timed(f"stage 2, {kind}", run, place, "sync", "-t", TABLE, "--redshift-only")
            timed(f"look at {kind}", check_loaded, place)
            expect(f"{kind}: rows, keys and the ledger's sum", count(), (ROWS, ROWS, ROWS))
    print(f"{ROWS:,} rows in {FILES} files: every number is right")


def fill(source: PrivateMariaDB) -> None:
    """Insert a few more rows than are extracted, a hundred with each time."""
    source.execute("CREATE DATABASE settlement")
    source.execute(
        f"CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY, partner INT NOT NULL, amount DECIMAL(12,4),"
        " note VARCHAR(40), update_at DATETIME NOT NULL ON UPDATE CURRENT_TIMESTAMP,"
        " KEY by_change (update_at, id))"
    )
    for start in range(1, ROWS + MORE + 1, 1_000_000):
        last = min(start + 999_999, ROWS + MORE)
        source.execute(
            f"INSERT INTO {TABLE} SELECT seq, seq % 977, seq / 7, CONCAT('note ', seq % 1000),"
            " '2025-06-01' + INTERVAL seq DIV 100 SECOND"
            f" FROM settlement.seq_{start}_to_{last}"
        )
    source.execute(f"ANALYZE TABLE {TABLE}")


def check_lake(folder: Path) -> None:
    """Check every count of stage 1."""
    document = json.loads(run(folder, "watermark", "get", "-t", TABLE, "--json"))
    state = document["mysql_state"]
    expect("watermark get --json", (state["total_rows"], state["s3_file_count"]), (ROWS, FILES))
    shown = run(folder, "watermark", "get", "-t", TABLE, "--show-files")
    numbers = [number(shown, f"{label}: ") for label in ("Rows Extracted", "S3 Files Created")]
    expect("watermark get", tuple(numbers), (ROWS, FILES))
    expect("watermark get --show-files", number(shown, r"S3 Files \("), FILES)
    files = json.loads(run(folder, "s3clean", "list", "-t", TABLE, "--json"))
    expect("s3clean list", (sum(f["rows"] for f in files), len(files)), (ROWS, FILES))
    on_disk = list((folder / "lake" / "incremental").rglob("*.parquet"))
    expect("files in the lake", len(on_disk), FILES)
    expect("bytes", state["s3_bytes"], sum(path.stat().st_size for path in on_disk))


def check_loaded(folder: Path) -> None:
    """Check every count of both stages."""
    check_lake(folder)
    document = json.loads(run(folder, "watermark", "get", "-t", TABLE, "--json"))
    state = document["redshift_state"]
    expect("watermark get --json", (state["status"], state["total_rows"]), ("success", ROWS))
    shown = run(folder, "watermark", "get", "-t", TABLE)
    expect("watermark get", number(shown, "Rows Loaded: "), ROWS)
    listed = run(folder, "watermark", "list").split()
    expect("watermark list", listed.count(f"{ROWS:,}"), 2)
    (found,) = json.loads(run(folder, "watermark", "validate", "-t", TABLE, "--json"))
    numbers = (found["files"], found["rows"], found["loaded_rows"], found["target_rows"])
    expect("watermark validate", numbers, (FILES, ROWS, ROWS, ROWS))
    expect("differences", found["differences"], [])
    files = json.loads(run(folder, "s3clean", "list", "-t", TABLE, "--json"))
    expect("s3clean list", {file["state"] for file in files}, {"loaded"})


def kill_load(folder: Path) -> None:
    """Start a load, and kill it once some rows are loaded."""
    command = [sys.executable, "-m", "floodmark", "sync", "-t", TABLE, "--redshift-only"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    key = folder / "lake" / "watermarks" / "v2" / "PROD" / f"{TABLE}.json"

    def loaded() -> int:
        return int(json.loads(key.read_bytes())["redshift_state"]["total_rows"])

    while process.poll() is None and not loaded():
        time.sleep(0.05)
    process.kill()
    process.wait()
    print(f"  the watermark says that {loaded():,} rows were loaded before the kill")


def in_duckdb(path: Path) -> tuple[int, int, int]:
    """Return rows, distinct keys, and the ledger's sum."""
    with duckdb.connect(str(path), read_only=True) as database:
        found = database.execute(_counts("main")).fetchone()
    assert found is not None
    return found


def in_postgres(server: PrivatePostgres) -> tuple[int, int, int]:
    """Return rows, distinct keys, and the ledger's sum."""
    with psycopg.connect(
        host=server.host,
        port=server.port,
        dbname="postgres",
        user=server.user,
        password=server.password,
    ) as connection:
        found = connection.execute(_counts("volume").encode()).fetchone()
    assert found is not None
    return tuple(map(int, found))  # type: ignore[return-value]


def _counts(schema: str) -> str:
    return (
        f"SELECT COUNT(*), COUNT(DISTINCT id),"
        f" (SELECT CAST(SUM(row_count) AS BIGINT) FROM {schema}.floodmark_ledger)"
        f" FROM {schema}.{NAME}"
    )


def number(text: str, before: str) -> int:
    """Return the number after some text."""
    found = re.search(rf"{before}([\d,]+)", re.sub(r"\x1b\[\d+m", "", text))
    assert found is not None, f"{before!r} is not in {text}"
    return int(found[1].replace(",", ""))


def expect(what: str, found: Any, expected: Any) -> None:
    """Exit if a number is wrong."""
    if found != expected:
        raise SystemExit(f"{what}: {found}, not {expected}")


def timed(what: str, work: Callable[..., object], *arguments: object) -> None:
    """Run a step, and print its time."""
    began = time.perf_counter()
    work(*arguments)
    print(f"{what:24}{time.perf_counter() - began:8.1f} s", flush=True)


def run(folder: Path, *arguments: str) -> str:
    """Run the command and return its output."""
    command = [sys.executable, "-m", "floodmark", *arguments]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
