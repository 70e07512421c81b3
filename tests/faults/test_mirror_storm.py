"""Concurrent writes, two syncs and a deleted bucket: no row is lost or duplicated."""

import json
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Event
from typing import Any
from unittest.mock import patch

import boto3  # type: ignore[import-untyped]
import duckdb
import pytest

from floodmark import open_project
from floodmark.errors import FloodmarkError
from floodmark.sync import spark_engine as engines
from pipelines import DirectEngine, Pipeline, ask, ask_once, session, wait_until
from scenarios import Lake
from servers import S3Server
from servers.seaweedfs import SeaweedFS

pytestmark = pytest.mark.enough_on("mariadb")  # it is about the state

TABLES = ("keyed", "appended")
LOSSES = 2


def client_of(server: SeaweedFS) -> Any:
    keys = {"aws_access_key_id": S3Server.access_key, "aws_secret_access_key": S3Server.secret_key}
    return boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1", **keys)


def write(made: Pipeline, stop: Event, seed: int) -> None:
    """An application: inserts and updates, in transactions that stay open for a moment."""
    chance = random.Random(seed)
    with session(made) as connection:
        for number in range(100_000):
            if stop.is_set():
                return
            ask(connection, "BEGIN")
            ask(connection, f"INSERT INTO keyed (v) VALUES ({number})")
            ask(connection, f"INSERT INTO appended (v) VALUES ({number})")
            if chance.random() < 0.5:
                ask(connection, f"UPDATE keyed SET v = -{number} WHERE id = {1 + number // 2}")
            stop.wait(chance.random() / 50)
            ask(connection, "COMMIT")


def sync(made: Pipeline, stop: Event, outcomes: Counter[str]) -> None:
    """Sync repeatedly, whatever happens; each round as a run of its own."""
    while not stop.wait(0.1):
        try:
            with open_project(made.config, on_notice=lambda _notice: None) as project:
                for table in project.sync().tables:
                    outcomes["failed" if table.failed else "synced"] += 1
        except FloodmarkError:
            outcomes["failed"] += 1


def lose(client: Any, bucket: str) -> None:
    """Delete a bucket while others write to it, and make it again."""
    while True:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for found in page.get("Contents", ()):
                client.delete_object(Bucket=bucket, Key=found["Key"])
        try:
            client.delete_bucket(Bucket=bucket)
        except client.exceptions.ClientError:
            continue  # something was written in between
        # SeaweedFS makes it by itself for a write that came at the same moment.
        with suppress(client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=bucket)
        return


def recover(made: Pipeline) -> None:
    """Recover as soon as no run holds a table."""
    for _ in range(10):
        with open_project(made.config, on_notice=lambda _notice: None) as project:
            found = project.recover()
        if not any(table.error for table in found.tables):
            return
    raise AssertionError([str(table.error) for table in found.tables])


def test_a_bucket_is_lost_in_the_middle(
    pipeline: Callable[..., Pipeline], seaweedfs: SeaweedFS
) -> None:
    made = pipeline({"keyed": "{cursor: [update_at, id]}", "appended": "{cursor: id}"})
    client, suffix = client_of(seaweedfs), uuid.uuid4().hex[:8]
    for name in ("lake", "mirror"):
        client.create_bucket(Bucket=f"{name}-{suffix}")
    made = replace(
        made,
        lake=Lake(bucket=f"lake-{suffix}", prefix="state", endpoint=seaweedfs.endpoint),
        settings="mirror: "
        + json.dumps({"url": f"s3://mirror-{suffix}/state", "endpoint": seaweedfs.endpoint})
        + "\nlease_seconds: 2\nretries: {tries: 2}",
    ).write_config()
    stamp = "update_at TIMESTAMP(6) NOT NULL DEFAULT NOW(6) ON UPDATE NOW(6), KEY (update_at)"
    ask_once(made, f"CREATE TABLE keyed (id BIGINT PRIMARY KEY AUTO_INCREMENT, v INT, {stamp})")
    ask_once(made, "CREATE TABLE appended (id BIGINT AUTO_INCREMENT, v INT, KEY (id))")
    stop, outcomes = Event(), Counter[str]()
    for table in TABLES:
        ask_once(made, f"INSERT INTO {table} (v) VALUES (0)")
    with (
        patch.object(engines, "SparkEngine", DirectEngine),
        ThreadPoolExecutor(max_workers=4) as pool,
    ):
        # What is lost before it was ever mirrored cannot be recovered.
        with open_project(made.config) as project:
            notices = project.sync().raise_for_failures().notices
            assert not [notice for notice in notices if notice.event == "mirror"]
        threads = [pool.submit(write, made, stop, seed) for seed in range(2)]
        threads += [pool.submit(sync, made, stop, outcomes) for _ in range(2)]
        try:
            for _ in range(LOSSES):
                enough = outcomes["synced"] + 4
                while outcomes["synced"] < enough:
                    time.sleep(0.05)
                lose(client, f"lake-{suffix}")
                recover(made)
        finally:
            stop.set()
        for thread in threads:
            thread.result()
        with open_project(made.config, on_notice=lambda _notice: None) as project:
            # A run that outlived the last loss may have committed what needs to be read again.
            project.recover().raise_for_failures()
            # The newest rows are read once their moment has passed.
            wait_until(lambda: project.sync().raise_for_failures().rows == 0 and equal(made))
            project.verify(everything=True).raise_for_failures()


def equal(made: Pipeline) -> bool:
    """Compare source and target, row by row."""
    with duckdb.connect(str(made.folder / "warehouse.duckdb")) as warehouse:
        held = {t: Counter(warehouse.execute(f"SELECT id, v FROM {t}").fetchall()) for t in TABLES}
    return held == {
        table: Counter(ask_once(made, f"SELECT id, v FROM {table}")) for table in TABLES
    }
