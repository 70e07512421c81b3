"""Run tasks with a SparkContext in our own JVM, local or as the driver of a cluster.

Only Spark's core is started. Tasks need neither Spark SQL nor its Arrow support, which would double
start time and memory.
"""

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from floodmark.spark.fast_start import FastStart
from floodmark.spark.jvm_launcher import StartingJava
from floodmark.spark.runner import Progress, SparkFailure, cannot_start, task_error, tries_of
from floodmark.spark.security import is_secret

_ARCHIVING_SECONDS = 60.0
_ENDING_SECONDS = 5.0
_POLL_SECONDS = 0.5


@contextmanager
def classic_spark(
    settings: Mapping[str, str],
    start: FastStart | None,
    launched: StartingJava | None,
    *,
    log: int | None,
) -> Iterator["ClassicSpark"]:
    """Start Spark in a JVM that was launched already, or that PySpark launches; and stop it.

    With a fast `start`, its JVM prepares the next start. The stderr of the JVM and the workers goes
    to `log`.
    """
    try:
        gateway = SparkContext._gateway  # noqa: SLF001
        if gateway is None:
            gateway = (launched.reach() if launched else None) or _launch(settings, log)
            SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm  # noqa: SLF001
        with _keeping_sigint():
            context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    except Py4JJavaError as error:
        raise cannot_start(reason(error)) from error
    except (Py4JError, PySparkException, OSError) as error:
        raise cannot_start(str(error).strip() or type(error).__name__) from error
    if start:
        start.remove_folder_with_jvm(gateway)
    with suppress(AttributeError):
        # It would log a traceback when the JVM dies, which is reported as an error anyway.
        context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # noqa: SLF001
    spark = ClassicSpark(context)
    try:
        yield spark
    finally:
        _stop(context, start, only_core=not spark.has_sql)


def _launch(settings: Mapping[str, str], log: int | None) -> JavaGateway:
    # Settings become a command line, which every user of this machine can read.
    shown = {name: value for name, value in settings.items() if not is_secret(name)}
    conf = SparkConf().setAll(list(shown.items()))
    return launch_gateway(conf, {"stderr": log})  # type: ignore[no-untyped-call]


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
        """Run tasks, one a partition. `group` cancels them; a `pool` gets its share of slots."""
        context = self._context
        group = group or f"{title} {token_hex(4)}"
        self._groups.add(group)
        context.setJobGroup(group, title, interruptOnCancel=True)
        if pool:
            context.setLocalProperty("spark.scheduler.pool", pool)
        try:
            with _watched(context, group, progress):
                return context.parallelize(range(tasks), tasks).map(task).collect()
        except BaseException as error:
            context.cancelJobGroup(group)
            if isinstance(error, Py4JJavaError):
                raise SparkFailure(reason(error)) from error
            raise
        finally:
            self._groups.discard(group)
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

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
        return self._context.getConf().get(name)

    @property
    def master(self) -> str:
        """Return the master that Spark runs with."""
        return str(self._context.master)

    @property
    def tries(self) -> int:
        """Return how often Spark tries a task."""
        return tries_of(self._context.master, self.option("spark.task.maxFailures"))

    def executors(self) -> tuple[int, int] | None:
        """Return how many executors have joined, and how many tasks they run at once."""
        known = self._context._jsc.sc().getExecutorMemoryStatus().size()  # noqa: SLF001
        return known - 1, self.slots()  # the driver is one of them

    def slots(self) -> int:
        """Return the cores of all executors that have joined, or what the user set for Spark."""
        return self._context.defaultParallelism

    def is_alive(self) -> bool:
        """Whether the JVM answers, and Spark is not stopped."""
        try:
            return not self._context._jsc.sc().isStopped()  # noqa: SLF001
        except Exception:  # noqa: BLE001 - whatever is wrong, it does not answer
            return False


def reason(error: Py4JJavaError) -> str:
    """Return a task's exception, or the first line of any other error."""
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
        tracker = context.statusTracker()
        while not over.wait(_POLL_SECONDS):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            progress(sum(stage.numCompletedTasks for stage in stages if stage))


def _stop(context: SparkContext, start: FastStart | None, *, only_core: bool) -> None:
    """Stop Spark and its JVM, so that a later start is a fresh one.

    An archive of the classes of Spark SQL would take a minute to write, and slow down later starts.
    """
    gateway = SparkContext._gateway  # noqa: SLF001
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None or process.stdin is None:
        context.stop()
        return  # the JVM is not ours
    args: list[str] = []
    archiving = start is not None and start.is_archiving
    with suppress(Exception):  # the JVM may be gone
        args = start.jvm_args(gateway) if start else []
    _stop_context(context, fast=start is not None)
    with suppress(Exception):
        gateway.shutdown()
    process.stdin.close()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
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


def _stop_context(context: SparkContext, *, fast: bool) -> None:
    with suppress(Exception):
        if not fast:
            context.stop()
            return
        context._jsc.stop()  # noqa: SLF001
        # PySpark would wait up to a second for the server that collects accumulators.
        threading.Thread(target=_close_accumulators, args=[context], daemon=True).start()


def _close_accumulators(context: SparkContext) -> None:
    with suppress(OSError):  # its socket may be gone already
        context._accumulatorServer.shutdown()  # noqa: SLF001
