"""Commit-safe bounds on a real server, with real transactions in flight."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, repeat
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pymysql
import pytest

from floodmark.config.models import MysqlConnection
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.model.bound import Activity, Bound, Ceiling
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.mysql.catalog import read_table
from floodmark.mysql.connection import MysqlSession, connect
from floodmark.mysql.in_flight import (
    _TRANSACTIONS,
    NEVER_FRESH,
    NO_PROCESS,
    read_ceiling,
    read_clock,
    read_first_gap,
    read_offset,
)
from floodmark.mysql.in_flight import read_activity as read_activity_of
from floodmark.mysql.predicates import relation, window_predicate
from floodmark.mysql.servers import read_server
from floodmark.mysql.window_edges import cursor_edges
from floodmark.planning.bounds import GRACE, id_bound, settled_before, timestamp_bound
from floodmark.planning.cursor import choose_cursor
from floodmark.planning.windows import plan_chunks

SECOND = timedelta(seconds=1)
NAME = TableName("S", "bounds", "t")
NEW_YORK = ZoneInfo("America/New_York")

Writer = pymysql.connections.Connection
Open = Callable[[], "Writer[Any]"]


def read_activity(session: MysqlSession) -> Activity:
    """What is in flight on the server that a session reached."""
    return read_activity_of(session, read_server(session))


def run(connection: "Writer[Any]", sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def settings(server: PrivateMariaDB) -> MysqlConnection:
    return MysqlConnection(
        host=server.host, port=server.port, user=server.user, password=Secret(server.password)
    )


@pytest.fixture
def reader(server: PrivateMariaDB) -> Iterator[MysqlSession]:
    server.execute("DROP DATABASE IF EXISTS bounds")
    server.execute("CREATE DATABASE bounds")
    with connect(settings(server)) as connection:
        run(connection, "USE bounds")
        yield connection


@pytest.fixture
def writer(server: PrivateMariaDB, reader: MysqlSession) -> Iterator[Open]:
    """Opens sessions such as an application has: autocommit, in the server's own zone."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(session(server))


@contextmanager
def session(server: PrivateMariaDB) -> "Iterator[Writer[Any]]":
    connection = pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        database="bounds",
        autocommit=True,
    )
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def running(connection: "Writer[Any]", sql: str) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=run, args=(connection, sql))
    thread.start()
    time.sleep(0.2)
    try:
        yield thread
    finally:
        thread.join()


def create(reader: MysqlSession, kind: str = "DATETIME(6)") -> None:
    digits = kind.partition("(")[2].strip(")") or "0"
    stamp = f"CURRENT_TIMESTAMP({digits})"
    run(
        reader,
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT,"
        f" update_at {kind} NOT NULL DEFAULT {stamp} ON UPDATE {stamp}, INDEX (update_at))",
    )


class Sync:
    """The rows of a table as syncs see them, one after another."""

    def __init__(self, reader: MysqlSession, *cursor: str) -> None:
        self.reader = reader
        self.table = read_table(reader, NAME)
        self.choice = choose_cursor(self.table, cursor or ("update_at", "id"))
        self.position = START
        self.seen: dict[int, int] = {}
        self.reads = 0

    def bound(self) -> Bound | None:
        cursor = self.choice.cursor
        if cursor.timestamp:
            column = self.table.column(cursor.timestamp)
            return timestamp_bound(read_activity(self.reader), column)
        greatest = read_ceiling(self.reader, self.table, "id", self.position)
        if greatest is None:
            return None
        ceiling = Ceiling(greatest, read_clock(self.reader))
        return id_bound(
            ceiling,
            look=partial(read_activity, self.reader),
            first_gap=partial(
                read_first_gap, self.reader, self.table, "id", self.position, ceiling
            ),
            pause=time.sleep,
            patience=3 * SECOND,
        )

    def run(self) -> Bound | None:
        bound = self.bound()
        if bound is None or bound.position is None:
            return bound
        edges = cursor_edges(
            self.reader,
            self.table,
            self.choice.cursor,
            self.position,
            bound.position,
            index=self.choice.index,
            stride=50,
        )
        predicate = partial(window_predicate, self.table, self.choice.cursor)
        for chunk in plan_chunks(
            self.position, edges, most_rows=1000, windows_per_chunk=repeat(3), predicate=predicate
        ):
            for window in chunk.windows:
                where = f"{relation(self.table, self.choice.index)} WHERE {window.predicate}"
                rows = run(self.reader, f"SELECT id, v FROM {where}")
                self.seen.update(rows)
                self.reads += len(rows)
            self.position = chunk.end
        return bound


