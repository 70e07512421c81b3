"""Tables without a usable key and without an index on the cursor, read in several windows."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

import pytest

import processes
from floodmark.config.models import ExtractionSettings, MysqlConnection
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model.bound import Bound
from floodmark.model.extraction import ChunkPlan, Receipt, Window
from floodmark.model.log_state import Clock
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.mysql.catalog import read_table
from floodmark.mysql.connection import MysqlSession, connect, query
from floodmark.mysql.row_estimates import count_outside
from floodmark.planning.access_path import choose_route
from floodmark.planning.cursor import choose_cursor
from floodmark.planning.windows import check_tiling
from floodmark.sync.plan import TablePlan
from floodmark.sync.plan_windows import chunks_of
from floodmark.worker import extract_window
from floodmark.worker.job import ExtractionJob
from floodmark.worker.mysql_reader import read_batches
from pipelines import DirectEngine, Pipeline, Session, ask, ask_once, numbers, session, wait_until

New = Callable[..., Pipeline]
Step = Callable[[], object]

ROWS = 1000
NEXT_YEAR = Position(datetime(2027, 1, 1, tzinfo=UTC))
CLOCK = Clock(offset_seconds=0, at=datetime(2026, 1, 1, tzinfo=UTC))
SMALL = "extraction: {window_rows: 30}\ndefault_start: all\n"


@pytest.fixture
def opened(server: PrivateMariaDB) -> Iterator[MysqlSession]:
    server.execute("DROP DATABASE IF EXISTS scanned")
    server.execute("CREATE DATABASE scanned CHARACTER SET utf8mb4")
    settings = MysqlConnection(
        host=server.host, port=server.port, user=server.user, password=Secret(server.password)
    )
    with connect(settings) as found:
        query(found, "SET sql_mode = ''")
        query(found, "USE scanned")
        yield found


def planned(opened: MysqlSession, *cursor: str, limit: int | None = None) -> ChunkPlan | None:
    """Plan how to read table `t`; it is one chunk, or nothing."""
    query(opened, "ANALYZE TABLE t")
    table = read_table(opened, TableName("S", "scanned", "t"))
    choice = choose_cursor(table, cursor)
    by_id = choice.cursor.kind == "id"
    plan = TablePlan(
        source=table,
        choice=choice,
        columns=(),
        route=choose_route(table, choice.cursor, START, limit=limit),
        start=START,
        bound=Bound(position=Position(id=10**40) if by_id else NEXT_YEAR),
        expected_rows=table.estimated_rows,
        warnings=(),
    )
    settings = ExtractionSettings(window_rows=30)
    chunks = list(chunks_of(opened, plan, settings, windows_per_chunk=repeat(8), limit=limit))
    assert len(chunks) <= 1
    return chunks[0] if chunks else None


def held(opened: MysqlSession, chunk: ChunkPlan) -> list[list[int]]:
    """The rows that each window has."""
    return [
        [n for (n,) in query(opened, f"SELECT n FROM t WHERE {window.predicate}")]
        for window in chunk.windows
    ]


NOON = "TIMESTAMP'2025-08-04 12:00:00'"
SHAPES = {
    "seconds": ("at DATETIME NOT NULL", f"{NOON} + INTERVAL seq DIV 7 SECOND", ("at",)),
    "one moment": ("at DATETIME NOT NULL", NOON, ("at",)),
    "microseconds": ("at DATETIME(6)", f"{NOON} + INTERVAL seq * 7 MICROSECOND", ("at",)),
    "milliseconds": ("at TIMESTAMP(3) NULL", f"{NOON} + INTERVAL seq * 9000 MICROSECOND", ("at",)),
    "centuries": ("at DATETIME(6)", "'1000-01-01' + INTERVAL seq YEAR", ("at",)),
    "most at once": (
        "at DATETIME(6)",
        f"IF(seq % 100 = 0, '2001-01-01' + INTERVAL seq DAY, {NOON} + INTERVAL seq MICROSECOND)",
        ("at",),
    ),
    "some invalid": (
        "at DATETIME",
        f"IF(seq % 9 = 0, '2025-08-00 10:00:00', {NOON} + INTERVAL seq - 500 HOUR)",
        ("at",),
    ),
    "time and text": (
        "at DATETIME NOT NULL, code VARCHAR(20) NOT NULL",
        f"{NOON} + INTERVAL seq DIV 20 SECOND, CONCAT('é', seq)",
        ("at", "code"),
    ),
    "negative": ("id BIGINT NOT NULL", "seq * 3 - 1500", ("id",)),
    "all numbers": (
        "id BIGINT NOT NULL",
        "IF(seq % 2, -9223372036854775000 - seq % 800, 9223372036854775000 + seq % 800)",
        ("id",),
    ),
    "unsigned": ("id BIGINT UNSIGNED", "18446744073709550000 + seq", ("id",)),
    "decimal": ("id DECIMAL(30, 0)", "100000000000000000000000000000 + seq * 1e20", ("id",)),
    "decimal, one far": (
        "id DECIMAL(65, 0)",
        f"IF(seq = 1, -{'9' * 65}, seq)",
        ("id",),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_row_is_in_one_of_few_windows(opened: MysqlSession, shape: str) -> None:
    columns, values, cursor = SHAPES[shape]
    query(opened, f"CREATE TABLE t (n INT NOT NULL, {columns})")
    query(opened, f"INSERT INTO t SELECT seq, {values} FROM {numbers(1, ROWS)}")
    chunk = planned(opened, *cursor)
    assert chunk is not None
    check_tiling(START, chunk.end, chunk.windows)
    found = held(opened, chunk)
    assert sorted(n for window in found for n in window) == list(range(1, ROWS + 1))
    if shape == "one moment":
        assert len(found) == 1
    else:
        assert 4 <= len(found) <= 5
        if shape != "some invalid":  # these are in one window, whatever the others
            assert max(map(len, found)) <= ROWS / 4 * 1.25
    last = " DESC, ".join(cursor)
    ((end,),) = query(opened, f"SELECT n FROM t ORDER BY {last} DESC LIMIT 1")
    assert end in found[-1]
    assert not any(window.streamed for window in chunk.windows)


def test_few_scans_divide_a_table(opened: MysqlSession) -> None:
    query(opened, "CREATE TABLE t (n INT NOT NULL, at DATETIME NOT NULL)")
    query(opened, f"INSERT INTO t SELECT seq, {NOON} + INTERVAL seq SECOND FROM {numbers(1, ROWS)}")
    query(opened, "FLUSH STATUS")
    chunk = planned(opened, "at")
    touched = dict(query(opened, "SHOW STATUS LIKE 'Handler_read_rnd_next'"))
    assert chunk is not None
    assert len(chunk.windows) == 4
    # The range, the histogram, and its rows in a temporary table.
    assert int(touched["Handler_read_rnd_next"]) < 3.5 * ROWS


def test_few_new_rows_are_one_window(opened: MysqlSession) -> None:
    """Each window costs a scan of the whole table."""
    query(opened, "CREATE TABLE t (n INT NOT NULL, at DATETIME NULL)")
    query(
        opened,
        f"INSERT INTO t SELECT seq, IF(seq <= 60, {NOON} + INTERVAL seq SECOND, NULL)"
        f" FROM {numbers(1, ROWS)}",
    )
    chunk = planned(opened, "at")
    assert chunk is not None
    assert [len(window) for window in held(opened, chunk)] == [60]
    query(opened, "UPDATE t SET at = NULL")
    assert planned(opened, "at") is None


@pytest.mark.parametrize("limit", [1, 6, 7, 500, 993, 1000, 5000])
def test_a_limit_is_exact(opened: MysqlSession, limit: int) -> None:
    query(opened, "CREATE TABLE t (n INT NOT NULL, at DATETIME NOT NULL)")
    values = f"{NOON} + INTERVAL seq SECOND"
    query(opened, f"INSERT INTO t SELECT seq, {values} FROM {numbers(1, ROWS)}")
    chunk = planned(opened, "at", limit=limit)
    assert chunk is not None
    rows = sorted(n for window in held(opened, chunk) for n in window)
    assert rows == list(range(1, min(limit, ROWS) + 1))
    query(opened, f"UPDATE t SET at = {NOON}")
    if limit < ROWS:
        with pytest.raises(UsageError, match="must be read together"):
            planned(opened, "at", limit=limit)


class Changing(DirectEngine):
    """Something is done to the source before each window is read."""

    steps: Iterator[Step]

    def _read(self, job: ExtractionJob, window: Window) -> Receipt:
        next(self.steps, lambda: None)()
        return super()._read(job, window)


def changing(*steps: Step) -> type[Changing]:
    return type("Now", (Changing,), {"steps": iter(steps)})


PLACES = {
    "nowhere": "",
    "an index": ", KEY (region)",
    "an index on text": ", KEY (note)",
    "HASH": ") PARTITION BY HASH (region) PARTITIONS 4 -- ",
    "LIST": ") PARTITION BY LIST (region) (PARTITION a VALUES IN (0, 1, NULL),"
    " PARTITION b VALUES IN (2, 3)) -- ",
    "RANGE": ") PARTITION BY RANGE (region) (PARTITION a VALUES LESS THAN (2),"
    " PARTITION b VALUES LESS THAN MAXVALUE) -- ",
    "subpartitions": ") PARTITION BY RANGE (region) SUBPARTITION BY HASH (region) SUBPARTITIONS 2"
    " (PARTITION a VALUES LESS THAN (2), PARTITION b VALUES LESS THAN MAXVALUE) -- ",
}


def make(pipeline: New, place: str, cursor: str) -> Pipeline:
    it = pipeline({"t": f"{{cursor: {cursor}}}"}, settings=SMALL)
    ask_once(
        it,
        "CREATE TABLE t (id BIGINT NOT NULL, region INT, note VARCHAR(20), v INT NOT NULL,"
        " updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"
        f" ON UPDATE CURRENT_TIMESTAMP(6){PLACES[place]}\n)".replace(" -- \n)", ""),
    )
    values = f"seq, seq % 4, seq % 4, 0, {NOON} + INTERVAL seq SECOND"
    ask_once(it, f"INSERT INTO t SELECT {values} FROM {numbers(1, 120)}")
    ask_once(it, "ANALYZE TABLE t")
    return it


def versions(it: Pipeline) -> Counter[Any]:
    return Counter((row["id"], row["v"]) for row in it.rows())


def in_source(it: Pipeline) -> set[Any]:
    return set(ask_once(it, "SELECT id, v FROM t"))


MOVE = "region = (IFNULL(region, 3) + 1) % 4, note = region, v = v + 1"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("cursor", ["id", "updated_at"])
def test_rows_that_move_within_the_table_are_read_once(
    pipeline: New, place: str, cursor: str
) -> None:
    """Their cursor stays as it is, as an id always does, and a time if the application sets it."""
    it = make(pipeline, place, cursor)
    with session(it) as writer:
        moved = f"UPDATE t SET {MOVE}, updated_at = updated_at"
        it.synced(engine=changing(*[lambda: ask(writer, moved)] * 4))
    assert it.ids() == Counter(range(1, 121))
    assert len(it.chunks()[-1].files) == 4
    it.check_tracking()


def write(writer: Session, turn: int) -> None:
    """Move rows, delete some and insert them again, and add others."""
    ask(writer, f"UPDATE t SET {MOVE} WHERE id % 5 = {turn} AND id <= 200")
    for number in range(turn + 1, 120, 40):
        version = f"SELECT MAX(v) + 1000 FROM t WHERE id = {number}"
        ((v,),) = ask(writer, version)
        if v is not None:
            ask(writer, f"DELETE FROM t WHERE id = {number}")
            ask(writer, f"INSERT INTO t (id, region, v) VALUES ({number}, {turn}, {v})")
    ask(writer, f"DELETE FROM t WHERE id = {119 - turn}")
    ask(writer, f"INSERT INTO t (id, region, v) VALUES ({300 + turn}, {turn}, 0)")


@pytest.mark.parametrize("place", PLACES)
def test_each_version_of_a_row_is_read_at_most_once(pipeline: New, place: str) -> None:
    """The newest one exactly once, as soon as the writers pause."""
    it = make(pipeline, place, "updated_at")
    with session(it) as writer:
        for turn in (0, 4):
            steps = [lambda n=n: write(writer, (turn + n) % 5) for n in range(4)]  # noqa: B023
            it.synced(engine=changing(*steps))
            assert set(versions(it).values()) == {1}
            # The second in which they wrote must be over.
            wait_until(lambda: it.synced() and in_source(it) <= set(versions(it)))
    assert set(versions(it).values()) == {1}
    it.check_tracking()


@pytest.mark.parametrize("cursor", ["id", "updated_at"])
def test_partitions_are_reorganized_during_the_read(pipeline: New, cursor: str) -> None:
    """Partitions of the same names with other rows; and none at all."""
    it = make(pipeline, "RANGE", cursor)

    def alter(change: str) -> Step:
        return lambda: ask_once(it, f"ALTER TABLE t {change}")

    it.synced(
        engine=changing(
            lambda: None,
            alter(
                "REORGANIZE PARTITION a, b INTO (PARTITION b VALUES LESS THAN (1),"
                " PARTITION a VALUES LESS THAN MAXVALUE)"
            ),
            alter("REMOVE PARTITIONING"),
            alter("PARTITION BY HASH (v) PARTITIONS 3"),
        )
    )
    assert it.ids() == Counter(range(1, 121))


def sync_killed_at(it: Pipeline, part: int) -> None:
    class Killed(DirectEngine):
        def _read(self, job: ExtractionJob, window: Window) -> Receipt:
            if window.part == part:
                os.kill(os.getpid(), signal.SIGKILL)
            return super()._read(job, window)

    it.sync(engine=Killed)


@pytest.mark.parametrize("cursor", ["id", "updated_at"])
@pytest.mark.parametrize("part", [1, 3, 4])
def test_a_run_that_is_killed_among_windows_leaves_nothing(
    pipeline: New, cursor: str, part: int
) -> None:
    it = make(pipeline, "HASH", cursor)
    killed = processes.start(sync_killed_at, it, part)
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    assert not it.chunks()
    assert len(it.files()) == part - 1
    it.synced()
    assert it.ids() == Counter(range(1, 121))
    it.check_tracking()


def test_a_window_that_fails_is_read_again_alone(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, tried = make(pipeline, "nowhere", "id"), Counter[int]()

    def read(job: ExtractionJob, window: Window) -> Iterator[Any]:
        tried[window.part] += 1
        yield from read_batches(job, window)
        if window.part == 2 and tried[2] < 3:
            raise FloodmarkError("the connection was lost")

    monkeypatch.setattr(extract_window, "read_batches", read)
    it.synced()
    assert tried == {1: 1, 2: 3, 3: 1, 4: 1}
    assert it.ids() == Counter(range(1, 121))


class Noted(DirectEngine):
    """Notes the windows."""

    windows: list[Window]

    def _read(self, job: ExtractionJob, window: Window) -> Receipt:
        self.windows.append(window)
        return super()._read(job, window)


@pytest.mark.parametrize(("width", "streamed"), [(10, False), (20_000, True)])
def test_a_small_table_is_not_streamed(pipeline: New, width: int, streamed: bool) -> None:
    """1 MB or more by the server's estimate is, with these settings."""
    it = pipeline({"t": "{}"}, settings="extraction: {window_mb: 1}\n")
    ask_once(it, "CREATE TABLE t (id INT NOT NULL, note TEXT)")
    ask_once(it, f"INSERT INTO t SELECT seq, REPEAT('x', {width}) FROM {numbers(1, 200)}")
    ask_once(it, "ANALYZE TABLE t")
    windows: list[Window] = []
    it.synced(engine=type("Noting", (Noted,), {"windows": windows}))
    assert [window.streamed for window in windows] == [streamed]
    assert it.ids() == Counter(range(1, 201))


