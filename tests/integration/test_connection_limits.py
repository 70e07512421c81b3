"""No more connections to a source, and no more rows a second, than it allows."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import enumerate as enumerate_threads
from typing import Any, ClassVar

import pymysql
import pytest

from edge_tables import new_database, run
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import FloodmarkError
from floodmark.model.extraction import Receipt, Window
from floodmark.mysql.connection import MysqlSession
from floodmark.sync.source import Source
from floodmark.worker.job import ExtractionJob
from pipelines import DirectEngine, Pipeline, ask_once, numbers, wait_until, warm_engine
from servers.mysql import PrivateMySQL

New = Callable[..., Pipeline]
TENS = "extraction: {window_rows: 10, windows_per_chunk: 9}"
CURSOR = {"t": "{cursor: [update_at, id]}"}


class ManySlots(DirectEngine):
    """Reads up to twelve windows at the same time."""

    parts: ClassVar[list[int]] = []

    def slots(self) -> int:
        return 12

    def extract(
        self, job: ExtractionJob, windows: Sequence[Window], progress: Callable[[int], None]
    ) -> list[Receipt]:
        self.parts.append(len(windows))
        with ThreadPoolExecutor(self.slots()) as pool:
            return list(pool.map(lambda window: self._read(job, window), windows))


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ManySlots, "parts", [])


def create(pipeline: Pipeline, rows: int) -> None:
    ask_once(
        pipeline,
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL,"
        " KEY by_change (update_at, id))",
    )
    ask_once(
        pipeline,
        f"INSERT INTO t SELECT seq, '2025-06-01' + INTERVAL seq SECOND FROM {numbers(1, rows)}",
    )


def with_source(pipeline: Pipeline, **settings: Any) -> Pipeline:
    return replace(pipeline, source={**pipeline.source, **settings}).write_config()


@contextmanager
def limited_account(server: PrivateMariaDB, connections: int) -> Iterator[dict[str, Any]]:
    """A user whom the server refuses any further connection."""
    user = f"'limited'@'{server.host}'"
    server.execute(
        f"CREATE USER {user} IDENTIFIED BY 'secret' WITH MAX_USER_CONNECTIONS {connections}"
    )
    server.execute(f"GRANT SELECT, PROCESS, REPLICATION CLIENT ON *.* TO {user}")
    if not isinstance(server, PrivateMySQL):
        server.execute(f"GRANT REPLICA MONITOR ON *.* TO {user}")
    try:
        yield {"user": "limited", "password": "secret"}
    finally:
        server.execute(f"DROP USER {user}")


def test_an_account_with_few_connections(pipeline: New, server: PrivateMariaDB) -> None:
    it = pipeline(CURSOR, settings=TENS)
    create(it, rows=180)
    with limited_account(server, 6) as login:
        with_source(it, **login).synced(engine=ManySlots)
    assert it.ids() == dict.fromkeys(range(1, 181), 1)
    assert ManySlots.parts == [3] * 6  # three sessions plan


class SixteenSlots(ManySlots):
    """Runs sixteen tasks at the same time."""

    known_slots = 16

    def slots(self) -> int:
        return 16


@pytest.mark.parametrize("strategy", ["intra-table", "inter-table"])
def test_connections_that_find_edges_count_too(
    pipeline: New, server: PrivateMariaDB, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    found: list[int] = []

    @contextmanager
    def more_sessions(source: Source, number: int) -> Iterator[Any]:
        found.append(number)
        with more(source, number) as opened:
            yield opened

    more = Source.more_sessions
    monkeypatch.setattr(Source, "more_sessions", more_sessions)
    it = pipeline(CURSOR, settings="extraction: {window_rows: 10, windows_per_chunk: 20}")
    create(it, rows=1000)
    ask_once(it, "ANALYZE TABLE t")
    with limited_account(server, 14) as login:
        limited = with_source(it, **login)
        assert limited.sync("--strategy", strategy, engine=SixteenSlots).code == 0
        ask_once(it, "UPDATE t SET update_at = update_at + INTERVAL 1 DAY WHERE id <= 100")
        assert limited.sync("--strategy", strategy, engine=SixteenSlots).code == 0  # a few windows
    assert it.ids() == {**dict.fromkeys(range(1, 1001), 1), **dict.fromkeys(range(1, 101), 2)}
    assert found == ([2] if strategy == "intra-table" else [])
    assert max(ManySlots.parts) <= 14 - 3  # three other sessions plan


class Failing(SixteenSlots):
    """Fails to read any window."""

    def extract(self, *_: Any) -> list[Receipt]:
        raise FloodmarkError("no window can be read")


def test_a_failed_window_ends_the_connections_that_find_edges(
    pipeline: New, server: PrivateMariaDB
) -> None:
    it = pipeline(CURSOR, settings="extraction: {window_rows: 10, windows_per_chunk: 20}")
    create(it, rows=5000)
    ask_once(it, "ANALYZE TABLE t")
    threads = set(enumerate_threads())
    with limited_account(server, 20) as login:
        ended = with_source(it, **login).sync(engine=Failing)
        assert (ended.code, "no window can be read" in ended.out + ended.err) == (1, True), ended
        left = set(enumerate_threads()) - threads
        assert not [one for one in left if one.name.startswith("ThreadPool")]
        sessions = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'limited'"
        assert wait_until(lambda: server.execute(sessions) == [(0,)])


def test_an_account_with_few_connections_for_many_tables(
    pipeline: New, server: PrivateMariaDB
) -> None:
    names = [f"t{number}" for number in range(20)]
    it = pipeline(dict.fromkeys(names, "{cursor: id}"))
    for name in names:
        ask_once(it, f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        ask_once(it, f"INSERT INTO {name} VALUES (1), (2)")
    with limited_account(server, 6) as login:
        limited = with_source(it, **login)
        for rows in (2, 0):  # then there is nothing new, and all tables are looked at
            ended = limited.sync("--json", "--strategy", "inter-table", engine=SixteenSlots)
            assert ended.code == 0, ended.out
            assert [table["rows"] for table in ended.value["tables"]] == [rows] * 20


@pytest.mark.enough_on("mysql")
def test_configured_connections(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=TENS)
    create(it, rows=90)
    with_source(it, max_connections=8).synced(engine=ManySlots)
    assert ManySlots.parts == [5, 4]
    ask_once(it, "UPDATE t SET update_at = update_at + INTERVAL 1 DAY")
    with_source(it, max_connections=1).synced(engine=ManySlots)
    assert ManySlots.parts[2:] == [1] * 9  # one always reads
    it.check_tracking()


@pytest.mark.enough_on("mysql")
def test_by_default_a_fifth_of_the_server(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=TENS)
    create(it, rows=90)
    ((_, most),) = ask_once(it, "SHOW VARIABLES LIKE 'max_connections'")
    it.synced(engine=ManySlots)
    assert int(most) // 5 >= 12 + 3
    assert ManySlots.parts == [9]


@pytest.mark.enough_on("mysql")
def test_rows_per_second(pipeline: New) -> None:
    """The worker waits as long as the rate asks for: no machine is too slow for this."""
    it = pipeline(CURSOR, settings=TENS)
    create(it, rows=90)
    it = with_source(it, max_rows_per_second=60)
    began = time.monotonic()
    it.synced()
    assert time.monotonic() - began >= 90 / 60
    it.check_tracking()


@pytest.mark.enough_on("mysql")
def test_spark_reads_no_more_than_its_share(pipeline: New, spark: Any) -> None:
    """Two tasks run at once, but only one connection may read."""
    jobs: list[tuple[int, float | None]] = []

    class Watched(warm_engine(spark)):  # type: ignore[misc]
        def extract(self, job: ExtractionJob, windows: Sequence[Window], progress: Any) -> Any:
            jobs.append((len(windows), job.rows_per_second))
            return super().extract(job, windows, progress)

    it = pipeline(CURSOR, settings="extraction: {window_rows: 30, windows_per_chunk: 3}")
    create(it, rows=90)
    assert spark.slots() == 2
    with_source(it, max_connections=2, max_rows_per_second=1000).synced(engine=Watched)
    assert jobs == [(1, 1000)] * 3
    assert it.ids() == dict.fromkeys(range(1, 91), 1)


def test_a_server_that_ends_one_connection_after_another(server: PrivateMariaDB) -> None:
    def ended(session: MysqlSession) -> int:
        ((number,),) = run(session, "SELECT CONNECTION_ID()")
        server.execute(f"KILL {number}")
        run(session, "DO 1")
        raise AssertionError(number)

    with Source(new_database(server)) as source:
        with pytest.raises(FloodmarkError, match="ended the transaction in which ids are read"):
            source.ceiling(ended)
        with pytest.raises(FloodmarkError, match="ended the connection"), source.session():
            raise pymysql.err.InterfaceError(0, "")