def expected(reader: MysqlSession) -> dict[int, int]:
    return dict(run(reader, "SELECT id, v FROM t"))


def wait_for_the_second(reader: MysqlSession) -> None:
    """Rows are read once their second is over."""
    micros = run(reader, "SELECT MICROSECOND(NOW(6))")[0][0]
    time.sleep(1.01 - micros / 1_000_000)


def test_nothing_in_flight(reader: MysqlSession, writer: Open) -> None:
    idle = writer()
    run(idle, "SELECT 1")
    activity = read_activity(reader)
    assert activity.oldest_statement is None
    assert activity.oldest_transaction is None
    assert (activity.unseen, activity.holder) == (None, None)
    assert abs(activity.now - datetime.now(UTC)) < 5 * SECOND
    assert settled_before(activity) == activity.now.replace(microsecond=0)


@pytest.mark.parametrize("kind", ["DATETIME", "DATETIME(3)", "DATETIME(6)", "TIMESTAMP"])
def test_rows_of_an_open_transaction_come_with_a_later_sync(
    reader: MysqlSession, writer: Open, kind: str
) -> None:
    create(reader, kind)
    run(reader, "INSERT INTO t VALUES (1, 1, '2025-08-04'), (2, 1, '2025-08-04')")
    late, early = writer(), writer()
    run(late, "BEGIN")
    run(late, "UPDATE t SET v = 2 WHERE id = 1")
    run(late, "INSERT INTO t VALUES (3, 1, DEFAULT)")
    time.sleep(1.1)
    run(early, "INSERT INTO t VALUES (4, 1, DEFAULT)")
    wait_for_the_second(reader)
    sync = Sync(reader)
    bound = sync.run()
    assert bound is not None
    assert "a transaction of floodmark@127.0.0.1" in str(bound.held_by)
    assert f"(KILL {late.thread_id()} ends it)" in str(bound.held_by)  # type: ignore[no-untyped-call]
    assert sync.seen == {1: 1, 2: 1}
    run(late, "COMMIT")
    sync.run()
    assert sync.seen == expected(reader) == {1: 2, 2: 1, 3: 1, 4: 1}


def test_updates_behind_the_cursor_within_one_second(reader: MysqlSession, writer: Open) -> None:
    create(reader, "DATETIME")
    application = writer()
    sync = Sync(reader)
    for version in range(12):  # three seconds, a sync every quarter of one
        for row in (1, 2, 3):
            run(
                application,
                f"INSERT INTO t (id, v) VALUES ({row}, {version})"
                f" ON DUPLICATE KEY UPDATE v = {version}",
            )
        sync.run()
        time.sleep(0.25)
    wait_for_the_second(reader)
    sync.run()
    assert sync.seen == expected(reader)


def test_a_statement_that_innodb_does_not_know_yet(reader: MysqlSession, writer: Open) -> None:
    create(reader)
    slow, quick = writer(), writer()
    sync = Sync(reader)
    with running(slow, "INSERT INTO t (v) SELECT SLEEP(2.5)"):
        time.sleep(1.1)
        run(quick, "INSERT INTO t (v) VALUES (7)")
        wait_for_the_second(reader)
        activity = read_activity(reader)
        assert activity.oldest_transaction is None  # and yet its rows are already stamped
        assert activity.oldest_statement is not None
        assert "a statement of floodmark" in str(activity.holder)
        sync.run()
    wait_for_the_second(reader)
    sync.run()
    assert sync.seen == expected(reader)
    assert len(sync.seen) == 2
    # MySQL counts a statement's age in seconds only, so it is taken to be older.
    stamp = run(reader, "SELECT update_at FROM t WHERE v = 0")[0][0].replace(tzinfo=UTC)
    assert timedelta(0) <= stamp - activity.oldest_statement < 2.1 * SECOND


