"""The Java of a Spark on this machine, started without Spark's own scripts.

`spark-submit` starts Java twice, and then prepares for clusters and packages. Once it has started
the Java that left the class archive, the words that it had for it are known, and take its place.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from floodmark.engine.tasks import cannot_start

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

# What PySpark's own start talks of: where Java is to say how it is reached, and where it was found.
_INFO = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_SERVER = "org.apache.spark.api.python.PythonGatewayServer"
_OURS = {"PYSPARK_PYTHON", "SPARK_LOCAL_IP"}
_POLL_SECONDS = 0.01
_PATIENCE_SECONDS = 120.0


def find_java(environment: Mapping[str, str]) -> str | None:
    """Find the Java that Spark will run."""
    home = environment.get("JAVA_HOME")
    if home:
        path = os.path.join(home, "bin", "java")
        return path if os.access(path, os.X_OK) else None
    return shutil.which("java", path=environment.get("PATH"))


def is_plain(environment: Mapping[str, str]) -> bool:
    """Whether Spark's scripts would find nothing to heed there."""
    known = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")
    return not any(name.startswith(known) for name in environment.keys() - _OURS)


def runs_already() -> bool:
    """Whether PySpark has a Java in this process."""
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None  # noqa: SLF001


def words_of(gateway: "JavaGateway") -> list[str]:
    """What a Java was told that runs Spark, and what the next one is to be told as well."""
    jvm = gateway.jvm
    modules = jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptionArray()
    return ["-cp", jvm.System.getProperty("java.class.path"), *modules]


class StartingJava:
    """A Java that has just been started; PySpark can be imported meanwhile.

    It ends with us: its stdin is a pipe. Ctrl-C is not for it, so it has a group of its own.
    """

    def __init__(self, java: str, words: Sequence[str], log: int | None) -> None:
        self._folder = TemporaryDirectory()
        self._info = os.path.join(self._folder.name, "info")
        self._process = subprocess.Popen(  # noqa: S603 - Java, and what Spark told it
            [java, *words, _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, _INFO: self._info},
            process_group=0,
        )

    def reach(self) -> "JavaGateway | None":
        """Wait until it answers; None if it has ended, FloodmarkError if it does neither."""
        from pyspark.java_gateway import launch_gateway

        with self._folder:
            began = time.monotonic()
            while not os.path.exists(self._info):
                if self._process.poll() is not None:
                    return None
                if time.monotonic() - began > _PATIENCE_SECONDS:
                    with self._process:
                        self._process.kill()
                    raise cannot_start("Java runs, but does not answer")
                time.sleep(_POLL_SECONDS)
            with open(self._info, "rb") as file:
                port = int.from_bytes(file.read(4))
                secret = file.read(int.from_bytes(file.read(4))).decode()
        with _environment({_PORT: str(port), _SECRET: secret}):
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        gateway.proc = self._process
        return gateway


@contextmanager
def _environment(names: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(names)
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
