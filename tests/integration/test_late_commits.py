"""Transactions that commit late: rows that appear behind where others have already been read."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest

from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.model.extraction import Receipt
from pipelines import DirectEngine, Pipeline, Session, ask, ask_once, numbers, session

New = Callable[..., Pipeline]

STAMP = "NOT NULL DEFAULT CURRENT_TIMESTAMP{0} ON UPDATE CURRENT_TIMESTAMP{0}"


def create(pipeline: Pipeline, kind: str = "DATETIME") -> None:
    """A table of 100 rows that changed yesterday."""
    digits = "(" + kind.partition("(")[2] if "(" in kind else ""
    ask_once(
        pipeline,
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL,"
        f" update_at {kind} {STAMP.format(digits)}, KEY by_change (update_at, id))",
    )
    ask_once(
        pipeline,
        "INSERT INTO t SELECT seq, 0, NOW() - INTERVAL 1 DAY + INTERVAL seq SECOND"
        f" FROM {numbers(1, 100)}",
    )


def live(pipeline: Pipeline) -> dict[int, int]:
    return dict(ask_once(pipeline, "SELECT id, v FROM t"))


def seen(pipeline: Pipeline) -> dict[int, int]:
    return {key: row["v"] for key, row in pipeline.newest().items()}


def next_second() -> None:
    """Wait until what was just committed can be read: its second must be over."""
    time.sleep(1.1 - time.time() % 1)


@pytest.mark.parametrize("lake", ["local", "seaweedfs"])
@pytest.mark.parametrize("kind", ["DATETIME", "DATETIME(6)", "TIMESTAMP(3)"])
def test_a_transaction_that_was_open_during_a_sync_is_in_the_next(
    pipeline: New, kind: str, lake: str
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, lake=lake)
    create(it, kind)
    with session(it) as late, session(it) as other:
        late.begin()
        ask(late, "INSERT INTO t (v) VALUES (1), (2), (3)")  # small ids, an old stamp
        ask(late, "UPDATE t SET v = 50 WHERE id BETWEEN 40 AND 60")  # behind the cursor
        next_second()
        ask(other, "INSERT INTO t (v) VALUES (9), (9)")  # greater ids, a later stamp
        ask(other, "UPDATE t SET v = 9 WHERE id = 7")
        next_second()
        assert it.synced()["rows"] == 99  # what changed since waits for the open transaction
        assert it.synced()["rows"] == 0
        late.commit()
    next_second()
    assert it.synced()["rows"] == 3 + 21 + 2 + 1
    assert seen(it) == live(it)
    it.check_tracking()
    assert it.synced()["rows"] == 0


def test_within_one_second(pipeline: New) -> None:
    """One row of a second is read, another of the same second is still to be committed."""
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    with session(it) as late, session(it) as other:
        time.sleep(1.05 - time.time() % 1)
        late.begin()
        ask(late, "INSERT INTO t (v) VALUES (1)")
        ask(other, "INSERT INTO t (v) VALUES (2)")
        ask(other, "UPDATE t SET v = 3 WHERE id = 5")
        assert it.synced()["rows"] == 99
        late.commit()
        ask(other, "INSERT INTO t (v) VALUES (4)")  # perhaps still in the same second
    next_second()
    it.synced()
    assert seen(it) == live(it)


def test_a_second_that_is_not_over_is_not_read(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it, "DATETIME(6)")
    for _ in range(5):
        ask_once(it, "INSERT INTO t (v) VALUES (1)")
        it.synced()
        # NOW() has no digits: it writes the beginning of this second, behind the row above.
        ask_once(it, "INSERT INTO t (v, update_at) VALUES (2, NOW())")
        it.synced()
    next_second()
    it.synced()
    assert seen(it) == live(it)
    assert set(it.ids().values()) == {1}


def test_rolled_back_transactions_leave_nothing(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    with session(it) as late:
        late.begin()
        ask(late, "INSERT INTO t (v) VALUES (1)")
        ask(late, "UPDATE t SET v = 1")
        assert it.synced()["rows"] == 100
        late.rollback()
    next_second()
    assert it.synced()["rows"] == 0
    assert seen(it) == live(it)


def test_an_id_that_is_committed_late_is_read(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: id}"})
    create(it)
    with session(it) as late, session(it) as other:
        late.begin()
        ask(late, "INSERT INTO t (v) VALUES (1), (2)")  # 101 and 102
        ask(other, "INSERT INTO t (v) VALUES (3)")
        assert ask(other, "SELECT MAX(id) FROM t") == [(103,)]
        assert it.synced()["rows"] == 100
        assert it.watermark().position.id == 100
        late.commit()
        ask(other, "INSERT INTO t (v) VALUES (4)")
    assert it.synced()["rows"] == 4
    assert seen(it) == live(it)


def test_an_id_that_never_comes_holds_nothing_back(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: id}"})
    create(it)
    with session(it) as late, session(it) as other:
        late.begin()
        ask(late, "INSERT INTO t (v) VALUES (1)")
        ask(other, "INSERT INTO t (v) VALUES (2)")
        late.rollback()
    assert it.synced()["rows"] == 101
    assert it.watermark().position.id == 102


def test_a_statement_that_runs_for_long_is_waited_for(pipeline: New) -> None:
    """It takes its time at its start, and is committed by itself at its end."""
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    with session(it) as slow:
        thread = threading.Thread(
            target=ask,
            args=(slow, f"INSERT INTO t (v) SELECT seq + SLEEP(1.5) FROM {numbers(1, 2)}"),
        )
        thread.start()
        time.sleep(1.2)
        ask_once(it, "INSERT INTO t (v) VALUES (77)")
        time.sleep(1.2)
        assert it.synced()["rows"] == 100
        thread.join()
    next_second()
    assert it.synced()["rows"] == 3
    assert seen(it) == live(it)


class Writer(threading.Thread):
    """Changes a table without pause: most statements by themselves, some in transactions."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._random = Random(seed)
        self._over = threading.Event()
        self.statements = 0
        self.transactions = 0

    def run(self) -> None:
        with session(self._pipeline) as connection:
            ask(connection, "SET innodb_lock_wait_timeout = 1")
            while not self._over.wait(self._random.uniform(0, 0.04)):
                try:
                    if self._random.random() < 0.03:
                        self._transact(connection)
                    else:
                        self._change(connection)
                except pymysql.err.OperationalError:  # a deadlock with another writer
                    connection.rollback()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _transact(self, connection: Session) -> None:
        connection.begin()
        for _ in range(self._random.randint(1, 4)):
            self._change(connection)
            self._over.wait(self._random.choice([0, 0.02, 0.3]))
        if self._random.random() < 0.2:
            connection.rollback()
        else:
            connection.commit()
        self.transactions += 1

    def _change(self, connection: Session) -> None:
        target = self._random.randint(1, 400)
        statement = self._random.choice(
            [
                f"INSERT INTO t (v) VALUES ({target}), (1)",
                f"INSERT INTO t (v) VALUES ({target})",
                f"UPDATE t SET v = v + 1 WHERE id = {target}",
                f"UPDATE t SET v = v + 1 WHERE id BETWEEN {target} AND {target + 2}",
                f"DELETE FROM t WHERE id = {target}",
            ]
        )
        ask(connection, statement)
        self.statements += 1