def test_a_transaction_whose_first_statement_had_to_wait(
    reader: MysqlSession, writer: Open
) -> None:
    create(reader)
    locker, late = writer(), writer()
    sync = Sync(reader)
    run(locker, "LOCK TABLES t WRITE")
    run(late, "BEGIN")
    with running(late, "INSERT INTO t (v) VALUES (1)"):
        time.sleep(2)
        run(locker, "UNLOCK TABLES")
    activity = read_activity(reader)
    (stamp,) = run(late, "SELECT update_at FROM t")[0]
    assert activity.oldest_transaction is not None
    assert activity.oldest_transaction - stamp.replace(tzinfo=UTC) > SECOND / 2
    settled = settled_before(activity)
    assert settled is not None
    assert settled <= activity.oldest_transaction - GRACE
    run(locker, "INSERT INTO t (v) VALUES (2)")
    wait_for_the_second(reader)
    sync.run()
    run(late, "COMMIT")
    sync.run()
    assert sync.seen == expected(reader)
    assert len(sync.seen) == 2


def test_readers_hold_nothing_back(reader: MysqlSession, writer: Open) -> None:
    create(reader)
    snapshot, select = writer(), writer()
    run(reader, "INSERT INTO t (v) VALUES (1), (2), (3)")
    run(snapshot, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    with running(select, "SELECT SLEEP(0.3) FROM t"):
        activity = read_activity(reader)
    assert (activity.oldest_statement, activity.oldest_transaction) == (None, None)


@pytest.mark.parametrize("xid", ["'x'", "'it''s', X'00FF', 7", "X'80', ''"])
def test_a_prepared_transaction_is_named_with_what_ends_it(
    reader: MysqlSession, server: PrivateMariaDB, xid: str
) -> None:
    create(reader)
    with session(server) as gone:
        run(gone, f"XA START {xid}")
        run(gone, "INSERT INTO t (v) VALUES (1)")
        run(gone, f"XA END {xid}")
        run(gone, f"XA PREPARE {xid}")
    deadline = time.monotonic() + 30
    undated: list[str] = []
    try:
        while not undated:  # as long as its session ends, the transaction belongs to that
            assert time.monotonic() < deadline
            activity = read_activity(reader)
            assert activity.oldest_transaction is not None
            holder, undated = (
                re.findall(r"XA ROLLBACK [^()]*(?= ends it)", str(told))
                for told in (activity.holder, activity.undated)
            )
        assert holder == undated
        run(reader, *holder)
        assert read_activity(reader).oldest_transaction is None
    finally:
        with suppress(pymysql.err.MySQLError):  # it is gone
            run(reader, f"XA ROLLBACK {xid}")  # or other tests wait for its locks


def test_a_prepared_transaction_of_an_open_session_is_named_with_what_ends_it(
    reader: MysqlSession, writer: Open
) -> None:
    """MariaDB keeps it with its session: then both are named, in the order that ends it."""
    create(reader)
    open_still = writer()
    for sql in ("XA START 'x'", "INSERT INTO t (v) VALUES (1)", "XA END 'x'", "XA PREPARE 'x'"):
        run(open_still, sql)
    deadline = time.monotonic() + 30
    while (activity := read_activity(reader)).oldest_transaction is not None:
        assert time.monotonic() < deadline, activity.holder
        for statement in re.findall(r"KILL \d+|XA ROLLBACK 'x'", str(activity.holder)):
            with suppress(pymysql.err.OperationalError):  # the session is not over yet
                run(reader, statement)


def test_a_stale_list_of_transactions_is_not_believed(reader: MysqlSession, writer: Open) -> None:
    create(reader)
    monitor, application = writer(), writer()
    listing = "SELECT COUNT(*) FROM information_schema.innodb_trx"
    for _ in range(5):
        time.sleep(0.15)
        assert run(monitor, listing) == [(0,)]
        run(application, "BEGIN")
        run(application, "INSERT INTO t (v) VALUES (1)")
        assert run(monitor, listing) == [(0,)]  # what it was a tenth of a second ago
        assert read_activity(reader).oldest_transaction is not None
        run(application, "ROLLBACK")


def test_many_who_ask_do_not_starve_each_other(
    reader: MysqlSession, writer: Open, server: PrivateMariaDB
) -> None:
    create(reader)
    application = writer()
    run(application, "BEGIN")
    run(application, "INSERT INTO t (v) VALUES (1)")

    def ask(_: int) -> list[Activity]:
        with connect(settings(server)) as session:
            return [read_activity(session) for _ in range(3)]

    with ThreadPoolExecutor(12) as pool:
        seen = [activity for activities in pool.map(ask, range(12)) for activity in activities]
    assert [(one.held, one.unseen) for one in seen] == [(None, None)] * 36
    assert all(one.oldest_transaction for one in seen)


def test_a_list_that_is_never_fresh_holds_everything_back(
    reader: MysqlSession, writer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.mysql.in_flight._GIVE_UP_SECONDS", 1)
    monitor = writer()
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.01):
            run(monitor, "SELECT COUNT(*) FROM information_schema.innodb_trx")

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.3)
    try:
        activity = read_activity(reader)
    finally:
        stop.set()
        thread.join()
    assert activity.held == NEVER_FRESH
    assert settled_before(activity) is None
    assert settled_before(activity, 7 * SECOND) is None


