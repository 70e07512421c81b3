"""Starting and stopping Spark."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from floodmark.engine.archive import find_archive
from floodmark.engine.java import StartingJava, find_java, is_plain, runs_already
from floodmark.engine.security import check_cluster, check_server
from floodmark.engine.tasks import Spark
from floodmark.errors import FloodmarkError

if TYPE_CHECKING:
    from floodmark.engine.classic import ClassicSpark

LOCAL_MASTER = "local[*,4]"
_LOOPBACK = "127.0.0.1"
_DRIVER_MEMORY = "1g"  # as Spark has it
# connectorx makes a string of each text it reads, and unless told to, a thread keeps no more than
# seven of a size ready. It starts threads anew for each window; with an arena each, and blocks that
# are large among small ones, memory would creep up from window to window.
# Of Arrow's allocators, jemalloc keeps the least for later.
_ALLOCATION = {
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=512:glibc.malloc.arena_max=2"
    ":glibc.malloc.mmap_threshold=4194304:glibc.malloc.trim_threshold=4194304",
    "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
}
_LONGEST_FOLDER = 60  # a socket's name has 42 characters more, and its path at most 103
# No rows ever pass through it, and nobody watches its loggers.
_SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.disable.jmx=true"
# It takes a quarter of a second to make ready to log.
_SILENT_JAVA = f"{_SMALL_JAVA} -Dslf4j.provider=org.slf4j.helpers.NOP_FallbackServiceProvider"


@contextmanager
def spark_session(
    *,
    master: str = LOCAL_MASTER,
    remote: str | None = None,
    memory: str | None = None,
    options: Mapping[str, str] | None = None,
    log_file: str | None = None,
    name: str = "floodmark",
    allow_insecure: bool = False,
) -> Iterator[Spark]:
    """Run Spark: on this machine, on a cluster (`master`), or one that runs already (`remote`).

    `options` are Spark's own and win over ours. What Java and the workers write to stderr goes to
    `log_file`, if there is one. FloodmarkError if others could read what passes through it, unless
    `allow_insecure`.
    """
    options = options or {}
    if remote := options.get("spark.remote", remote):
        from floodmark.engine.connected import connected_spark

        if not allow_insecure:
            check_server(remote)
        with connected_spark(remote, options, name) as connected:
            yield connected
    else:
        master = options.get("spark.master", master)
        with _own(master, memory, options, log_file, name) as own:
            if not allow_insecure and not _is_one_process(master):
                check_cluster(own.option)
            yield own


@contextmanager
def _own(
    master: str, memory: str | None, options: Mapping[str, str], log_file: str | None, name: str
) -> Iterator["ClassicSpark"]:
    """Spark in a Java of our own; PySpark is imported while that starts."""
    environment = dict(os.environ)
    java = find_java(environment)
    if java is None:
        raise FloodmarkError(
            "Spark needs Java, and there is none",
            hint="install Java 17 (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME",
        )
    local = _is_local(master)
    archive = find_archive(java, environment) if local and not runs_already() else None
    silent = local and log_file == os.devnull
    java_options = (_SILENT_JAVA if silent else _SMALL_JAVA).split()
    java_options += archive.options.split() if archive else []
    settings = _settings(memory, java_options, local=local, silent=silent)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    plain = not options and is_plain(environment)
    with (
        _opened(log_file) as log,
        TemporaryDirectory(prefix="floodmark-", ignore_cleanup_errors=True) as folder,
    ):
        if local:
            settings |= _talking_through(folder)
        if _is_one_process(master):
            # Spark makes up a secret: without it, every user of this machine could fetch the job.
            settings["spark.authenticate"] = "true"
        starting = None
        if plain and archive and archive.words:
            words = (*archive.words, *java_options, f"-Xmx{memory or _DRIVER_MEMORY}")
            starting = StartingJava(java, words, log)
        from floodmark.engine.classic import classic_spark

        settings |= {**options, "spark.app.name": name, "spark.master": master}
        with classic_spark(
            settings, starting, archive, plain=plain, folder=folder, log=log
        ) as spark:
            yield spark


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _is_one_process(master: str) -> bool:
    return _is_local(master) and not master.startswith("local-cluster")


def _settings(
    memory: str | None, java_options: list[str], *, local: bool, silent: bool
) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "floodmark.engine.daemon",
        # A session may run for days, and nobody looks back at what it did.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "10",
    }
    settings |= {
        f"spark.executorEnv.{name}": value
        for name, value in _ALLOCATION.items()
        if name not in os.environ
    }
    if memory:
        settings["spark.driver.memory" if local else "spark.executor.memory"] = memory
    if not silent:  # to be told so, the one that does not log would begin to
        settings["spark.log.level"] = "ERROR"
    if local:
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = _LOOPBACK
        settings["spark.driver.defaultJavaOptions"] = " ".join(java_options)
    return settings


def _talking_through(folder: str) -> dict[str, str]:
    """Have Java and its workers talk through files that only we can open, if their names permit.

    On TCP each of their small packets waits for the one before it to be acknowledged.
    """
    if len(folder) > _LONGEST_FOLDER or not folder.isascii():
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": folder,
    }


@contextmanager
def _opened(path: str | None) -> Iterator[int | None]:
    """Open a log for what others write; None if they are to write where we do."""
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
