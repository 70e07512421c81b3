"""Starting and stopping Spark."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit
from warnings import catch_warnings, simplefilter

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from floodmark.engine.archive import ClassArchive, find_archive, find_java
from floodmark.errors import FloodmarkError

LOCAL_MASTER = "local[*,4]"
_LOOPBACK = "127.0.0.1"
_MEMORIES = (
    "spark.ui.retainedJobs",
    "spark.ui.retainedStages",
    "spark.ui.retainedTasks",
    "spark.sql.ui.retainedExecutions",
)
_SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # no rows ever pass through it
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
) -> Iterator[SparkSession]:
    """Run Spark: on this machine, on a cluster (`master`), or one that runs already (`remote`).

    `options` are Spark's own and win over ours. What Java and the workers write to stderr goes to
    `log_file`, if there is one.
    """
    if remote:
        _check_answers(remote)
        spark = _start(SparkSession.builder.appName(name).remote(remote), options or {})
        try:
            yield spark
        finally:
            spark.stop()
        return
    environment = dict(os.environ)
    java = find_java(environment)
    if java is None:
        raise FloodmarkError(
            "Spark needs Java, and there is none",
            hint="install Java 17 (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME",
        )
    local = master.startswith("local")
    archive = find_archive(java, environment) if local and not SparkContext._gateway else None  # noqa: SLF001
    settings = _settings(local, memory, archive) | dict(options or {})
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    with _stderr_to(log_file):
        spark = _start(SparkSession.builder.appName(name).master(master), settings)
    # It would write a traceback when Java dies, which whoever waits for Spark hears of anyway.
    spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # noqa: SLF001
    try:
        yield spark
    finally:
        _stop(spark, archive)


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
        # The one query there is needs no compiler; without it the first job starts a second sooner.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        # A session may run for days, and nobody looks back at what it did.
        **dict.fromkeys(_MEMORIES, "10"),
    }
    if memory:
        settings["spark.driver.memory" if local else "spark.executor.memory"] = memory
    if local:
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = _LOOPBACK
        java = " ".join(filter(None, (_SMALL_JAVA, archive.options if archive else "")))
        settings["spark.driver.defaultJavaOptions"] = java
    return settings


def _start(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FloodmarkError(
            f"Spark does not start: {reason}", hint="check the settings under 'spark:'"
        ) from error


def is_alive(spark: SparkSession) -> bool:
    """Whether Spark can still run anything: it ends with its Java, or by itself."""
    try:
        if is_remote():
            return not spark.is_stopped  # type: ignore[attr-defined]
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001
    except Exception:  # noqa: BLE001 - whatever is wrong, it does not answer
        return False


def _stop(spark: SparkSession, archive: ClassArchive | None) -> None:
    """Stop Spark and end its Java, so that a later start begins from nothing."""
    with catch_warnings(), suppress(Exception):  # a Java that is gone cannot be stopped in order
        simplefilter("ignore")
        spark.stop()
    gateway = SparkContext._gateway  # noqa: SLF001
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None or process.stdin is None:
        return  # it is not ours
    with suppress(Exception):
        gateway.shutdown()
    process.stdin.close()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001
    archiving = archive is not None and not archive.exists
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
