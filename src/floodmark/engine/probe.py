"""Start Spark once, and see that its workers can do what a sync needs."""

import os
import time

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.functions import arrow_udf

from floodmark import __version__
from floodmark.config.models import SparkSettings
from floodmark.engine.session import spark_session
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
    ) as spark:
        try:
            answer = arrow_udf(_answer, "string").asNondeterministic()  # type: ignore[call-overload]
            rows = spark.range(0, 1, 1, 1).select(answer("id").alias("version")).collect()
        except PySparkException as error:
            reason = str(error).strip().splitlines()[-1]
            raise FloodmarkError(
                f"a worker could not answer: {reason}",
                hint="install floodmark on every worker, in the Python that Spark runs there",
            ) from error
    theirs = rows[0]["version"]
    if theirs != __version__:
        raise FloodmarkError(
            f"workers have floodmark {theirs}, and this is {__version__}",
            hint="install the same version everywhere",
        )
    return f"started, and a worker answered, in {time.monotonic() - began:.1f} s"


def _answer(numbers: pa.Array) -> pa.Array:
    import connectorx  # noqa: F401 - what a worker reads with

    from floodmark import __version__ as version

    return pa.array([version] * len(numbers), pa.string())