@contextmanager
def running_writers(pipeline: Pipeline) -> Iterator[list[Writer]]:
    writers = [Writer(pipeline, seed) for seed in (1, 2, 3)]
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.stop()


@pytest.mark.parametrize("kind", ["DATETIME", "DATETIME(3)"])
def test_the_newest_version_of_every_row_under_a_hammering_writer(pipeline: New, kind: str) -> None:
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"},
        settings="extraction: {window_rows: 40, windows_per_chunk: 3}",
    )
    create(it, kind)
    brought = []
    with running_writers(it) as writers:
        for number in range(20):
            strategy = ("intra-table", "sequential", "inter-table")[number % 3]
            brought.append(it.synced("--strategy", strategy)["rows"])
            time.sleep(0.3)
    next_second()
    it.synced()
    now, then = live(it), seen(it)
    assert {key: then.get(key) for key in now} == now
    it.check_tracking()
    versions = [(row["id"], row["update_at"], row["v"]) for row in it.rows()]
    assert len(set(versions)) == len(versions)  # no version came twice
    # It would be no test if the writers had stood still, or the syncs had waited for their end.
    assert sum(writer.statements for writer in writers) > 300
    assert sum(writer.transactions for writer in writers) > 5
    assert sum(map(bool, brought)) > 3


def test_ids_of_a_hammering_writer(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: id}"}, settings="extraction: {window_rows: 50}")
    create(it)
    with running_writers(it):
        brought = [it.synced()["rows"] for _ in range(6)]
    it.synced()
    assert live(it).keys() <= it.ids().keys()
    assert set(it.ids().values()) == {1}
    assert sum(map(bool, brought)) > 3


def test_prepared_before_a_restart(pipeline: New, server: PrivateMariaDB, tmp_path: Path) -> None:
    """The server no longer knows when it began; its rows may have any stamp."""
    with type(server)(tmp_path / "own") as own:
        it = pipeline({"t": "{cursor: [update_at, id]}"}, server=own)
        create(it)
        with session(it) as late:
            for sql in (
                "XA START 'late'",
                "INSERT INTO t (v, update_at) VALUES (1, NOW() - INTERVAL 1 HOUR)",
                "XA END 'late'",
                "XA PREPARE 'late'",
            ):
                ask(late, sql)
            own.kill()
        own.start()
        ask_once(it, "INSERT INTO t (v) VALUES (2)")
        next_second()
        held = it.synced()
        assert held["rows"] == 0
        assert "a prepared XA transaction" in held["held_back"]
        assert "XA ROLLBACK 'late' ends it, or XA COMMIT" in held["held_back"]
        ask_once(it, "XA COMMIT 'late'")
        assert it.synced()["rows"] == 102
        assert seen(it) == live(it)
        it.check_tracking()


