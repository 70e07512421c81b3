"""Spark in this process's own Java, on this machine or as the driver of a cluster.

Only Spark's core is started. Tasks need neither its SQL nor its Arrow, and these would double the
time and the memory of a start.
"""

import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from secrets import token_hex

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from floodmark.engine.archive import ClassArchive
from floodmark.engine.java import StartingJava, words_of
from floodmark.engine.security import is_secret
from floodmark.engine.tasks import Progress, SparkFailure, cannot_start

_ARCHIVING_SECONDS = 60.0
_ENDING_SECONDS = 5.0
_POLL_SECONDS = 0.5
_WORKERS_WORDS = "Traceback (most recent call last):"
_JAVAS_WORDS = "\n\tat "


@contextmanager
def classic_spark(
    settings: Mapping[str, str],
    starting: StartingJava | None,
    archive: ClassArchive | None,
    *,
    plain: bool,
    folder: str,
    log: int | None,
) -> Iterator["ClassicSpark"]:
    """Start Spark in a Java that is already starting, or in one that PySpark starts; and stop it.

    If no `archive` of classes is there yet, its Java leaves one; and if it was started in a `plain`
    way, the words for that. The temporary `folder` goes with Java, at the latest. What Java and the
    workers write to stderr goes to `log`.
    """
    wanted = SparkConf().setAll(list(settings.items()))
    try:
        gateway = SparkContext._gateway  # noqa: SLF001
        if gateway is None:
            gateway = starting.reach() if starting else None
            if gateway is None:
                # It becomes a command line, which everybody on this machine can read.
                shown = {name: value for name, value in settings.items() if not is_secret(name)}
                conf = SparkConf().setAll(list(shown.items()))
                gateway = launch_gateway(conf, {"stderr": log})  # type: ignore[no-untyped-call]
            SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm  # noqa: SLF001
        context = SparkContext.getOrCreate(wanted)
    except Py4JJavaError as error:
        raise cannot_start(reason(error)) from error
    except (Py4JError, PySparkException, OSError) as error:
        raise cannot_start(str(error).strip() or type(error).__name__) from error
    with suppress(Py4JError):  # if we are killed, Java still ends in order
        hooks = gateway.jvm.org.apache.spark.util.ShutdownHookManager
        hooks.registerShutdownDeleteDir(gateway.jvm.java.io.File(folder))
    # It would write a traceback when Java dies, which whoever waits for Spark hears of anyway.
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # noqa: SLF001
    try:
        yield ClassicSpark(context)
    finally:
        _stop(context, archive, plain=plain)


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

    def option(self, name: str) -> str | None:
        """The value of an option that is in force."""
        return self._context.getConf().get(name)

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


def _close_accumulators(context: SparkContext) -> None:
    with suppress(OSError):  # its socket may be gone already
        context._accumulatorServer.shutdown()  # noqa: SLF001


def _stop(context: SparkContext, archive: ClassArchive | None, *, plain: bool) -> None:
    """Stop Spark and end its Java, so that a later start begins from nothing."""
    gateway = SparkContext._gateway  # noqa: SLF001
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None or process.stdin is None:
        context.stop()
        return  # its Java is not ours
    archiving = archive is not None and not archive.exists
    words: list[str] = []
    with suppress(Exception):  # a Java that is gone cannot be stopped in order
        words = words_of(gateway) if plain and archive and archive.words is None else []
        context._jsc.stop()  # noqa: SLF001
    with suppress(Exception):
        gateway.shutdown()
    process.stdin.close()
    # It would have us wait for a second, until it looks whether anything came.
    threading.Thread(target=_close_accumulators, args=[context], daemon=True).start()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    try:
        process.wait(_ARCHIVING_SECONDS if archiving else _ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        if archive and archiving:
            archive.discard()
    else:
        if archive and archiving:  # it is written when Java ends
            archive.keep()
        if archive and words:
            archive.note(words)
