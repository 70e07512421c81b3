"""What the driver asks of the JVM for a job: every window pays for it."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from floodmark.spark.rdd_runner import ClassicSpark
from floodmark.spark.runner import run_partition


class Partitions:
    """An RDD of empty partitions."""

    def __init__(self, number: int) -> None:
        self.number = number

    def mapPartitionsWithIndex(  # noqa: N802 - PySpark's name
        self, work: Callable[[int, Iterable[object]], Iterable[str]]
    ) -> Any:
        answers = [answer for n in range(self.number) for answer in work(n, iter(()))]
        return SimpleNamespace(collect=lambda: answers)


class Context:
    """Records what is asked of the JVM."""

    master = "local[2,3]"

    def __init__(self) -> None:
        self.created: list[int] = []
        self.read = 0

    def parallelize(self, values: list[object], number: int) -> Partitions:
        assert values == []
        self.created.append(number)
        return Partitions(number)

    def getConf(self) -> Any:  # noqa: N802 - PySpark's name
        self.read += 1
        return SimpleNamespace(getAll=lambda: [("spark.task.maxFailures", "9"), ("a", "b")])

    def setJobGroup(self, *_: object, **__: object) -> None:  # noqa: N802 - PySpark's name
        """Accept a job's name."""

    def setLocalProperty(self, *_: object) -> None:  # noqa: N802 - PySpark's name
        """Accept a property of the thread."""

    def statusTracker(self) -> Any:  # noqa: N802 - PySpark's name
        raise AssertionError("a job that ends at once is not watched")


def test_jobs_of_one_size_share_their_partitions() -> None:
    context: Any = Context()
    spark = ClassicSpark(context)
    for _ in range(2):
        assert spark.run("load", lambda number: f"answer {number}", 2, print) == [
            "answer 0",
            "answer 1",
        ]
    assert spark.run("load", str, 3, None) == ["0", "1", "2"]
    assert context.created == [2, 3]


def test_options_are_read_once() -> None:
    context: Any = Context()
    spark = ClassicSpark(context)
    assert (spark.tries, spark.tries, spark.option("a"), spark.option("c")) == (3, 3, "b", None)
    assert context.read == 1


def test_a_task_reads_its_partition_to_the_end() -> None:
    read: list[bool] = []

    def nothing() -> Iterable[object]:
        read.append(True)
        yield from ()

    assert list(run_partition(str, 7, nothing())) == ["7"]
    assert read == [True]
    with pytest.raises(AssertionError, match="not empty"):
        run_partition(str, 7, [1])
