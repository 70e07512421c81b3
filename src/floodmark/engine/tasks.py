"""Tasks on Spark: each is run on a worker, and answers in JSON."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from floodmark.errors import FloodmarkError

Progress = Callable[[int], None]


class SparkFailure(Exception):
    """Spark could not run tasks, for a reason of its own or of theirs."""


def cannot_start(why: str) -> FloodmarkError:
    """Spark's own words for why it does not start, the first line of them."""
    return FloodmarkError(
        f"Spark does not start: {why.splitlines()[0]}", hint="check the settings under 'spark:'"
    )


class Spark(Protocol):
    """A Spark that runs tasks, however it is reached."""

    def run(
        self, title: str, task: Callable[[int], str], tasks: int, progress: Progress | None
    ) -> list[str]:
        """Run so many tasks, numbered from 0, and return their answers in order.

        SparkFailure if that cannot be done. Leaving by any exception cancels what still runs.
        `progress` hears the number of tasks done, now and then, where Spark tells it.
        """

    def is_alive(self) -> bool:
        """Whether it can still run anything: it ends with its Java, or by itself."""


class Attempt(Struct, frozen=True):
    """One try of a task: a number of its own, and how often the task has failed before."""

    id: int
    failures: int


def run_tasks(
    spark: Spark,
    title: str,
    run: Callable[[int, Attempt], bytes],
    tasks: int,
    *,
    progress: Progress | None = None,
) -> list[str]:
    """Run so many tasks, numbered from 0, and return their answers in order.

    What a task raises makes Spark try it again, a few times; then it is a FloodmarkError.
    """

    def task(number: int) -> str:
        return run(number, _attempt()).decode()

    try:
        return spark.run(title, task, tasks, progress)
    except SparkFailure as failure:
        raise FloodmarkError(f"{title}: Spark could not run it: {failure}") from failure


def _attempt() -> Attempt:
    from pyspark.taskcontext import TaskContext  # not before Java starts

    context = TaskContext.get()
    assert context is not None
    return Attempt(context.taskAttemptId(), context.attemptNumber())
