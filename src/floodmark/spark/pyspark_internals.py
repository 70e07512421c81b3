"""All private attributes of PySpark that we use; each may be missing in another release.

A function returns what the caller can do without, or raises FloodmarkError where guessing would be
wrong. None imports PySpark just to look whether it runs.
"""

import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from floodmark.errors import FloodmarkError
from floodmark.spark.security import is_secret

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkContext


def has_jvm() -> bool:
    """Whether PySpark already has a JVM in this process."""
    return getattr(_context_class(), "_gateway", None) is not None


def has_context() -> bool:
    """Whether a SparkContext is active in this process."""
    return getattr(_context_class(), "_active_spark_context", None) is not None


def launch_jvm(settings: Mapping[str, str], log: int | None) -> "JavaGateway | None":
    """Have PySpark launch a JVM that logs to `log`, without secrets in its command line.

    None if this PySpark cannot do so: SparkContext launches one then, which is safe without
    secrets only.
    """
    from pyspark import SparkConf

    shown = {name: value for name, value in settings.items() if not is_secret(name)}
    try:
        from pyspark.java_gateway import launch_gateway

        conf = SparkConf().setAll(list(shown.items()))
        # A JVM that rejects its options says so on stdout, which belongs to our results.
        streams = {"stdout": 2 if log is None else log, "stderr": log}
        return launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
    except (ImportError, TypeError) as error:
        if len(shown) == len(settings):
            return None
        raise FloodmarkError(
            "this PySpark would show secrets of Spark in a command line",
            hint="install the version of PySpark that pyproject.toml allows",
        ) from error


def process_of(gateway: "JavaGateway | None") -> "subprocess.Popen[bytes] | None":
    """Return the process of a JVM; None if this process did not launch it."""
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process if process and process.stdin else None


def gateway_of(context: "SparkContext") -> "JavaGateway | None":
    """Return the connection to the JVM of a context."""
    gateway: JavaGateway | None = getattr(context, "_gateway", None)
    return gateway


def forget_jvm() -> None:
    """Make the next SparkContext launch a JVM of its own."""
    if context := _context_class():
        context._gateway = context._jvm = context._active_spark_context = None  # noqa: SLF001


def submitted_settings() -> dict[str, str]:
    """Return the settings that `spark-submit` passed to this process."""
    from pyspark import SparkConf, SparkContext

    try:
        SparkContext._ensure_initialized()  # noqa: SLF001
    except (AttributeError, TypeError) as error:
        raise FloodmarkError(
            "this PySpark does not show the settings of spark-submit",
            hint="pass your session: open_project(path, spark=spark)",
        ) from error
    return dict(SparkConf().getAll())


def executors_of(context: "SparkContext") -> int | None:
    """Return how many executors have joined; None if this PySpark does not report it."""
    try:
        # The driver is one of them.
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # noqa: SLF001
    except (AttributeError, TypeError):
        return None


def stop_quickly(context: "SparkContext") -> None:
    """Stop Spark, but not wait up to a second for the server that collects accumulators."""
    try:
        java, accumulators = context._jsc, context._accumulatorServer  # noqa: SLF001
    except AttributeError:
        context.stop()
        return
    java.stop()
    threading.Thread(target=_shut_down, args=[accumulators], daemon=True).start()


def silence_accumulators(context: "SparkContext") -> None:
    """Log no traceback when the JVM dies, which is reported as an error anyway."""
    with suppress(AttributeError):
        context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # noqa: SLF001


def remember_classes(context: "SparkContext") -> None:
    """Look up once the Java classes that PySpark needs for each job.

    For each lookup, the JVM would search all archives of Spark, in every package that is imported.
    """
    with suppress(Exception):  # a class that is not there: PySpark looks up what it needs
        jvm = context._jvm  # noqa: SLF001
        for name in ("PythonUtils", "SimplePythonFunction", "PythonRDD"):
            setattr(jvm, name, getattr(jvm, name))


def _shut_down(accumulators: Any) -> None:
    with suppress(Exception):  # its socket may be gone already
        accumulators.shutdown()


def _context_class() -> Any:
    """Return PySpark's SparkContext if it was imported, without importing it here."""
    return getattr(sys.modules.get("pyspark.context"), "SparkContext", None)
