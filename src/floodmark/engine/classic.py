"""Spark in this process's own Java, on this machine or as the driver of a cluster.

Only Spark's core is started. Tasks need neither its SQL nor its Arrow, and these would double the
time and the memory of a start.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from floodmark.engine.tasks import Progress, SparkFailure

_POLL_SECONDS = 0.5
_WORKERS_WORDS = "Traceback (most recent call last):"
_JAVAS_WORDS = "\n\tat "


class ClassicSpark:
    """Runs tasks as the partitions of an RDD."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def run(
        self, title: str, task: Callable[[int], str], tasks: int, progress: Progress | None
    ) -> list[str]:
        """Run tasks, one a partition."""
        context = self._context
        group = f"{title} {token_hex(4)}"
        context.setJobGroup(group, title, interruptOnCancel=True)
        try:
            with _watched(context, group, progress):
                return context.parallelize(range(tasks), tasks).map(task).collect()
        except BaseException as error:
            context.cancelJobGroup(group)
            if isinstance(error, Py4JJavaError):
                raise SparkFailure(reason(error)) from error
            raise
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    def is_alive(self) -> bool:
        """Whether its Java answers, and has not stopped Spark."""
        try:
            return not self._context._jsc.sc().isStopped()  # noqa: SLF001
        except Exception:  # noqa: BLE001 - whatever is wrong, it does not answer
            return False


def reason(error: Py4JJavaError) -> str:
    """The last line of a worker's traceback, the first of anything else."""
    message = str(error.java_exception.getMessage() or error.java_exception)
    words, _, _ = message.partition(_JAVAS_WORDS)
    lines = [line for line in words.splitlines() if line.strip()]
    return lines[-1 if _WORKERS_WORDS in words else 0]


@contextmanager
def _watched(context: SparkContext, group: str, progress: Progress | None) -> Iterator[None]:
    if progress is None:
        yield
        return
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(context, group, progress, over), daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def _watch(context: SparkContext, group: str, progress: Progress, over: threading.Event) -> None:
    with suppress(Exception):  # Spark may be stopped meanwhile; whoever waits for it hears why
        tracker = context.statusTracker()
        while not over.wait(_POLL_SECONDS):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            progress(sum(stage.numCompletedTasks for stage in stages if stage))
