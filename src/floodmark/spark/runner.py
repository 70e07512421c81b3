"""Run tasks on Spark workers; each answers in JSON."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from msgspec import Struct

from floodmark.errors import FloodmarkError, SparkJobFailed

Progress = Callable[[int], None]


class SparkFailure(Exception):
    """Spark or a task failed."""


_TRACEBACK = "Traceback (most recent call last):"
_NO_FLOODMARK = "No module named 'floodmark"
_OTHER_PYTHON = (
    "Spark's workers run another Python: install floodmark there, or, if they run on this machine,"
    " set os.environ['PYSPARK_PYTHON'] = sys.executable before the session starts"
)
_TRIES = 4  # Spark's own default on a cluster


def task_error(message: str) -> str:
    """Extract a task's exception from Spark's message; else return the first line."""
    _, found, trace = message.rpartition(_TRACEBACK)
    lines = [line for line in (trace if found else message).splitlines() if line.strip()]
    if not found:
        return lines[0] if lines else "no reason given"
    # The frames are indented; Spark and Java add lines of their own after the exception.
    raised = (line for line in lines if not line.startswith((" ", "\t")))
    return next(raised, lines[-1] if lines else "no reason given")


def tries_of(master: str | None, max_failures: str | None) -> int:
    """Return how often Spark tries a task: by default once locally, four times on a cluster."""
    if master and (local := re.fullmatch(r"local(\[[^,\]]*(?:,\s*(\d+))?\s*\])?", master)):
        return int(local[2] or 1)
    return int(max_failures or _TRIES)


def cannot_start(why: str) -> FloodmarkError:
    """Return the error for a Spark that does not start, with the first line of the reason."""
    return FloodmarkError(
        f"Spark does not start: {why.splitlines()[0]}", hint="check the settings under 'spark:'"
    )


class Spark(Protocol):
    """Runs tasks, on any kind of Spark."""

    def run(
        self, title: str, task: Callable[[int], str], tasks: int, progress: Progress | None
    ) -> list[str]:
        """Run this many tasks, numbered from 0, and return their answers in order.

        SparkFailure if one fails. Any exception cancels the tasks that are still running.
        `progress` receives the number of tasks done, if Spark reports it.
        """

    def cancel_titled(self, title: str) -> None:
        """Cancel our running tasks of one title, as far as Spark knows them; they fail."""

    @property
    def tries(self) -> int:
        """Return how often a failing task is tried."""

    def executors(self) -> tuple[int, int] | None:
        """Return how many executors there are now, and how many tasks they run at once.

        None if Spark does not report it.
        """

    def slots(self) -> int:
        """Return how many tasks run at once; on a cluster, this may change."""

    def is_alive(self) -> bool:
        """Whether it can still run tasks."""


class Attempt(Struct, frozen=True):
    """One try of a task: a unique number, and how often the task has failed before."""

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
    """Run this many tasks, numbered from 0, and return their answers in order.

    Spark retries a task that raises a few times; after that, SparkJobFailed. If `run` is a function
    of a module, or a partial of one, a background Spark can be sent it without importing PySpark.
    """
    try:
        return spark.run(title, partial(_attempted, run), tasks, progress)
    except SparkFailure as failure:
        hint = _OTHER_PYTHON if _NO_FLOODMARK in str(failure) else None
        raise SparkJobFailed(f"{title}: Spark could not run it: {failure}", hint=hint) from failure


def run_partition(
    task: Callable[[int], str], number: int, nothing: Iterable[object]
) -> Iterable[str]:
    """Run a task as an empty partition of an RDD.

    The partition is read to its end: otherwise Spark would not use the worker again.
    """
    for _ in nothing:
        raise AssertionError("the partition is not empty")
    return [task(number)]


def _attempted(
    run: Callable[[int, Attempt], bytes], number: int, attempt: Attempt | None = None
) -> str:
    """Run a task on a worker; Spark's workers know the attempt from Spark."""
    if attempt is None:
        from pyspark.taskcontext import TaskContext  # not before Java starts

        context = TaskContext.get()
        assert context is not None
        attempt = Attempt(context.taskAttemptId(), context.attemptNumber())
    return run(number, attempt).decode()