@pytest.mark.parametrize("counter", ["AUTO_INCREMENT", ""])
def test_a_table_that_was_emptied_says_that_its_new_rows_are_not_seen(
    pipeline: New, counter: str
) -> None:
    it = pipeline({"t": "{cursor: id}"})
    ask_once(it, f"CREATE TABLE t (id INT {counter} PRIMARY KEY, v INT) COMMENT 'AUTO_INCREMENT=9'")
    ask_once(it, f"INSERT INTO t SELECT seq, 0 FROM {numbers(1, 50)}")
    assert it.synced()["rows"] == 50
    warned = "new rows get ids from 1 on and are not seen"
    ask_once(it, "DELETE FROM t WHERE id = 50")
    if counter:  # the counter goes on, so new rows will be seen
        assert "are not seen: was" not in " ".join(it.synced()["warnings"])
    ask_once(it, "TRUNCATE TABLE t")
    assert warned in " ".join(it.synced()["warnings"])
    ask_once(it, "INSERT INTO t (id, v) VALUES (1, 1)")
    found = " ".join(it.synced()["warnings"])
    assert f"watermark set -t PROD:{it.schema}.t --id 1" in found
    assert it.call("watermark", "reset", "-t", f"{it.schema}.t", "--force").code == 0
    again = it.synced()
    assert again["rows"] == 1
    assert "are not seen: was" not in " ".join(again["warnings"])


def test_a_forgotten_transaction_holds_the_table_back_and_is_named(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are committed wait behind it: that is a state, with its cause and its cure."""
    monkeypatch.setattr("floodmark.sync.plan.HELD_AFTER", timedelta(seconds=6))
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    with session(it) as forgotten:
        ask(forgotten, "BEGIN")
        ask(forgotten, "INSERT INTO t (v) VALUES (1)")
        time.sleep(2)
        ask_once(it, "INSERT INTO t (v) VALUES (2)")
        next_second()
        ended = it.sync()
        assert ended.code == 0
        ending = f"KILL {forgotten.thread_id()} ends it"  # type: ignore[no-untyped-call]
        assert "held back, read only up to" in ended.err
        assert "a transaction of floodmark@127.0.0.1" in ended.err
        assert ending in ended.err
        listed = it.call("watermark", "list")
        assert "held back" in listed.out
        assert ending in " ".join(listed.out.split())
        (shown,) = it.call("watermark", "list", "--json").value
        assert ending in shown["held_back"]
        assert ending in it.call("watermark", "get", "-t", f"{it.schema}.t").out
        metrics = it.folder / "metrics.prom"
        assert it.sync("--metrics-file", str(metrics)).code == 0
        (fresh, held) = (
            float(re.search(rf"^{name}{{.*}} (.*)$", metrics.read_text(), re.MULTILINE)[1])  # type: ignore[index]
            for name in ("floodmark_fresh_timestamp_seconds", "floodmark_held_back_seconds")
        )
        assert fresh < time.time() - 6
        assert held > 0
        ask(forgotten, "COMMIT")
    next_second()
    assert it.synced()["held_back"] is None
    assert seen(it) == live(it)
    assert "held back" not in it.call("watermark", "list").out


@pytest.mark.only_on("mariadb")
def test_ids_of_a_table_that_knows_no_snapshots(pipeline: New) -> None:
    """An id is taken while another table is read, and a greater one is there first."""
    it = pipeline({"first": "{cursor: id}", "t": "{cursor: id}"})
    ask_once(it, "CREATE SEQUENCE ids")
    ask_once(it, "CREATE TABLE first (id INT PRIMARY KEY)")
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE = Aria TRANSACTIONAL = 1")
    ask_once(it, "INSERT INTO first VALUES (1)")
    ask_once(it, "INSERT INTO t VALUES (NEXTVAL(ids), 0)")
    assert it.sync().code == 0
    ask_once(it, "INSERT INTO first VALUES (2)")
    slow = "INSERT INTO t SELECT NEXTVAL(ids), SLEEP(2) FROM first"
    threads = [threading.Thread(target=ask_once, args=(it, slow))]

    class Writing(DirectEngine):
        def extract(self, *arguments: Any) -> list[Receipt]:
            if threads[0].ident is None:
                threads[0].start()
                time.sleep(0.5)
                ask_once(it, "INSERT INTO t VALUES (NEXTVAL(ids), 0)")
            return super().extract(*arguments)

    assert it.sync("--strategy", "sequential", engine=Writing).code == 0
    threads[0].join()
    assert it.sync().code == 0
    assert sorted(it.ids("t")) == [row for (row,) in ask_once(it, "SELECT id FROM t ORDER BY id")]
