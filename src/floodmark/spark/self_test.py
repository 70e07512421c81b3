"""Start Spark, and check that its workers can run a sync."""

import os
import time
from contextlib import AbstractContextManager
from typing import Any

from floodmark import __version__
from floodmark.config.models import SparkSettings
from floodmark.errors import FloodmarkError
from floodmark.spark.runner import Spark, SparkFailure
from floodmark.spark.session import spark_session


def probe(settings: SparkSettings, session: Any = None) -> str:
    """Start Spark, or use the caller's, and run a task; FloodmarkError if that fails."""
    began = time.monotonic()
    with _spark(settings, session) as spark:
        try:
            (theirs,) = spark.run("doctor", _answer, 1, None)
        except SparkFailure as failure:
            raise FloodmarkError(
                f"a worker could not answer: {failure}",
                hint="install floodmark on every worker, in the Python that Spark runs there",
            ) from failure
    if theirs != __version__:
        raise FloodmarkError(
            f"workers have floodmark {theirs}, but this is {__version__}",
            hint="install the same version everywhere",
        )
    done = "started" if session is None else "attached"
    return f"{done}, and a worker answered, in {time.monotonic() - began:.1f} s"


def _spark(settings: SparkSettings, session: Any) -> AbstractContextManager[Spark]:
    if session is not None:
        from floodmark.spark.attached_session import attached_spark

        return attached_spark(session, allow_insecure=settings.allow_insecure)
    return spark_session(
        master=settings.master,
        remote=settings.remote,
        memory=settings.memory,
        options=settings.options,
        log_file=os.devnull,
        allow_insecure=settings.allow_insecure,
        fast_start=settings.fast_start == "auto",
    )


def _answer(_: int) -> str:
    import connectorx  # noqa: F401 - what a worker reads with

    from floodmark import __version__ as version

    return version
