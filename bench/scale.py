"""Measure many tables with nothing new, and tables with few and with many manifests."""

import os
import statistics
import sys
from pathlib import Path
from typing import Any

import meter
from everyday import commit
from place import Place
from scenarios import BUCKET, KEYS, Lake, open_store
from servers.seaweedfs import SeaweedFS

IDLE_TABLES = int(os.environ.get("FLOODMARK_BENCH_TABLES", "1000"))
FEW, MANY = 100, 10_000
STRATEGIES = ("sequential", "inter-table", "intra-table")
COMMANDS = {
    "watermark get": ("watermark", "get", "-t", "shop.orders"),
    "watermark list": ("watermark", "list"),
    "status": ("status",),
    "plan of a load": ("sync", "-t", "shop.orders", "--redshift-only", "--dry-run"),
    "watermark history": ("watermark", "history", "-t", "shop.orders"),
    "s3clean list": ("s3clean", "list", "-t", "shop.orders"),
    "watermark validate": ("watermark", "validate", "-t", "shop.orders", "--json"),
}

_IDLE = """
lake: {lake}
connections:
  PROD: {{type: mysql, port: {source.port}, user: {source.user}, password: "{source.password}"}}
  warehouse: {{type: duckdb, path: ./warehouse.duckdb}}
default_start: all
pipelines:
  main:
    source: PROD
    target: warehouse
    tables:
{tables}
"""
_LOG = """
lake: ./lake
connections:
  US_PROD: {type: mysql, user: reader}
  warehouse: {type: duckdb, path: ./warehouse.duckdb}
pipelines:
  main: {source: US_PROD, target: warehouse, tables: {shop.orders: {cursor: id}}}
"""


def measure_idle(place: Place, rounds: int) -> dict[str, Any]:
    """Sync many tables with nothing new, with each strategy, to a folder and to S3.

    The cost of a table is that of all tables without that of one, divided by the others.
    """
    place.source.execute("CREATE DATABASE IF NOT EXISTS idle")
    names = [f"t{number:05d}" for number in range(IDLE_TABLES)]
    for name in names:
        place.source.execute(
            f"CREATE TABLE idle.{name} (id BIGINT PRIMARY KEY, note VARCHAR(20),"
            " update_at DATETIME NOT NULL, KEY by_change (update_at, id))"
        )
        place.source.execute(f"INSERT INTO idle.{name} VALUES (1, 'one', '2025-06-01')")
    os.environ.update(KEYS)
    server_folder = place.empty("idle_s3")
    with SeaweedFS(server_folder / "seaweedfs") as server:
        server.create_bucket(BUCKET)
        lakes = {
            "folder": "./lake",
            "S3 (SeaweedFS)": Lake(prefix="idle", endpoint=server.endpoint).yaml,
        }
        return {
            f"{where}, {strategy}": cost
            for where, lake in lakes.items()
            for strategy, cost in _idle(place, where, lake, names, rounds).items()
        }


def _idle(
    place: Place, where: str, lake: str, names: list[str], rounds: int
) -> dict[str, dict[str, float]]:
    folder = place.empty(f"idle_{where[:2]}")
    tables = "".join(f"      idle.{name}: {{cursor: [update_at, id]}}\n" for name in names)
    (folder / "floodmark.yml").write_text(
        _IDLE.format(lake=lake, source=place.source, tables=tables)
    )
    program = (sys.executable, "-m", "floodmark", "sync", "--quiet")
    meter.run([*program, "-p", "main", "--strategy", "inter-table"], folder)
    costs: dict[str, list[tuple[float, float]]] = {strategy: [] for strategy in STRATEGIES}
    for _ in range(rounds):
        for strategy, found in costs.items():
            one = meter.run([*program, "-t", f"idle.{names[0]}"], folder)
            every = meter.run([*program, "-p", "main", "--strategy", strategy], folder)
            others = len(names) - 1
            found.append(((every.wall - one.wall) / others, (every.cpu - one.cpu) / others))
    return {
        strategy: {
            "wall": statistics.median(wall for wall, _ in found),
            "cpu": statistics.median(cpu for _, cpu in found),
        }
        for strategy, found in costs.items()
    }


def measure_logs(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Run commands over a table with few manifests and over one with many, interleaved."""
    folders = {}
    for size in (FEW, MANY):
        folders[size] = folder / str(size)
        folders[size].mkdir()
        (folders[size] / "floodmark.yml").write_text(_LOG)
        store = open_store(Lake(folder=str(folders[size] / "lake")).open())
        for _ in range(size):
            commit(store)
    found: dict[str, dict[str, float]] = {}
    for name, arguments in COMMANDS.items():
        walls: dict[int, list[float]] = {FEW: [], MANY: []}
        for _ in range(rounds):
            for size, place in folders.items():
                command = [sys.executable, "-m", "floodmark", *arguments]
                cost = meter.run(command, place, allowed=(0, 5))
                walls[size].append(cost.wall)
        few, many = (statistics.median(walls[size]) for size in (FEW, MANY))
        found[name] = {"few": few, "many": many, "ratio": many / few}
    return found