def test_no_rows_are_left_out_before_the_start(opened: MysqlSession) -> None:
    """However few rows were looked at."""
    query(opened, "CREATE TABLE t (n INT NOT NULL, at DATETIME NOT NULL)")
    query(opened, f"INSERT INTO t SELECT seq, {NOON} FROM {numbers(1, 20)}")
    table = read_table(opened, TableName("S", "scanned", "t"))
    cursor = choose_cursor(table, ("at",)).cursor
    for up_to, exact in ((None, True), (NEXT_YEAR, False)):
        before, after = count_outside(
            opened, table, cursor, index=None, up_to=up_to, clock=CLOCK, most=10
        )
        assert before.exact == exact
        assert not after.exact
    assert before.rows == 11


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("command", ["doctor", "sync -p main --dry-run"])
@pytest.mark.parametrize(
    ("cursor", "said"),
    [
        ("none", "in one window, as it has no usable key: a row that moves between two parts"),
        ("updated_at", "ranges of the cursor, each of which scans the whole table"),
    ],
)
def test_the_plan_says_how_a_table_is_divided(
    pipeline: New, command: str, cursor: str, said: str
) -> None:
    it = make(pipeline, "nowhere", cursor)
    ended = it.call(*command.split())
    if command == "doctor" and cursor != "none":
        said = "the table is small: every sync reads all of it"
    assert said in " ".join((ended.out + ended.err).split())
