"""Lakes, stores and chunks for tests of the watermark store."""

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from random import Random

import pytest

from floodmark.model import lake_layout
from floodmark.model.manifest import Chunk, DataFile
from floodmark.model.notice import Notice
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.timestamps import utc_now
from floodmark.model.watermark import Watermark
from floodmark.state.run import Run
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.local import LocalObjectStore
from floodmark.storage.objects import ObjectStore
from floodmark.storage.retrying import Backoff, RetryingObjectStore
from floodmark.storage.s3 import S3ObjectStore
from servers import S3Server

TABLE = TableName("US_PROD", "shop", "orders")
BUCKET = "watermarks"

KEYS = {
    "AWS_ACCESS_KEY_ID": S3Server.access_key,
    "AWS_SECRET_ACCESS_KEY": S3Server.secret_key,
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}
STRAY_KEYS = (
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_SESSION_TOKEN",
)


def use_test_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the AWS chain find the test servers' keys, and nothing of this machine."""
    for name in STRAY_KEYS:
        monkeypatch.delenv(name, raising=False)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@dataclass(frozen=True)
class Lake:
    """Where a test's objects are; can be sent to another process."""

    folder: str | None = None
    prefix: str = ""
    endpoint: str = ""
    bucket: str = BUCKET

    def open(self) -> ObjectStore:
        """Open the lake as the program would, but wait less between tries."""
        store: ObjectStore
        if self.folder is not None:
            store = LocalObjectStore(self.folder)
        else:
            store = S3ObjectStore(self.bucket, self.prefix, endpoint=self.endpoint or None)
        backoff = Backoff(tries=3, first_seconds=0.005)
        return RetryingObjectStore(store, backoff, sleep=_pause, random=Random())

    @property
    def yaml(self) -> str:
        """How a configuration names this lake."""
        if self.folder is not None:
            return self.folder
        endpoint = f', endpoint: "{self.endpoint}"' if self.endpoint else ""
        return f'{{url: "s3://{self.bucket}/{self.prefix}"{endpoint}}}'


def new_lake(kind: str, request: pytest.FixtureRequest, folder: Path) -> Lake:
    """Make an empty lake: `local`, or on the server of that name."""
    if kind == "local":
        return Lake(folder=str(folder / "lake"))
    server: S3Server = request.getfixturevalue(kind)
    _make_bucket(server)
    return Lake(prefix=uuid.uuid4().hex, endpoint=server.endpoint)


def open_store(
    objects: ObjectStore,
    *,
    session: str | None = None,
    clock: Callable[[], datetime] = utc_now,
    notices: list[Notice] | None = None,
    known: tuple[TableName, ...] = (),
    lease_seconds: float = 60.0,
) -> WatermarkStore:
    """Open the store as a run of its own would."""
    run = Run(
        session_id=session or f"{clock():%Y%m%d_%H%M%S}_{uuid.uuid4().hex[:6]}",
        author=f"tester@{os.getpid()}",
        clock=clock,
        report=(notices if notices is not None else []).append,
        random=Random(),
        lease_seconds=lease_seconds,
        sleep=_pause,
    )
    return WatermarkStore(objects, run, known_tables=known)


def chunk_after(watermark: Watermark, rows: int, name: str, *, final: bool = True) -> Chunk:
    """Make the chunk of the next rows of a table with an id cursor, in one file."""
    start = watermark.position
    end = Position(id=_number(start) + rows)
    path = f"{lake_layout.data_files(TABLE)}year=2025/{name}.parquet"
    file = DataFile(path, rows, rows, "", "", Position(id=_number(start) + 1), end)
    return Chunk(start=start, end=end, files=(file,), strategy="sequential", final=final)


def land(store: WatermarkStore, rows: int, name: str, *, races: int = 0) -> Watermark:
    """Extract a chunk: write its data file, then commit it."""

    def decide(current: Watermark) -> Chunk:
        chunk = chunk_after(current, rows, name)
        for file in chunk.files:
            store.objects.put(file.path, b"." * file.bytes)
        return chunk

    return store.commit(TABLE, decide, races=races)


CONFIG = """\
lake: {lake}
connections:
  US_PROD: {{type: mysql, user: reader, password: "${{NO_SUCH_PASSWORD}}"}}
  warehouse: {{type: duckdb, path: ./warehouse.duckdb}}
pipelines:
  shop_pipeline:
    source: US_PROD
    target: warehouse
    tables:
      shop.orders: {{cursor: id}}
      shop.payments: {{cursor: [update_at, id]}}
"""


def write_config(folder: Path, lake: Lake, extra: str = "") -> str:
    """Write a configuration with the tables that tests use, and return its path."""
    path = folder / "floodmark.yml"
    path.write_text(CONFIG.format(lake=lake.yaml) + extra)
    return str(path)


def snapshot(objects: ObjectStore) -> dict[str, bytes]:
    """Every object there is."""
    return {info.key: objects.get(info.key).data for info in objects.list_objects("")}


@cache
def _make_bucket(server: S3Server) -> None:
    server.create_bucket(BUCKET)


def _number(position: Position) -> int:
    return position.id if isinstance(position.id, int) else 0


def _pause(seconds: float) -> None:
    time.sleep(min(seconds, 0.05))