def test_without_the_process_privilege_only_a_configured_lag_lets_read(
    reader: MysqlSession, server: PrivateMariaDB
) -> None:
    create(reader)
    run(reader, "DROP USER IF EXISTS 'poor'@'127.0.0.1'")
    run(reader, "CREATE USER 'poor'@'127.0.0.1' IDENTIFIED BY 'poor'")
    run(reader, "GRANT SELECT ON bounds.* TO 'poor'@'127.0.0.1'")
    poor = MysqlConnection(host=server.host, port=server.port, user="poor", password=Secret("poor"))
    run(reader, "INSERT INTO t (v) VALUES (1), (2), (3)")
    with connect(poor) as connection:
        activity = read_activity(connection)
        assert activity.unseen == NO_PROCESS
        now = activity.now.replace(microsecond=0)
        assert settled_before(activity) is None
        assert settled_before(activity, 7 * SECOND) == now - 7 * SECOND
        run(connection, "SELECT 1")
        bound = Sync(connection, "id").bound()
        assert bound is not None
        assert (bound.position, bound.held_by) == (None, NO_PROCESS)


def test_rows_of_the_future_wait_for_their_time(reader: MysqlSession) -> None:
    create(reader, "DATETIME")
    run(reader, "INSERT INTO t VALUES (1, 1, NOW() - INTERVAL 3 SECOND)")
    run(reader, "INSERT INTO t VALUES (2, 1, '2099-01-01'), (3, 1, NOW() + INTERVAL 3 SECOND)")
    sync = Sync(reader)
    sync.run()
    assert sync.seen == {1: 1}
    assert sync.position.timestamp is not None
    assert sync.position.timestamp < datetime.now(UTC)
    run(reader, "INSERT INTO t (id, v) VALUES (4, 1)")
    time.sleep(4.1)
    sync.run()
    assert sorted(sync.seen) == [1, 3, 4]


# Ids


