"""Start Spark, and check that its workers can run a sync."""

import os
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from msgspec import Struct

from floodmark import __version__
from floodmark.config.models import SparkSettings
from floodmark.errors import FloodmarkError
from floodmark.spark.runner import Spark, SparkFailure
from floodmark.spark.session import spark_session

# Executors of a cluster join one after another once Spark has started.
_JOINED_SECONDS = 2.0
_JOINING_SECONDS = 30.0
_ROUNDS = 3
# A task that ends at once would leave its slot to another one, and some executors without any.
_TASK_SECONDS = 1.0
_UNKNOWN_SLOTS = 16


class Answer(Struct, frozen=True):
    """What a task returned, and the executor that ran it: its host and process."""

    host: str
    process: int
    text: str


class SelfTest(Struct, frozen=True):
    """What a start of Spark has shown.

    `answers` has one answer for each slot of the cluster, and `executors` counts its executors, as
    far as Spark tells.
    """

    finding: str
    answers: tuple[Answer, ...] = ()
    executors: int | None = None


def probe(
    settings: SparkSettings, session: Any = None, everywhere: Callable[[], str] | None = None
) -> SelfTest:
    """Start Spark, or use the caller's, and run a task; FloodmarkError if that fails.

    `everywhere` then runs on every executor.
    """
    began = time.monotonic()
    with _spark(settings, session) as spark:
        (theirs,) = _run(spark, _answer, 1)
        if theirs != __version__:
            raise FloodmarkError(
                f"workers have floodmark {theirs}, but this is {__version__}",
                hint="install the same version everywhere",
            )
        done = "started" if session is None else "attached"
        finding = f"{done}, and a worker answered, in {time.monotonic() - began:.1f} s"
        if everywhere is None:
            return SelfTest(finding)
        answers: list[Answer] = []
        for _ in range(_ROUNDS):
            executors, slots = _joined(spark)
            found = _run(spark, lambda _: _located(everywhere), slots)
            answers += [msgspec.json.decode(answer, type=Answer) for answer in found]
            if executors is None or len({(a.host, a.process) for a in answers}) >= executors:
                break
        return SelfTest(finding, tuple(answers), executors)


def _run(spark: Spark, task: Callable[[int], str], tasks: int) -> list[str]:
    try:
        return spark.run("doctor", task, tasks, None)
    except SparkFailure as failure:
        raise FloodmarkError(
            f"a worker could not answer: {failure}",
            hint="install floodmark on every worker, in the Python that Spark runs there",
        ) from failure


def _joined(spark: Spark) -> tuple[int | None, int]:
    """Wait until no more executors join; return their number, if known, and that of slots."""
    deadline = time.monotonic() + _JOINING_SECONDS
    before = spark.executors()
    while before is not None and time.monotonic() < deadline:
        time.sleep(_JOINED_SECONDS)
        now = spark.executors()
        if now == before:
            break
        before = now
    if before is None:
        return None, _UNKNOWN_SLOTS
    executors, slots = before
    return executors, max(executors, slots)


def _spark(settings: SparkSettings, session: Any) -> AbstractContextManager[Spark]:
    if session is not None:
        from floodmark.spark.attached_session import attached_spark

        return attached_spark(session, allow_insecure=settings.allow_insecure)
    return spark_session(
        master=settings.master,
        remote=settings.remote,
        memory=settings.memory,
        options=settings.options,
        log_file=os.devnull,
        allow_insecure=settings.allow_insecure,
        fast_start=settings.fast_start == "auto",
    )


def _answer(_: int) -> str:
    import connectorx  # noqa: F401 - what a worker reads with

    from floodmark import __version__ as version

    return version


def _located(work: Callable[[], str]) -> str:
    began = time.monotonic()
    text = work()
    time.sleep(max(0.0, began + _TASK_SECONDS - time.monotonic()))
    # Spark forks the Python workers of an executor from one process.
    return msgspec.json.encode(Answer(socket.gethostname(), os.getppid(), text)).decode()
