"""Start and stop Spark."""

import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError, UsageError
from floodmark.spark.fast_start import fast_start as prepare_fast_start
from floodmark.spark.jvm_launcher import find_java
from floodmark.spark.pyspark_internals import has_context
from floodmark.spark.runner import Spark
from floodmark.spark.security import check_cluster, check_server
from floodmark.spark.user_settings import LOCAL_MASTER, is_local, is_submitted, user_settings
from floodmark.spark.worker_memory import ALLOCATION, overhead_for_workers

if TYPE_CHECKING:
    from floodmark.spark.rdd_runner import ClassicSpark

_LOOPBACK = "127.0.0.1"
_STANDALONE = "spark://"
_MASTER_SECONDS = 10.0
_PYTHON = "spark.pyspark.python"

# Python would write a large task to a file that stays until Spark ends, with its passwords.
_SHARED = {
    "spark.scheduler.mode": "FAIR",
    "spark.broadcast.UDFCompressionThreshold": str(1 << 30),
}


@contextmanager
def spark_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    memory: str | None = None,
    options: Mapping[str, str] | None = None,
    log_file: str | None = None,
    name: str = "floodmark",
    allow_insecure: bool = False,
    fast_start: bool = True,
    shared: bool = False,
    window_mb: int = 64,
    launched: Callable[[], None] = lambda: None,
) -> Iterator[Spark]:
    """Run Spark: locally, on a cluster (`master`), or on a running server (`remote`).

    Without `master`, the one of `spark-submit` or `spark-defaults.conf`, else local. `options` are
    Spark's own; they override those of the user, which override ours. The stderr of Java and the
    workers goes to `log_file`, if there is one. FloodmarkError if its connections are insecure,
    unless `allow_insecure`. Without `fast_start`, PySpark starts a local Spark its own way. If it
    is `shared`, each pool of jobs gets a share of the slots. Without `memory`, executors of a
    cluster get what their workers need for windows of `window_mb`.
    """
    options = options or {}
    if remote := options.get("spark.remote", remote):
        from floodmark.spark.connect_runner import connected_spark

        launched()
        if not allow_insecure:
            check_server(remote)
        with connected_spark(remote, options, name) as connected:
            yield connected
    else:
        user = user_settings(os.environ)
        master = options.get("spark.master", master) or user.get("spark.master", LOCAL_MASTER)
        fast = fast_start and is_local(master) and not is_submitted(os.environ)
        if memory is None and not is_local(master):
            theirs = {**user, **options, "spark.master": master}
            memory = overhead_for_workers(theirs, window_mb)
        with _own(
            master, memory, user, options, log_file, name, launched, fast=fast, shared=shared
        ) as own:
            if not allow_insecure and not _is_one_process(master):
                check_cluster(own.option)
            yield own


@contextmanager
def _own(
    master: str,
    memory: str | None,
    user: Mapping[str, str],
    options: Mapping[str, str],
    log_file: str | None,
    name: str,
    launched: Callable[[], None],
    *,
    fast: bool,
    shared: bool,
) -> Iterator["ClassicSpark"]:
    """Run Spark in our own JVM; import PySpark while it starts."""
    _refuse_absent(master)
    environment = dict(os.environ)
    java = find_java(environment)
    if java is None:
        install = "install Java 17 (Debian: apt install openjdk-17-jre-headless)"
        if home := environment.get("JAVA_HOME"):
            raise FloodmarkError(
                f"Spark needs Java, but JAVA_HOME has none: {home}/bin/java is not a program",
                hint=f"correct or unset JAVA_HOME, or {install}",
            )
        raise FloodmarkError(
            "Spark needs Java, but none was found", hint=f"{install}, or set JAVA_HOME"
        )
    if has_context():
        # A job in that session would lack our settings, and stopping ours would stop theirs.
        raise UsageError(
            "Spark already runs in this process, started by another project or by your own code",
            hint="pass your session: open_project(path, spark=spark); or close the other project",
        )
    silent = fast and log_file == os.devnull
    settings = _settings(memory, local=is_local(master), silent=silent)
    if shared:
        settings |= _SHARED
    if _is_one_process(master):
        # Spark generates a secret: without it, every user of this machine could fetch the job.
        settings["spark.authenticate"] = "true"
    if python := options.get(_PYTHON, user.get(_PYTHON)):
        os.environ["PYSPARK_PYTHON"] = python  # only spark-submit reads this setting
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    with _opened(log_file) as log, ExitStack() as stack:
        start = java_process = None
        faster: dict[str, str] = {}
        if fast:
            start = stack.enter_context(
                prepare_fast_start(java, environment, plain=not (options or user))
            )
            faster = start.settings(silent=silent)
            java_process = start.launch(memory, log, silent=silent)
        launched()
        from floodmark.spark.rdd_runner import classic_spark

        if start and java_process:  # while it starts; before, it would only slow down our imports
            stack.enter_context(start.daemon(log))
        settings["spark.app.name"] = name
        settings, faster = (
            {name: value for name, value in ours.items() if name not in user}
            | {**options, "spark.master": master}
            for ours in (settings, settings | faster)
        )
        with classic_spark(settings, start, java_process, faster=faster, log=log) as spark:
            yield spark


def _refuse_absent(master: str) -> None:
    """Raise FloodmarkError if no master of a standalone cluster accepts a connection.

    Spark would try for a minute, stop itself, and fail jobs without the reason.
    """
    if not master.startswith(_STANDALONE):
        return
    reason = ""
    for place in master.removeprefix(_STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal():
            return  # Spark refuses it
        try:
            socket.create_connection((host.strip("[]"), int(port)), _MASTER_SECONDS).close()
        except OSError as error:
            reason = f"{place}: {error.strerror or error}"
        else:
            return
    raise FloodmarkError(
        f"no Spark master answers at {master} ({reason})",
        hint="check 'spark.master', and that the master is running",
    )


def _is_one_process(master: str) -> bool:
    return is_local(master) and not master.startswith("local-cluster")


def _settings(memory: str | None, *, local: bool, silent: bool) -> dict[str, str]:
    settings = {"spark.ui.showConsoleProgress": "false"}
    settings |= {
        f"spark.executorEnv.{name}": value
        for name, value in ALLOCATION.items()
        if name not in os.environ
    }
    if memory:
        # No row passes through an executor's JVM: its Python workers need the memory.
        settings["spark.driver.memory" if local else "spark.executor.memoryOverhead"] = memory
    return settings | _local_settings(silent=silent) if local else settings


def _local_settings(*, silent: bool) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        # A session may run for days; keep no history of its jobs.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "10",
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
    }
    if not silent:  # setting a level would initialise logging
        settings["spark.log.level"] = "ERROR"
    return settings


@contextmanager
def _opened(path: str | None) -> Iterator[int | None]:
    """Open a log for Spark's stderr; None to inherit ours."""
    if path is None:
        yield None
        return
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise FloodmarkError(f"cannot write Spark's log to {path}: {error.strerror}") from error
    try:
        yield log
    finally:
        os.close(log)
