"""Starting and stopping Spark."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TypeVar
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from floodmark.engine.archive import ClassArchive, find_archive
from floodmark.engine.classic import ClassicSpark, reason
from floodmark.engine.java import find_java, is_plain, start_java, words_of
from floodmark.engine.tasks import Spark
from floodmark.errors import FloodmarkError

Started = TypeVar("Started")

LOCAL_MASTER = "local[*,4]"
_LOOPBACK = "127.0.0.1"
_DRIVER_MEMORY = "1g"  # as Spark has it
# No rows ever pass through it, and nobody watches its loggers.
_SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.disable.jmx=true"
_ARCHIVING_SECONDS = 60.0
_CONNECT_PORT = 15002
_ANSWER_SECONDS = 10.0
_ENDING_SECONDS = 5.0


@contextmanager
def spark_session(
    *,
    master: str = LOCAL_MASTER,
    remote: str | None = None,
    memory: str | None = None,
    options: Mapping[str, str] | None = None,
    log_file: str | None = None,
    name: str = "floodmark",
) -> Iterator[Spark]:
    """Run Spark: on this machine, on a cluster (`master`), or one that runs already (`remote`).

    `options` are Spark's own and win over ours. What Java and the workers write to stderr goes to
    `log_file`, if there is one.
    """
    options = options or {}
    if remote := options.get("spark.remote", remote):
        with _connected(remote, options, name) as connected:
            yield connected
    else:
        with _classic(options.get("spark.master", master), memory, options, log_file, name) as own:
            yield own


@contextmanager
def _connected(remote: str, options: Mapping[str, str], name: str) -> Iterator[Spark]:
    from pyspark.sql import SparkSession

    from floodmark.engine.connected import ConnectedSpark

    _check_answers(remote)
    builder = SparkSession.builder.appName(name).remote(remote)
    for key, value in options.items():
        builder = builder.config(key, value)
    session = _start(builder.getOrCreate)
    try:
        yield ConnectedSpark(session)
    finally:
        session.stop()


@contextmanager
def _classic(
    master: str, memory: str | None, options: Mapping[str, str], log_file: str | None, name: str
) -> Iterator[Spark]:
    environment = dict(os.environ)
    java = find_java(environment)
    if java is None:
        raise FloodmarkError(
            "Spark needs Java, and there is none",
            hint="install Java 17 (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME",
        )
    local = master.startswith("local")
    archive = find_archive(java, environment) if local and not SparkContext._gateway else None  # noqa: SLF001
    settings = _settings(local, memory, archive) | dict(options)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    wanted = SparkConf().setAppName(name).setMaster(master).setAll(list(settings.items()))
    with _stderr_to(log_file):
        if archive and archive.words and not options and is_plain(environment):
            _start_quickly(java, archive, memory)
        context = _start(lambda: SparkContext.getOrCreate(wanted))
    # It would write a traceback when Java dies, which whoever waits for Spark hears of anyway.
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # noqa: SLF001
    try:
        yield ClassicSpark(context)
    finally:
        _stop(context, archive)


def _start_quickly(java: str, archive: ClassArchive, memory: str | None) -> None:
    """Start Java for PySpark to find, as it was started before; if it cannot, PySpark will."""
    words = [*(archive.words or ()), *_SMALL_JAVA.split(), *archive.options.split()]
    if gateway := start_java(java, [*words, f"-Xmx{memory or _DRIVER_MEMORY}"]):
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm  # noqa: SLF001


def _check_answers(remote: str) -> None:
    """Raise FloodmarkError if nobody answers there; PySpark would try again for ten minutes."""
    place = urlsplit(remote)
    if place.scheme != "sc":  # a server that starts with the client
        return
    try:
        address = (place.hostname or "", place.port or _CONNECT_PORT)
        socket.create_connection(address, _ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise FloodmarkError(
            f"Spark Connect at {place.hostname} does not answer: {error}",
            hint="check 'spark.remote', and that the server runs",
        ) from error


def _settings(local: bool, memory: str | None, archive: ClassArchive | None) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # connectorx starts threads anew for each window; with an arena each, memory would creep up.
        "spark.executorEnv.MALLOC_ARENA_MAX": "2",
        "spark.python.daemon.module": "floodmark.engine.daemon",
        # A session may run for days, and nobody looks back at what it did.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "10",
    }
    if memory:
        settings["spark.driver.memory" if local else "spark.executor.memory"] = memory
    if local:
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = _LOOPBACK
        java = " ".join(filter(None, (_SMALL_JAVA, archive.options if archive else "")))
        settings["spark.driver.defaultJavaOptions"] = java
    return settings


def _start(start: Callable[[], Started]) -> Started:
    try:
        return start()
    except (PySparkException, Py4JError) as error:
        raise FloodmarkError(
            f"Spark does not start: {_reason(error)}", hint="check the settings under 'spark:'"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return reason(error)
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _stop(context: SparkContext, archive: ClassArchive | None) -> None:
    """Stop Spark and end its Java, so that a later start begins from nothing."""
    gateway = SparkContext._gateway  # noqa: SLF001
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None or process.stdin is None:
        context.stop()
        return  # its Java is not ours
    archiving = archive is not None and not archive.exists
    words: list[str] = []
    with suppress(Exception):  # a Java that is gone cannot be stopped in order
        words = words_of(gateway) if archiving else []
        context._jsc.stop()  # noqa: SLF001
    with suppress(Exception):
        gateway.shutdown()
    process.stdin.close()
    # It would have us wait for a second, until it looks whether anything came.
    Thread(target=context._accumulatorServer.shutdown, daemon=True).start()  # noqa: SLF001
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
            archive.keep(words)


@contextmanager
def _stderr_to(path: str | None) -> Iterator[None]:
    """Let processes that are started meanwhile write their stderr to a file."""
    if path is None:
        yield
        return
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise FloodmarkError(f"cannot write Spark's log to {path}: {error.strerror}") from error
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(log)