def test_small_ids_that_commit_late_are_not_lost(reader: MysqlSession, writer: Open) -> None:
    create(reader)
    run(reader, "INSERT INTO t (v) VALUES (1), (1), (1)")
    late, early = writer(), writer()
    run(late, "BEGIN")
    run(late, "INSERT INTO t (v) VALUES (2), (2)")
    run(early, "INSERT INTO t (v) VALUES (3), (3)")
    sync = Sync(reader, "id")
    bound = sync.run()
    assert bound is not None
    assert bound.position == Position(id=3)
    assert "a transaction of floodmark@127.0.0.1" in str(bound.held_by)
    assert f"(KILL {late.thread_id()} ends it)" in str(bound.held_by)  # type: ignore[no-untyped-call]
    assert sorted(sync.seen) == [1, 2, 3]
    run(late, "COMMIT")
    sync.run()
    assert sync.seen == expected(reader)
    assert sync.reads == len(sync.seen) == 7


def test_ids_that_will_never_come_are_passed(reader: MysqlSession, writer: Open) -> None:
    create(reader)
    application = writer()
    for number in range(6):
        run(application, "BEGIN")
        run(application, "INSERT INTO t (v) VALUES (1)")
        run(application, "COMMIT" if number % 2 else "ROLLBACK")
    run(reader, "INSERT INTO t (id, v) VALUES (1000000000, 1)")
    sync = Sync(reader, "id")
    sync.run()
    assert sync.seen == expected(reader)
    assert len(sync.seen) == 4


@pytest.mark.parametrize(
    ("ids", "above", "gap"),
    [
        ("1,2,3,4,5", 0, None),
        ("2,3", 0, 1),
        ("1,2,4,5", 0, 3),
        ("1,2,4,5", 3, None),
        ("9", 8, None),
    ],
)
@pytest.mark.parametrize("stride", [1, 2, 3, 100])
def test_the_first_gap(
    reader: MysqlSession, ids: str, above: int, gap: int | None, stride: int
) -> None:
    create(reader)
    run(reader, f"INSERT INTO t (id) VALUES ({ids.replace(',', '),(')})")
    table = read_table(reader, NAME)
    position = Position(id=above) if above else START
    greatest = read_ceiling(reader, table, "id", position)
    assert greatest is not None
    ceiling = Ceiling(greatest, read_clock(reader))
    assert read_first_gap(reader, table, "id", position, ceiling, stride=stride) == gap


# Everything at once


@pytest.mark.parametrize("cursor", ["update_at", "id"])
def test_writers_that_never_stop(reader: MysqlSession, writer: Open, cursor: str) -> None:
    create(reader, "DATETIME")
    stop = threading.Event()
    versions = count()

    def hammer(connection: "Writer[Any]", random: Random) -> None:
        while not stop.wait(random.random() / 50):
            explicit = random.random() < 0.5
            if explicit:
                run(connection, "BEGIN")
            for _ in range(random.randint(1, 3)):
                v = next(versions)
                insert = f"INSERT INTO t (v) VALUES ({v}), ({v})"
                update = f"UPDATE t SET v = {v} WHERE id = {random.randint(1, 100)}"
                run(connection, update if cursor == "update_at" and v % 2 else insert)
            if explicit:
                time.sleep(random.choice((0, 0.1, 0.5)))
                run(connection, "COMMIT" if random.random() < 0.8 else "ROLLBACK")

    threads = [
        threading.Thread(target=patient, args=(hammer, writer(), Random(seed))) for seed in range(3)
    ]
    for thread in threads:
        thread.start()
    sync = Sync(reader, *(("update_at", "id") if cursor == "update_at" else ("id",)))
    try:
        for _ in range(20 if cursor == "update_at" else 4):
            sync.run()
            time.sleep(0.4)
        assert sync.reads > 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    wait_for_the_second(reader)
    sync.run()
    assert sync.seen == expected(reader)
    assert len(sync.seen) > 50
    if cursor == "id":
        assert sync.reads == len(sync.seen)


def patient(
    hammer: "Callable[[Writer[Any], Random], None]", connection: "Writer[Any]", random: Random
) -> None:
    """Go on after a deadlock, as applications do."""
    while True:
        try:
            return hammer(connection, random)
        except pymysql.err.OperationalError:
            run(connection, "ROLLBACK")


