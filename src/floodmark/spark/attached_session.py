"""Run tasks in a Spark session of the caller, without stopping or changing it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import structs

from floodmark.config.models import SparkSettings
from floodmark.errors import FloodmarkError, UsageError
from floodmark.spark.security import check_attached_server, check_cluster, check_one_process

if TYPE_CHECKING:
    from floodmark.spark.connect_runner import ConnectedSpark
    from floodmark.spark.rdd_runner import ClassicSpark

_LOCAL = re.compile(r"local(\[.*\])?")


@contextmanager
def attached_spark(
    session: Any, *, allow_insecure: bool
) -> Iterator["ClassicSpark | ConnectedSpark"]:
    """Run tasks in the caller's session; when leaving, cancel ours that still run.

    FloodmarkError if it is stopped, or if others could read what passes through it.
    """
    spark = _wrapped(session)
    if not spark.is_alive():
        raise FloodmarkError(
            "the Spark session that was passed in is stopped",
            hint="open the project with a running session, or without one",
        )
    if not allow_insecure:
        _check(session, spark)
    try:
        yield spark
    finally:
        with suppress(Exception):  # the session has ended
            spark.cancel()


def attached_settings(session: Any, settings: SparkSettings) -> SparkSettings:
    """Return the configured settings, with the master or remote of the caller's session."""
    if _is_connect(session):
        return structs.replace(settings, remote=f"sc://{_host(session)}", options={})
    master = _context(session).master
    return structs.replace(settings, master=master, remote=None, options={})


def _wrapped(session: Any) -> "ClassicSpark | ConnectedSpark":
    if _is_connect(session):
        from floodmark.spark.connect_runner import ConnectedSpark

        return ConnectedSpark(session)
    from floodmark.spark.rdd_runner import ClassicSpark

    return ClassicSpark(_context(session))


def _check(session: Any, spark: "ClassicSpark | ConnectedSpark") -> None:
    if _is_connect(session):
        builder = getattr(session.client, "_builder", None)
        secure = bool(getattr(builder, "secure", False))
        check_attached_server(_host(session), encrypted=secure)
        return
    option = spark.option  # type: ignore[union-attr]
    if _LOCAL.fullmatch(_context(session).master):
        check_one_process(option)
    else:
        check_cluster(option)


def _is_connect(session: Any) -> bool:
    return any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(session).__mro__)


def _host(session: Any) -> str:
    try:
        return str(session.client.host)
    except Exception:  # noqa: BLE001 - the caller's channel may not show its address
        return "an unknown host"


def _context(session: Any) -> Any:
    try:
        return session.sparkContext
    except Exception as error:
        raise UsageError(
            f"spark= takes a SparkSession, not {type(session).__name__}",
            hint="pass the session that SparkSession.builder.getOrCreate() returns",
        ) from error
