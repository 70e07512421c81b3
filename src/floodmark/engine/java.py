"""The Java of a Spark on this machine, started without Spark's own scripts.

`spark-submit` starts Java twice, and then prepares for clusters and packages. Once it has started
the Java that left the class archive, the words that it had for it are known, and take its place.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import launch_gateway

# What PySpark's own start talks of: where Java is to say how it is reached, and where it was found.
_INFO = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_SERVER = "org.apache.spark.api.python.PythonGatewayServer"
_OURS = {"PYSPARK_PYTHON", "SPARK_LOCAL_IP"}
_POLL_SECONDS = 0.01


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


def words_of(gateway: JavaGateway) -> list[str]:
    """What a Java was told that runs Spark, and what the next one is to be told as well."""
    jvm = gateway.jvm
    modules = jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptionArray()
    return ["-cp", jvm.System.getProperty("java.class.path"), *modules]


def start_java(java: str, words: Sequence[str]) -> JavaGateway | None:
    """Start a Java with these words, and reach it; None if it ends at once.

    It ends with us: its stdin is a pipe. Ctrl-C is not for it, so it has a group of its own.
    """
    with TemporaryDirectory() as folder:
        info = os.path.join(folder, "info")
        process = subprocess.Popen(  # noqa: S603 - Java, and what Spark told it
            [java, *words, _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, _INFO: info},
            process_group=0,
        )
        while not os.path.exists(info):
            if process.poll() is not None:
                return None
            time.sleep(_POLL_SECONDS)
        with open(info, "rb") as file:
            port = int.from_bytes(file.read(4))
            secret = file.read(int.from_bytes(file.read(4))).decode()
    with _environment({_PORT: str(port), _SECRET: secret}):
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    gateway.proc = process
    return gateway


@contextmanager
def _environment(names: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(names)
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
