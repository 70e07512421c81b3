"""Measure everyday costs: lists, commits, and the size of a watermark after many commits."""

import os
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import meter
from floodmark.model import lake_layout
from floodmark.model.table import TableName
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectInfo, ObjectStore, StoredObject
from scenarios import BUCKET, KEYS, TABLE, Lake, chunk_after, open_store
from servers.seaweedfs import SeaweedFS

TABLES = 10_000
MANIFESTS = 10_000
COMMITS = 20

_CONFIG = """
lake: ./lake
connections:
  US_PROD: {type: mysql, user: reader}
  warehouse: {type: duckdb, path: ./warehouse.duckdb}
pipelines:
  main:
    source: US_PROD
    target: warehouse
    tables:
"""


class CountingStore(ObjectStore):
    """Wrap a store, and count its requests."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.requests: Counter[str] = Counter()

    def get(self, key: str) -> StoredObject:
        """Count and forward."""
        self.requests["get"] += 1
        return self._store.get(key)

    def put(self, key: str, data: bytes) -> str:
        """Count and forward."""
        self.requests["put"] += 1
        return self._store.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Count and forward."""
        self.requests["put if absent"] += 1
        return self._store.put_if_absent(key, data)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """Count and forward."""
        self.requests["put if match"] += 1
        return self._store.put_if_match(key, data, etag)

    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Count and forward."""
        self.requests["list"] += 1
        return self._store.list_objects(prefix, after=after)

    def list_folders(self, prefix: str) -> list[str]:
        """Count and forward."""
        self.requests["list"] += 1
        return self._store.list_folders(prefix)

    def delete(self, key: str) -> None:
        """Count and forward."""
        self.requests["delete"] += 1
        self._store.delete(key)

    def __str__(self) -> str:
        return str(self._store)


def commit(store: WatermarkStore, table: TableName = TABLE) -> None:
    """Commit a chunk like stage 1."""
    store.commit(table, lambda current: chunk_after(current, 1000, "file"))


def measure_commits(folder: Path) -> dict[str, Any]:
    """Measure requests and time of a commit and its lease, in a folder and on S3."""
    found = {"local folder": _commits(Lake(folder=str(folder / "lake")).open())}
    os.environ.update(KEYS)
    with SeaweedFS(folder / "seaweedfs") as server:
        server.create_bucket(BUCKET)
        found["S3 (SeaweedFS)"] = _commits(Lake(prefix="bench", endpoint=server.endpoint).open())
    return found


def _commits(objects: ObjectStore) -> dict[str, Any]:
    counting = CountingStore(objects)
    store = open_store(counting)
    seconds = []
    with store.lease(TABLE):
        commit(store)
        taken: Counter[str] = Counter()
        for _ in range(COMMITS):
            counting.requests.clear()
            began = time.monotonic()
            commit(store)
            seconds.append(time.monotonic() - began)
            taken = Counter(counting.requests)
        counting.requests.clear()
    released = Counter(counting.requests)
    counting.requests.clear()
    with open_store(counting).lease(TABLE):
        leased = Counter(counting.requests)
    return {
        "seconds": statistics.median(seconds),
        "requests of a commit": dict(taken),
        "requests of taking the lease": dict(leased),
        "requests of giving it back": dict(released),
    }


def measure_watermark() -> dict[str, Any]:
    """Measure a watermark after few and after many manifests, with and without its numbers."""
    store, found = open_store(MemoryObjectStore()), {}
    for number in range(1, MANIFESTS + 1):
        commit(store)
        if number in (10, MANIFESTS):
            data = store.objects.get(lake_layout.primary(TABLE)).data
            found[f"after {number:,}"] = {
                "bytes": len(data),
                "bytes but numbers": len(re.sub(rb"[0-9a-f]+", b"", data)),  # and checksums
            }
    return found


def measure_listing(folder: Path, rounds: int) -> dict[str, Any]:
    """Measure `watermark list` over many tables, each with a watermark."""
    names = [TableName("US_PROD", "shop", f"t{number:05d}") for number in range(TABLES)]
    for name in names:
        memory = MemoryObjectStore()
        commit(open_store(memory), name)
        for info in memory.list_objects(""):
            path = folder / "lake" / info.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(memory.get(info.key).data)
    lines = "".join(f"      shop.{name.table}: {{cursor: id}}\n" for name in names)
    (folder / "floodmark.yml").write_text(_CONFIG + lines)
    command = [sys.executable, "-m", "floodmark", "watermark", "list"]
    costs = [meter.run(command, folder) for _ in range(rounds)]
    return {
        "tables": TABLES,
        "wall": statistics.median(cost.wall for cost in costs),
        "memory": statistics.median(cost.memory for cost in costs),
    }
