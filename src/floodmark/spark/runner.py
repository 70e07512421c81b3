"""Tasks on Spark: each is run on a worker, and answers in JSON."""

import re
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from floodmark.errors import FloodmarkError, SparkJobFailed

Progress = Callable[[int], None]


class SparkFailure(Exception):
    """Spark could not run tasks, for a reason of its own or of theirs."""


_TRACEBACK = "Traceback (most recent call last):"
_TRIES = 4  # Spark's own default on a cluster


def task_error(message: str) -> str:
    """Return what a task raised, out of Spark's message about it; else the first line."""
    _, found, trace = message.rpartition(_TRACEBACK)
    lines = [line for line in (trace if found else message).splitlines() if line.strip()]
    if not found:
        return lines[0] if lines else "no reason given"
    # The frames are indented; Spark and Java add lines of their own after the exception.
    raised = (line for line in lines if not line.startswith((" ", "\t")))
    return next(raised, lines[-1] if lines else "no reason given")


def tries_of(master: str | None, max_failures: str | None) -> int:
    """How often Spark tries a task: by default once on this machine, four times on a cluster."""
    if master and (local := re.fullmatch(r"local(\[[^,\]]*(?:,\s*(\d+))?\s*\])?", master)):
        return int(local[2] or 1)
    return int(max_failures or _TRIES)


def cannot_start(why: str) -> FloodmarkError:
    """The error for a Spark that does not start, with the first line of its reason."""
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

    @property
    def tries(self) -> int:
        """How often a task that raises is tried."""

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

    What a task raises makes Spark try it again, a few times; then it is SparkJobFailed.
    """

    def task(number: int) -> str:
        return run(number, _attempt()).decode()

    try:
        return spark.run(title, task, tasks, progress)
    except SparkFailure as failure:
        raise SparkJobFailed(f"{title}: Spark could not run it: {failure}") from failure


def _attempt() -> Attempt:
    from pyspark.taskcontext import TaskContext  # not before Java starts

    context = TaskContext.get()
    assert context is not None
    return Attempt(context.taskAttemptId(), context.attemptNumber())