# Elsewhere


@pytest.fixture(scope="module")
def far_server(
    server: PrivateMariaDB, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateMariaDB]:
    """A server in New York, as its operating system has it."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as started:
        patch.setenv("TZ", "America/New_York")
        running = type(server)(tmp_path_factory.mktemp("new-york"))
        yield started.enter_context(running)


@pytest.fixture
def far(far_server: PrivateMariaDB) -> Iterator[MysqlSession]:
    far_server.execute("DROP DATABASE IF EXISTS bounds")
    far_server.execute("CREATE DATABASE bounds")
    with connect(settings(far_server)) as connection:
        run(connection, "USE bounds")
        yield connection
        run(connection, "SET GLOBAL time_zone = 'SYSTEM', GLOBAL read_only = 0")


@pytest.mark.parametrize("zone", ["SYSTEM", "+08:00", "-11:00"])
@pytest.mark.parametrize("kind", ["DATETIME", "TIMESTAMP"])
def test_a_server_in_another_zone(
    far: MysqlSession, far_server: PrivateMariaDB, zone: str, kind: str
) -> None:
    run(far, f"SET GLOBAL time_zone = '{zone}'")
    create(far, kind)
    with session(far_server) as late, session(far_server) as early:
        run(late, "BEGIN")
        run(late, "INSERT INTO t (v) VALUES (1)")
        time.sleep(1.1)
        run(early, "INSERT INTO t (v) VALUES (2)")
        wait_for_the_second(far)
        activity = read_activity(far)
        assert activity.oldest_transaction is not None
        assert SECOND < activity.now - activity.oldest_transaction < 5 * SECOND
        sync = Sync(far)
        sync.run()
        assert sync.seen == {}
        run(late, "COMMIT")
        sync.run()
        assert sync.seen == {1: 1, 2: 2}  # and not hours later


def test_summer_time_is_no_other_zone(far: MysqlSession) -> None:
    for month, hours in ((7, -4), (1, -5)):
        moment = datetime(2026, month, 1, 12, tzinfo=UTC)
        assert read_offset(far, moment) == timedelta(hours=hours)


def test_the_zone_of_a_datetime_can_be_configured(far: MysqlSession) -> None:
    create(far, "DATETIME")
    activity = read_activity(far)
    column = read_table(far, NAME).column("update_at")
    assert activity.server_zone in ("EST", "EDT")
    assert timestamp_bound(activity, column) == timestamp_bound(activity, column, zone=NEW_YORK)


def test_in_the_hour_shown_twice_a_transaction_is_taken_for_older(far: MysqlSession) -> None:
    listed = (
        "(SELECT 1 AS trx_mysql_thread_id, 0 AS trx_is_read_only, NULL AS trx_query,"
        " TIMESTAMP'2025-11-02 {time}' AS trx_started) AS listed"
    )
    for shown, hour in (("00:30:00", 4), ("01:30:00", 5), ("02:30:00", 7)):
        table = listed.format(time=shown)
        sql = _TRANSACTIONS.replace("information_schema.INNODB_TRX", table).format(
            comment="", guard="TRUE"
        )
        assert run(far, sql)[0][3] == datetime(2025, 11, 2, hour, 30)  # noqa: DTZ001


def test_ids_below_one_are_seen_from_the_start(server: PrivateMariaDB) -> None:
    server.execute("CREATE DATABASE IF NOT EXISTS negative")
    server.execute("DROP TABLE IF EXISTS negative.t")
    server.execute("CREATE TABLE negative.t (id BIGINT PRIMARY KEY)")
    server.execute("INSERT INTO negative.t VALUES (-7), (-3)")
    connection = MysqlConnection(
        port=server.port, user=server.user, password=Secret(server.password)
    )
    with connect(connection) as session:
        table = read_table(session, TableName("A", "negative", "t"))
        assert read_ceiling(session, table, "id", START) == -3
        assert read_ceiling(session, table, "id", Position(id=-3)) is None
