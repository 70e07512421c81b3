"""Windows are read within a source's limits, whatever Spark says of its size."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from floodmark.config.models import LakeSettings, MysqlConnection
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import Receipt, Window
from floodmark.model.position import START
from floodmark.model.server import Server
from floodmark.model.table import TableName
from floodmark.model.verification import Comparison, WindowPair
from floodmark.mysql.connection import MysqlSession
from floodmark.storage.memory import MemoryObjectStore
from floodmark.sync import source as sources
from floodmark.sync.extraction import Extraction
from floodmark.sync.read_windows import compare_windows, read_windows
from floodmark.sync.source import Source
from floodmark.worker.compare_window import VerificationJob
from floodmark.worker.job import ExtractionJob


class Cluster:
    """Two slots are known when reading begins; many more executors join meanwhile."""

    def __init__(self, *, on_cluster: bool, slots_beside: int = 0) -> None:
        self.on_cluster = on_cluster
        self.slots_beside = slots_beside
        self.parts: list[int] = []
        self.rates: list[float | None] = []

    def slots(self) -> int:
        return 2

    def extract(
        self, job: ExtractionJob, windows: Sequence[Window], _progress: Callable[[int], None]
    ) -> list[Receipt]:
        self.parts.append(len(windows))
        self.rates.append(job.rows_per_second)
        return [Receipt(part=w.part, rows=0, files=(), seconds=0) for w in windows]

    def compare(self, _job: VerificationJob, pairs: Sequence[WindowPair]) -> list[Comparison]:
        self.parts.append(len(pairs))
        return [cast("Comparison", pair) for pair in pairs]


WINDOWS = [Window(part=part, start=START, end=START, predicate="") for part in range(1, 13)]
JOB = ExtractionJob(
    table=TableName.parse("PROD:shop.t"),
    session_id="s",
    sequence=1,
    source=MysqlConnection(user="u"),
    relation="t",
    columns=(),
    cursor=Cursor(kind="none"),
    lake=LakeSettings(url="./lake"),
)


@contextmanager
def connect(connection: MysqlConnection, *, server: Server | None = None) -> Iterator[MysqlSession]:
    yield cast("MysqlSession", Mock(ended=False, server=server))


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Extraction, Cluster]]:
    def make(
        *,
        on_cluster: bool = True,
        slots_beside: int = 0,
        strategy: str = "inter-table",
        account: int = 0,
        **settings: Any,
    ) -> Any:
        server = Server(
            identity="s",
            uuid="s",
            version="8.4.0",
            product="mysql",
            max_connections=151,
            max_user_connections=account,
        )
        monkeypatch.setattr(sources, "read_server", lambda _session: server)
        source = Source(MysqlConnection(user="u", **settings), connect=connect)
        cluster = Cluster(on_cluster=on_cluster, slots_beside=slots_beside)
        store = SimpleNamespace(objects=MemoryObjectStore())
        found = SimpleNamespace(source=source, engine=cluster, store=store, strategy=strategy)
        return cast("Extraction", found), cluster

    return make


@pytest.mark.parametrize("limit", [{"max_connections": 6}, {"account": 6}])
def test_a_cluster_that_grows_opens_no_more_connections(limited: Any, limit: Any) -> None:
    extraction, cluster = limited(**limit)
    receipts = read_windows(extraction, JOB, WINDOWS)
    assert [receipt.part for receipt in receipts] == list(range(1, 13))
    assert cluster.parts == [5, 5, 2]
    pairs = [WindowPair(window, ()) for window in WINDOWS]
    compare_windows(extraction, cast("VerificationJob", JOB), pairs)
    assert cluster.parts[3:] == [5, 5, 2]


def test_a_cluster_that_grows_reads_no_more_rows_a_second(limited: Any) -> None:
    extraction, cluster = limited(max_rows_per_second=100_000)
    read_windows(extraction, JOB, WINDOWS)
    assert set(cluster.parts) == {2}
    assert cluster.rates == [50_000.0] * 6


def test_a_local_spark_cannot_grow(limited: Any) -> None:
    extraction, cluster = limited(on_cluster=False, max_connections=6, max_rows_per_second=100_000)
    read_windows(extraction, JOB, WINDOWS)
    assert (cluster.parts, cluster.rates) == ([12], [50_000.0])


@pytest.mark.parametrize(
    ("limits", "strategy", "parts"),
    [
        ({"max_connections": 6}, "inter-table", [12]),
        ({"max_connections": 4}, "inter-table", [2] * 6),  # one plans; two and two would read
        ({"max_connections": 4}, "intra-table", [12]),
        ({"max_rows_per_second": 1_000_000}, "inter-table", [2] * 6),
        ({"max_rows_per_second": 1_000_000}, "intra-table", [12]),
    ],
)
def test_two_engines_open_no_more_connections(
    limited: Any, limits: Any, strategy: str, parts: list[int]
) -> None:
    extraction, engine = limited(on_cluster=False, slots_beside=2, strategy=strategy, **limits)
    read_windows(extraction, JOB, WINDOWS)
    assert engine.parts == parts
    assert set(engine.rates) <= {None, 500_000.0}
