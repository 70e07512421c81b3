"""Run tasks with a SparkContext in our own JVM, local or as the driver of a cluster.

Only Spark's core is started. Tasks need neither Spark SQL nor its Arrow support, which would double
start time and memory.
"""

import logging
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from floodmark.spark.fast_start import FastStart
from floodmark.spark.jvm_launcher import StartingJava
from floodmark.spark.pyspark_internals import (
    executors_of,
    forget_jvm,
    gateway_of,
    has_jvm,
    launch_jvm,
    process_of,
    remember_classes,
    silence_accumulators,
    stop_quickly,
)
from floodmark.spark.runner import (
    Progress,
    SparkFailure,
    cannot_start,
    run_partition,
    task_error,
    tries_of,
)

if TYPE_CHECKING:
    from pyspark import RDD

_ARCHIVING_SECONDS = 60.0
_ENDING_SECONDS = 5.0
_POLL_SECONDS = 0.5

_LOG = logging.getLogger(__name__)


@contextmanager
def classic_spark(
    settings: Mapping[str, str],
    start: FastStart | None,
    launched: StartingJava | None,
    *,
    faster: Mapping[str, str],
    log: int | None,
) -> Iterator["ClassicSpark"]:
    """Start Spark in a JVM that was launched already, or that PySpark launches; and stop it.

    With a fast `start`, it gets the settings `faster`, and its JVM prepares the next start. If that
    fails, PySpark starts Spark its own way. The stderr of the JVM and the workers goes to `log`.
    """
    context = _started_fast(faster, start, launched, log) if start else None
    if context is None:
        context = _started_by_pyspark(settings, log)
        if start:
            start.forget()
            start = None
    gateway = gateway_of(context)
    if start and gateway:
        start.remove_folder_with_jvm(gateway)
    silence_accumulators(context)
    remember_classes(context)
    spark = ClassicSpark(context)
    try:
        yield spark
    finally:
        _stop(context, start, only_core=not spark.has_sql)


def _started_fast(
    settings: Mapping[str, str], start: FastStart, launched: StartingJava | None, log: int | None
) -> SparkContext | None:
    """Start Spark; None if that fails, after which nothing of it is left."""
    try:
        return _started(settings, launched, log)
    except Exception:  # noqa: BLE001 - whatever is wrong, PySpark can still start Spark
        _LOG.warning("a fast start failed; PySpark starts Spark", exc_info=True)
        start.finish([], exited=False, archiving=start.is_archiving)
        return None


def _started_by_pyspark(settings: Mapping[str, str], log: int | None) -> SparkContext:
    try:
        return _started(settings, None, log)
    except (Py4JError, PySparkException, OSError) as error:
        raise cannot_start(str(error).strip() or type(error).__name__) from error


def _started(
    settings: Mapping[str, str], launched: StartingJava | None, log: int | None
) -> SparkContext:
    """Start Spark in the JVM that PySpark has, or in a new one, which ends if that fails."""
    gateway = None
    try:
        if not has_jvm():
            gateway = (launched.reach() if launched else None) or launch_jvm(settings, log)
        with _keeping_sigint():
            return _context(settings, gateway)
    except BaseException:
        if process := process_of(gateway):
            forget_jvm()
            with process:  # closes its stdin, and waits
                process.kill()
        raise


def _context(settings: Mapping[str, str], gateway: Any) -> SparkContext:
    try:
        return SparkContext(conf=SparkConf().setAll(list(settings.items())), gateway=gateway)
    except Py4JJavaError as error:
        why = reason(error)  # the exception is in the JVM, which ends now
        raise cannot_start(why) from None


