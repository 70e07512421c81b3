"""Work that is spread over Spark's workers."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from floodmark.config.models import SparkSettings
from floodmark.sync.spark_engine import SparkEngine


class CountingSpark:
    """Counts the tasks that run at once."""

    def __init__(self) -> None:
        self.lock, self.running, self.most = threading.Lock(), 0, 0

    def run(self, title: str, _task: Callable[[int], str], tasks: int, _progress: Any) -> list[str]:
        with self.lock:
            self.running += tasks
            self.most = max(self.most, self.running)
        threading.Event().wait(0.01)
        with self.lock:
            self.running -= tasks
        return [f"{title} {number}" for number in range(tasks)]


class Engine(SparkEngine):
    """Uses a Spark that only counts."""

    spark = CountingSpark()

    def _started(self) -> CountingSpark:
        return self.spark


def test_parts_of_all_tables_share_the_connections_of_a_warehouse() -> None:
    engine = Engine(SparkSettings(), lambda _notice: None)
    with ThreadPoolExecutor(4) as pool:
        loads = [
            pool.submit(engine.spread, "db:5432", f"t{number}", lambda _n: b"", 40, 7)
            for number in range(4)
        ]
        assert [len(load.result(timeout=30)) for load in loads] == [40] * 4
    assert 0 < engine.spark.most <= 7
