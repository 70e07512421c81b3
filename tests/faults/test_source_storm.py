"""Constant writes, killed syncs, a stopped replica: every row arrives exactly once.

How often is set by FLOODMARK_STORM_ROUNDS; `make storm` sets more.
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest

import processes
from conftest import ALL_SERVERS
from pipelines import Pipeline, ask_once, new_pipeline, source_of
from scenarios import Lake
from servers.mysql import PrivateMySQL
from servers.replication import Replicated, connect, impatient_pair

ROUNDS = int(os.environ.get("FLOODMARK_STORM_ROUNDS", "6"))
LAG = 3  # seconds, which transactions of the storm stay well below
TABLES = {"changes": "{cursor: [update_at, id]}", "numbers": "{cursor: id}"}
KINDS = ["mysql", "mariadb"] if ALL_SERVERS or not PrivateMySQL.is_available() else ["mysql"]


@pytest.fixture(scope="module", params=KINDS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicated]:
    with impatient_pair(request.param, tmp_path_factory.mktemp("pair")) as servers:
        yield servers


class Writers:
    """Threads that insert and update, in transactions of some length, until they are stopped."""

    def __init__(self, pair: Replicated, schema: str, seed: int) -> None:
        self._pair = pair
        self._schema = schema
        self._values = count(1)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(Random(seed + number),))
            for number in range(4)
        ]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, random: Random) -> None:
        with connect(self._pair.primary, self._schema) as session, session.cursor() as cursor:
            while not self._stop.wait(random.random() / 20):
                try:
                    self._transact(cursor, random)
                    (session.commit if random.random() < 0.8 else session.rollback)()
                except pymysql.err.OperationalError:  # a deadlock
                    session.rollback()

    def _transact(self, cursor: Any, random: Random) -> None:
        for _ in range(random.randint(1, 3)):
            v = next(self._values)
            cursor.execute(f"INSERT INTO numbers (v) VALUES ({v})")
            if random.random() < 0.5:
                cursor.execute(f"INSERT INTO changes (v) VALUES ({v})")
            else:
                cursor.execute(f"UPDATE changes SET v = {v} WHERE id = {random.randint(1, 50)}")
        if random.random() < 0.2:
            time.sleep(random.random() * LAG / 3)


def sync(it: Pipeline) -> None:
    """Runs in a process of its own."""
    ended = it.sync()
    assert ended.code == 0, ended


@pytest.mark.parametrize("way", ["primary", "replica and its primary", "replica alone"])
def test_nothing_is_lost_and_nothing_doubled(pair: Replicated, tmp_path: Path, way: str) -> None:
    random = Random(20250804)
    lag = f", lag_seconds: {LAG}" if way == "replica alone" else ""
    it = new_pipeline(
        pair.primary,
        Lake(folder=str(tmp_path / "lake")),
        tmp_path,
        TABLES,
        settings=f"extraction: {{window_rows: 40, windows_per_chunk: 3{lag}}}",
    )
    for name in TABLES:
        ask_once(
            it,
            f"CREATE TABLE {name} (id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL,"
            " update_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"
            " ON UPDATE CURRENT_TIMESTAMP(3), KEY by_change (update_at, id))",
        )
    pair.catch_up()
    if way != "primary":
        source = source_of(pair.replica)
        if way == "replica and its primary":
            source["primary"] = {**source_of(pair.primary), "wait_seconds": 5}
        object.__setattr__(it, "source", source)
        it.write_config()
    killed = 0
    with Writers(pair, it.schema, seed=7):
        for _ in range(ROUNDS):
            if way != "primary":
                random.choice((pair.stop_applier, pair.start, pair.start))()
            process = processes.start(sync, it)
            process.join(random.uniform(0.2, 4))
            if process.is_alive():
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
                killed += 1
            process.join()
            assert process.exitcode in (0, -signal.SIGKILL)
    pair.start()
    pair.catch_up()
    complete(it, pair)
    for name in TABLES:
        doubled = [row for row, times in Counter(versions(it, name)).items() if times > 1]
        assert doubled == []
        it.check_tracking(name)
    print(f"{way}: {killed} of {ROUNDS} syncs killed, {len(it.rows('changes')):,} rows read")


def complete(it: Pipeline, pair: Replicated) -> None:
    """Sync until the lake has what the source has."""
    deadline = time.monotonic() + 60
    while True:
        ended = it.sync()
        assert ended.code == 0, ended
        lacking = {
            name: len(expected - {(row["id"], row["v"]) for row in it.newest(name).values()})
            for name in TABLES
            for expected in [set(pair.primary.execute(f"SELECT id, v FROM {it.schema}.{name}"))]
        }
        if not any(lacking.values()):
            return
        assert time.monotonic() < deadline, f"lost: {lacking}"
        time.sleep(0.5)


def versions(it: Pipeline, name: str) -> list[tuple[int, int]]:
    return [(row["id"], row["v"]) for row in it.rows(name)]


@pytest.mark.skipif(ROUNDS < 20, reason="takes 80 seconds: 'make storm' runs it")
@pytest.mark.parametrize("strategy", ["sequential", "inter-table", "intra-table"])
def test_many_tables_with_a_long_transaction_each(
    pair: Replicated, tmp_path: Path, strategy: str
) -> None:
    tables = {f"t{number}": "{cursor: [update_at, id]}" for number in range(16)}
    it = new_pipeline(
        pair.primary,
        Lake(folder=str(tmp_path / "lake")),
        tmp_path,
        tables,
        settings="extraction: {tables_at_once: 16}",
    )
    for name in tables:
        ask_once(
            it,
            f"CREATE TABLE {name} (id INT PRIMARY KEY, update_at TIMESTAMP(6) NOT NULL"
            " DEFAULT CURRENT_TIMESTAMP(6), KEY by_change (update_at, id))",
        )
    with connect(pair.primary, it.schema) as late, late.cursor() as cursor:
        for name in tables:
            cursor.execute(f"INSERT INTO {name} (id) VALUES (1)")
        time.sleep(1)
        for name in tables:
            ask_once(it, f"INSERT INTO {name} (id) VALUES (2)")
        time.sleep(75)
        assert it.sync("--strategy", strategy).code == 0
        late.commit()
    time.sleep(1.1)
    assert it.sync("--strategy", strategy).code == 0
    assert {name: sorted(it.ids(name)) for name in tables} == {name: [1, 2] for name in tables}
