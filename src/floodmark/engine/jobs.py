"""Spark jobs that belong together: watched while they run, and cancelled when we are."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import TYPE_CHECKING

from pyspark.sql.utils import is_remote

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.5


@contextmanager
def run_together(
    spark: "SparkSession", name: str, progress: Callable[[int], None] | None = None
) -> Iterator[None]:
    """Give what this thread runs a name; leaving by an exception cancels what still runs.

    `progress` hears the number of tasks done, now and then. Spark Connect does not tell it.
    """
    if is_remote():
        with _tagged(spark, name):
            yield
        return
    context = spark.sparkContext
    group = f"{name} {token_hex(4)}"
    context.setJobGroup(group, name, interruptOnCancel=True)
    try:
        with _watched(context, group, progress):
            yield
    except BaseException:
        context.cancelJobGroup(group)
        raise
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


@contextmanager
def _tagged(spark: "SparkSession", name: str) -> Iterator[None]:
    tag = f"{name} {token_hex(4)}".replace(",", "_")
    spark.addTag(tag)
    try:
        yield
    except BaseException:
        spark.interruptTag(tag)
        raise
    finally:
        spark.removeTag(tag)


@contextmanager
def _watched(
    context: "SparkContext", group: str, progress: Callable[[int], None] | None
) -> Iterator[None]:
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


def _watch(
    context: "SparkContext", group: str, progress: Callable[[int], None], over: threading.Event
) -> None:
    with suppress(Exception):  # Spark may be stopped meanwhile; whoever waits for it hears why
        tracker = context.statusTracker()
        while not over.wait(_POLL_SECONDS):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            progress(sum(stage.numCompletedTasks for stage in stages if stage))
