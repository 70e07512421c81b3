"""Start local Spark in half the time PySpark takes, by relying on details of PySpark and Java.

`spark: {fast_start: off}` turns all of it off. If Spark does not start for any reason (the JVM
exits, does not answer, rejects an option, or dies), PySpark starts it once more, without any of it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from floodmark.spark.class_archive import ClassArchive, find_archive
from floodmark.spark.daemon_handover import FOLDER, JAVAS, WAITING
from floodmark.spark.jvm_launcher import StartingJava, is_plain, jvm_args_of
from floodmark.spark.pyspark_internals import has_jvm
from floodmark.spark.worker_memory import ALLOCATION

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_DRIVER_MEMORY = "1g"  # Spark's own default
_LONGEST_FOLDER = 60  # a socket's name has 42 characters more, and its path at most 103
# No rows pass through the driver's JVM, and its loggers are not monitored.
_SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.disable.jmx=true"
# Logging takes a quarter of a second to initialise.
_SILENT_JAVA = f"{_SMALL_JAVA} -Dslf4j.provider=org.slf4j.helpers.NOP_FallbackServiceProvider"


class FastStart:
    """A fast start of a local Spark, which prepares the next one."""

    def __init__(self, java: str, environment: Mapping[str, str], folder: str, *, plain: bool):
        self._java = java
        self._folder = folder
        # With options of the user, spark-submit must compute the arguments.
        self._plain = plain and is_plain(environment)
        self._archive = None if has_jvm() else _archive(java, environment)

    def settings(self, *, silent: bool) -> dict[str, str]:
        """Return Spark settings that make it start sooner."""
        settings = {"spark.python.daemon.module": "floodmark.spark.worker_daemon"}
        settings[f"spark.executorEnv.{FOLDER}"] = self._folder
        settings["spark.driver.defaultJavaOptions"] = " ".join(self._java_options(silent=silent))
        # On TCP, each small packet between JVM and worker waits for an acknowledgement.
        if len(self._folder) <= _LONGEST_FOLDER and self._folder.isascii():
            settings["spark.python.unix.domain.socket.enabled"] = "true"
            settings["spark.python.unix.domain.socket.dir"] = self._folder
        return settings

    def launch(self, memory: str | None, log: int | None, *, silent: bool) -> StartingJava | None:
        """Launch the JVM with the arguments that spark-submit computed, if they are known."""
        if not self._plain or self._archive is None or not (known := self._archive.jvm_args):
            return None
        args = (*known, *self._java_options(silent=silent), f"-Xmx{memory or _DRIVER_MEMORY}")
        try:
            return StartingJava(self._java, args, log)
        except OSError:
            return None

    @contextmanager
    def daemon(self, log: int | None) -> Iterator[None]:
        """Start a daemon of workers ahead; leave this once Java has ended."""
        if len(self._folder) > _LONGEST_FOLDER or os.environ["PYSPARK_PYTHON"] != sys.executable:
            yield  # Java's own would not find it, or not accept it
            return
        process = subprocess.Popen(  # noqa: S603 - this Python
            [sys.executable, "-m", "floodmark.spark.worker_daemon", WAITING, self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**JAVAS, **ALLOCATION, **os.environ},
            process_group=0,  # like Java; its workers are in it, too
        )
        try:
            yield
        finally:
            with process, suppress(OSError):  # it may have ended
                os.killpg(process.pid, signal.SIGKILL)

    def remove_folder_with_jvm(self, gateway: "JavaGateway") -> None:
        """Have the JVM remove the folder of sockets when it exits: we may be killed first."""
        with suppress(Exception):  # a class that is not there: the folder stays behind after a kill
            hooks = gateway.jvm.org.apache.spark.util.ShutdownHookManager
            hooks.registerShutdownDeleteDir(gateway.jvm.java.io.File(self._folder))

    def jvm_args(self, gateway: "JavaGateway") -> list[str]:
        """Arguments of a running JVM that the next start can use; empty if they are known."""
        if not self._plain or self._archive is None or self._archive.jvm_args:
            return []
        return jvm_args_of(gateway)

    @property
    def is_archiving(self) -> bool:
        """Whether the JVM writes a class archive when it exits, which takes a while."""
        return self._archive is not None and not self._archive.exists

    def finish(self, jvm_args: list[str], *, exited: bool, archiving: bool) -> None:
        """Save what a JVM left for the next start, if it exited by itself."""
        if self._archive is None:
            return
        if archiving:
            (self._archive.keep if exited else self._archive.discard)()
        if exited and jvm_args:
            self._archive.note(jvm_args)

    def forget(self) -> None:
        """Remove what earlier starts have saved: Spark started only without it."""
        if self._archive is not None:
            self._archive.remove()

    def _java_options(self, *, silent: bool) -> list[str]:
        options = (_SILENT_JAVA if silent else _SMALL_JAVA).split()
        return options + (self._archive.options.split() if self._archive else [])


@contextmanager
def fast_start(java: str, environment: Mapping[str, str], *, plain: bool) -> Iterator[FastStart]:
    """Prepare a fast start, with a folder for the sockets of JVM and workers.

    It is `plain` if the user gave no Spark options.
    """
    with TemporaryDirectory(prefix="floodmark-", ignore_cleanup_errors=True) as folder:
        yield FastStart(java, environment, folder, plain=plain)


def _archive(java: str, environment: Mapping[str, str]) -> ClassArchive | None:
    try:
        return find_archive(java, dict(environment))
    except Exception:  # noqa: BLE001 - whatever is wrong, Spark starts without it
        return None
