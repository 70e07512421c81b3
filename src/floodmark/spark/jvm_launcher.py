"""Launch the JVM of a local Spark without Spark's own scripts.

`spark-submit` starts Java twice, and then prepares for clusters and packages. Later starts reuse
the JVM arguments that it computed once, for the JVM that left the class archive.
"""

import logging
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

# Names that PySpark's own start uses to reach the JVM: where it writes its port, and the result.
_INFO = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_SERVER = "org.apache.spark.api.python.PythonGatewayServer"
_OURS = {"PYSPARK_PYTHON", "SPARK_LOCAL_IP"}
_POLL_SECONDS = 0.01
_PATIENCE_SECONDS = 60.0

_LOG = logging.getLogger(__name__)


def find_java(environment: Mapping[str, str]) -> str | None:
    """Find the Java that Spark will run."""
    home = environment.get("JAVA_HOME")
    if home:
        path = os.path.join(home, "bin", "java")
        return path if os.access(path, os.X_OK) else None
    return shutil.which("java", path=environment.get("PATH"))


def is_plain(environment: Mapping[str, str]) -> bool:
    """Whether the environment has no variables that Spark's scripts would use."""
    known = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")
    return not any(name.startswith(known) for name in environment.keys() - _OURS)


def jvm_args_of(gateway: "JavaGateway") -> list[str]:
    """Return the arguments of a running Spark JVM that the next one can use."""
    jvm = gateway.jvm
    modules = jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptionArray()
    return ["-cp", jvm.System.getProperty("java.class.path"), *modules]


class StartingJava:
    """A JVM that was just started; PySpark can be imported meanwhile.

    It exits with us, as its stdin is a pipe. It has its own process group, so Ctrl-C does not reach
    it.
    """

    def __init__(self, java: str, args: Sequence[str], log: int | None) -> None:
        self._folder = TemporaryDirectory()
        self._info = os.path.join(self._folder.name, "info")
        self._process = subprocess.Popen(  # noqa: S603 - Java, with Spark's arguments
            [java, *args, _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, _INFO: self._info},
            process_group=0,
        )

    def reach(self) -> "JavaGateway | None":
        """Wait until it answers; None if it exited, or does not answer as expected."""
        try:
            with self._folder:
                return self._gateway()
        except Exception:  # noqa: BLE001 - whatever is wrong, PySpark can still start Spark
            with self._process:
                self._process.kill()
            _LOG.warning("the JVM does not answer; PySpark starts another", exc_info=True)
            return None

    def _gateway(self) -> "JavaGateway | None":
        from pyspark.java_gateway import launch_gateway

        began = time.monotonic()
        while not os.path.exists(self._info):
            if self._process.poll() is not None:
                return None
            if time.monotonic() - began > _PATIENCE_SECONDS:
                raise TimeoutError(f"no answer within {_PATIENCE_SECONDS:.0f} s")
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
