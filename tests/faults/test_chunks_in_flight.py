"""Chunks that are read before earlier ones are committed: in order, or not at all."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from msgspec import structs

import processes
from floodmark.errors import FloodmarkError, LeaseLost
from floodmark.model.extraction import ChunkPlan
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Set
from floodmark.model.position import START
from floodmark.model.table import TableName
from floodmark.state.lease import break_lease
from floodmark.sync.chunks_in_flight import ReadChunk
from pipelines import DirectEngine, Pipeline, ask_once, numbers, wait_until, warm_engine
from scenarios import open_store

New = Callable[..., Pipeline]
CURSOR = {"t": "{cursor: [update_at, id]}"}
# Two slots and one window a chunk: three chunks are in flight.
ONES = "extraction: {window_rows: 3, windows_per_chunk: 1}"


def create(pipeline: Pipeline, rows: int) -> None:
    ask_once(
        pipeline,
        "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL DEFAULT 0, update_at DATETIME NOT NULL,"
        " KEY by_change (update_at, id))",
    )
    ask_once(
        pipeline,
        "INSERT INTO t (id, update_at)"
        f" SELECT seq, '2025-06-01' + INTERVAL seq SECOND FROM {numbers(1, rows)}",
    )


def check_complete(pipeline: Pipeline, rows: int) -> None:
    assert pipeline.ids() == dict.fromkeys(range(1, rows + 1), 1)
    pipeline.check_tracking()


class Ordered(DirectEngine):
    """Reads three chunks in flight in the opposite order: each waits for the later one."""

    read: ClassVar[dict[int, threading.Event]]
    last: ClassVar[int]

    @property
    def known_slots(self) -> int:
        return 2

    def extract(self, job: Any, windows: Any, progress: Any) -> Any:
        if job.sequence % 3 and job.sequence < self.last:
            assert self.read[job.sequence + 1].wait(20)
        found = super().extract(job, windows, progress)
        self.read[job.sequence].set()
        return self.end(job, found)

    def end(self, _job: Any, found: Any) -> Any:
        return found


def backwards(engine: type[Ordered], chunks: int) -> type[Ordered]:
    engine.read = {number: threading.Event() for number in range(1, chunks + 2)}
    engine.last = chunks
    return engine


@pytest.mark.enough_on("mysql")
def test_chunks_that_are_read_backwards_are_committed_in_order(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=ONES)
    create(it, rows=27)
    result = it.synced(engine=backwards(Ordered, 9))
    assert (result["rows"], result["chunks"]) == (27, 9)
    check_complete(it, 27)
    assert [min(row["id"] for row in it.rows())] == [1]
    ends = [chunk.end.id for chunk in it.chunks()]
    assert ends == sorted(ends, key=int)  # type: ignore[arg-type]


@pytest.mark.enough_on("mariadb")
@pytest.mark.parametrize("strategy", ["sequential", "inter-table"])
def test_one_after_another_with_other_strategies(pipeline: New, strategy: str) -> None:
    it = pipeline(CURSOR, settings=ONES)
    create(it, rows=12)
    committed = []

    class Counting(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            committed.append(len(it.manifests()))
            return super().extract(job, windows, progress)

    it.synced("--strategy", strategy, engine=Counting)
    assert committed == [0, 1, 2, 3]


class Growing(DirectEngine):
    """A cluster: nothing is known before it starts, and most executors join after that."""

    known: ClassVar[int | None] = None
    windows: ClassVar[dict[int, int]] = {}
    slices: ClassVar[list[int]] = []

    @property
    def known_slots(self) -> int | None:
        return self.known

    def slots(self) -> int:
        if self.known is None:
            Growing.known = 2
        assert self.known is not None
        return self.known

    def extract(self, job: Any, windows: Any, progress: Any) -> Any:
        found = super().extract(job, windows, progress)
        with self.reading:
            self.windows[job.sequence] = self.windows.get(job.sequence, 0) + len(windows)
            self.slices.extend(len(window.statements) for window in windows)
            if job.sequence == 2:
                Growing.known = 64
        return found


@pytest.mark.enough_on("mariadb")
def test_chunks_grow_with_the_cluster(pipeline: New, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Growing, "known", None)
    monkeypatch.setattr(Growing, "windows", {})
    monkeypatch.setattr(Growing, "slices", [])
    it = pipeline(CURSOR, settings="extraction: {window_rows: 3}")
    create(it, rows=600)
    it.synced(engine=Growing)
    sizes = [size for _, size in sorted(Growing.windows.items())]
    assert sizes[:2] == [8, 1]  # small ones, then one of many slices
    assert max(sizes[2:]) > 8
    # Several connections find the edges, each in a part of the range that may end with a small one.
    assert 200 <= sum(Growing.slices) <= 220
    check_complete(it, 600)


@pytest.mark.enough_on("mysql")
def test_chunks_in_flight_grow_with_the_cluster(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of a chunk is configured, so there must be more of them."""
    monkeypatch.setattr(Growing, "known", None)
    together = threading.Barrier(5)

    class Met(Growing):
        """The chunks from the fourth on wait until five are in flight."""

        reading = threading.Semaphore(8)  # type: ignore[assignment]

        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if 4 <= job.sequence <= 8:
                together.wait(20)
            return super().extract(job, windows, progress)

    it = pipeline(CURSOR, settings=ONES)
    create(it, rows=30)
    it.synced(engine=Met)
    check_complete(it, 30)