@contextmanager
def _keeping_sigint() -> Iterator[None]:
    """Restore the Ctrl-C handler that PySpark replaces in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class ClassicSpark:
    """Runs tasks as the partitions of an RDD."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._groups: set[str] = set()
        self._empty: dict[int, RDD[Any]] = {}
        self.has_sql = False

    def run(
        self,
        title: str,
        task: Callable[[int], str],
        tasks: int,
        progress: Progress | None,
        *,
        group: str | None = None,
        pool: str | None = None,
    ) -> list[str]:
        """Run tasks, one per partition. `group` cancels them; a `pool` gets its share of slots."""
        context = self._context
        group = group or f"{title} {token_hex(4)}"
        self._groups.add(group)
        context.setJobGroup(group, title, interruptOnCancel=True)
        if pool:
            context.setLocalProperty("spark.scheduler.pool", pool)
        try:
            with _watched(context, group, progress):
                work = partial(run_partition, task)
                return self._partitions(tasks).mapPartitionsWithIndex(work).collect()
        except BaseException as error:
            with suppress(Exception):  # Spark may have stopped, and `error` says why
                context.cancelJobGroup(group)
            if isinstance(error, Py4JJavaError | PySparkException):
                raise SparkFailure(reason(error)) from error
            raise
        finally:
            self._groups.discard(group)
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    def _partitions(self, number: int) -> "RDD[Any]":
        """Return an RDD of so many empty partitions, which all jobs of this size share."""
        if number not in self._empty:
            self._empty[number] = self._context.parallelize([], number)
        return self._empty[number]

    def sql_session(self) -> Any:
        """Return a session with Spark SQL, which is not loaded before."""
        from pyspark.sql import SparkSession

        self.has_sql = True
        return SparkSession(self._context)

    def cancel(self, group: str | None = None) -> None:
        """Cancel our running tasks, of one group or of all, but no others of the same session."""
        for name in [group] if group else list(self._groups):
            self._context.cancelJobGroup(name)

    def cancel_titled(self, title: str) -> None:
        """Cancel our running tasks of one title."""
        for group in list(self._groups):
            if group.rpartition(" ")[0] == title:
                self.cancel(group)

    def option(self, name: str) -> str | None:
        """Return the effective value of an option."""
        return self._options.get(name)

    @cached_property
    def _options(self) -> dict[str, str]:
        """The options of the context, which do not change; reading them takes a hundred calls."""
        return dict(self._context.getConf().getAll())

    @property
    def master(self) -> str:
        """Return the master that Spark runs with."""
        return str(self._context.master)

    @property
    def tries(self) -> int:
        """Return how often Spark tries a task."""
        return tries_of(self._context.master, self.option("spark.task.maxFailures"))

    def executors(self) -> tuple[int, int] | None:
        """Return how many executors have joined, and how many tasks they run at once.

        None if Spark does not report it.
        """
        known = executors_of(self._context)
        return None if known is None else (known, self.slots())

    def slots(self) -> int:
        """Return the cores of all executors that have joined, or what the user set for Spark."""
        return self._context.defaultParallelism

    def is_alive(self) -> bool:
        """Whether the JVM answers, and Spark is not stopped."""
        try:
            return self.slots() >= 0  # refused by a Spark that is stopped
        except Exception:  # noqa: BLE001 - whatever is wrong, it does not answer
            return False


def reason(error: Py4JJavaError | PySparkException) -> str:
    """Return a task's exception, or the first line of any other error.

    PySpark translates Java's exceptions in a process that has a SparkSession.
    """
    if isinstance(error, PySparkException):
        return task_error(str(error).strip() or type(error).__name__)
    return task_error(str(error.java_exception.getMessage() or error.java_exception))


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
    with suppress(Exception):  # if Spark was stopped, the waiting caller gets the error
        tracker = None
        while not over.wait(_POLL_SECONDS):
            tracker = tracker or context.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            progress(sum(stage.numCompletedTasks for stage in stages if stage))


def _stop(context: SparkContext, start: FastStart | None, *, only_core: bool) -> None:
    """Stop Spark and its JVM, so that a later start is a fresh one.

    An archive of the classes of Spark SQL would take a minute to write, and slow down later starts.
    """
    gateway = gateway_of(context)
    process = process_of(gateway)
    if gateway is None or process is None:
        context.stop()
        return  # the JVM is not ours
    args: list[str] = []
    archiving = start is not None and start.is_archiving
    with suppress(Exception):  # the JVM may be gone
        args = start.jvm_args(gateway) if start else []
    with suppress(Exception):
        stop_quickly(context) if start else context.stop()
    with suppress(Exception):
        gateway.shutdown()
    if process.stdin:
        process.stdin.close()
    forget_jvm()
    if archiving and not only_core:
        process.kill()
    try:
        process.wait(_ARCHIVING_SECONDS if archiving else _ENDING_SECONDS)
        exited = process.returncode >= 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        exited = False
    if start:
        start.finish(args, exited=exited, archiving=archiving)
