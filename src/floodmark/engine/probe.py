"""Start Spark once, and see that its workers can do what a sync needs."""

import os
import time

from floodmark import __version__
from floodmark.config.models import SparkSettings
from floodmark.engine.session import spark_session
from floodmark.engine.tasks import SparkFailure
from floodmark.errors import FloodmarkError


def probe(settings: SparkSettings) -> str:
    """Start Spark and have a worker answer; FloodmarkError if it cannot, or is of other make."""
    began = time.monotonic()
    with spark_session(
        master=settings.master,
        remote=settings.remote,
        memory=settings.memory,
        options=settings.options,
        log_file=os.devnull,
        allow_insecure=settings.allow_insecure,
        fast_start=settings.fast_start == "auto",
    ) as spark:
        try:
            (theirs,) = spark.run("doctor", _answer, 1, None)
        except SparkFailure as failure:
            raise FloodmarkError(
                f"a worker could not answer: {failure}",
                hint="install floodmark on every worker, in the Python that Spark runs there",
            ) from failure
    if theirs != __version__:
        raise FloodmarkError(
            f"workers have floodmark {theirs}, and this is {__version__}",
            hint="install the same version everywhere",
        )
    return f"started, and a worker answered, in {time.monotonic() - began:.1f} s"


def _answer(_: int) -> str:
    import connectorx  # noqa: F401 - what a worker reads with

    from floodmark import __version__ as version

    return version