@pytest.mark.enough_on("mysql")
def test_a_limit_ends_what_is_in_flight(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=ONES)
    create(it, rows=30)
    assert it.synced("--limit", "10", engine=backwards(Ordered, 4))["rows"] == 10
    check_complete(it, 10)
    assert it.files() == it.named_files()
    it.synced()
    check_complete(it, 30)


class SecondFails(Ordered):
    """The second chunk fails when the third one is complete."""

    def end(self, job: Any, found: Any) -> Any:
        if job.sequence == 2:
            raise FloodmarkError("the second failed")
        return found


@pytest.mark.enough_on("mariadb")
def test_chunks_before_a_failure_are_kept_and_later_ones_discarded(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=ONES)
    create(it, rows=30)
    ended = it.sync("--json", engine=backwards(SecondFails, 10))
    assert (ended.code, ended.table["error"]) == (1, "the second failed")
    assert len(it.chunks()) == 1
    check_complete(it, 3)
    assert it.watermark().mysql_state.status == "failed"
    left = it.files() - it.named_files()
    assert len(left) >= 2  # the second one's, and the third one's
    it.synced()
    check_complete(it, 30)
    listed = it.call("s3clean", "list", "-t", f"{it.schema}.t", "--json").value
    free = {file["path"] for file in listed if not file["protection"]}
    assert free == left == it.files() - it.named_files()
    check_complete(it, 30)


class Dies(Ordered):
    """The process dies when later chunks are complete, and the first one is read."""

    def end(self, job: Any, found: Any) -> Any:
        if job.sequence == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return found


def die_in_flight(pipeline: Pipeline) -> None:
    """Runs in a process of its own."""
    pipeline.sync(engine=backwards(Dies, 10))


@pytest.mark.enough_on("mysql")
def test_killed_while_later_chunks_wait_for_the_first(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=ONES)
    create(it, rows=30)
    process = processes.start(die_in_flight, it)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    left = it.files()
    assert (len(left), it.manifests()) == (3, [])
    listed = it.call("s3clean", "list", "-t", f"{it.schema}.t", "--json").value
    assert {file["protection"] for file in listed} == {"perhaps being written"}
    it.synced()
    check_complete(it, 30)
    assert not left & it.named_files()


@pytest.mark.enough_on("mariadb")
def test_a_lease_that_is_lost_while_chunks_are_in_flight(pipeline: New) -> None:
    it = pipeline(CURSOR, settings=ONES)
    create(it, rows=30)

    class Robbed(Ordered):
        def end(self, job: Any, found: Any) -> Any:
            if job.sequence == 1:  # the third and the second are read by now
                store = open_store(it.lake.open())
                break_lease(store.objects, it.table())
                store.commit(it.table(), lambda _: Set(position=START))
            return found

    ended = it.sync(engine=backwards(Robbed, 10))
    assert ended.code == 4, ended
    assert it.chunks() == []
    assert len(it.files()) >= 3
    it.synced()
    check_complete(it, 30)


def test_files_are_committed_only_under_the_number_that_they_were_written_for() -> None:
    plan = ChunkPlan(start=START, end=START, windows=(), rows=0, counted=True, final=True)
    chunk = ReadChunk(plan=plan, head=ManifestId(1, 7), receipts=[], began=0)
    table = TableName("PROD", "shop", "t")
    chunk.check_next(table, ManifestId(1, 7))
    for other in (ManifestId(1, 8), ManifestId(2, 1), ManifestId(2, 7)):
        with pytest.raises(LeaseLost):
            chunk.check_next(table, other)


@pytest.mark.enough_on("mysql")
def test_a_failure_cancels_the_tasks_of_later_chunks(pipeline: New, spark: Any) -> None:
    """Without that, the sync would wait for them: half a day."""
    it = pipeline(CURSOR, settings=ONES)
    create(it, rows=30)
    asleep = "SELECT id FROM information_schema.processlist WHERE info LIKE '%SLEEP(40000) = 0%'"
    asleep += " AND id <> CONNECTION_ID()"

    class FirstFails(warm_engine(spark)):  # type: ignore[misc]
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            if job.sequence > 1:
                (window,) = windows
                windows = [structs.replace(window, predicate="SLEEP(40000) = 0")]
                return super().extract(job, windows, progress)
            wait_until(lambda: ask_once(it, asleep), seconds=60)
            raise FloodmarkError("the first failed")

    ended = it.sync("--json", engine=FirstFails)
    assert (ended.code, ended.table["error"]) == (1, "the first failed")
    assert it.manifests() == []
    for (thread,) in ask_once(it, asleep):  # the server does not notice that nobody waits for it
        ask_once(it, f"KILL {thread}")
    it.synced(engine=warm_engine(spark))
    check_complete(it, 30)
