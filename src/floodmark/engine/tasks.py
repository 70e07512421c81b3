"""Tasks on Spark: each is run on a worker, and answers in JSON."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct
from pyspark.errors import PySparkException, PythonException
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.taskcontext import TaskContext

from floodmark.engine.jobs import run_together
from floodmark.errors import FloodmarkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Attempt(Struct, frozen=True):
    """One try of a task: a number of its own, and how often the task has failed before."""

    id: int
    failures: int


def run_tasks(
    spark: "SparkSession",
    title: str,
    run: Callable[[int, Attempt], bytes],
    tasks: int,
    *,
    progress: Callable[[int], None] | None = None,
) -> list[str]:
    """Run so many tasks, numbered from 0, and return their answers in order.

    What a task raises makes Spark try it again, a few times; then it is a FloodmarkError.
    """

    def task(numbers: pa.Array) -> pa.Array:
        return pa.array([run(number, _attempt()) for number in numbers.to_pylist()], pa.string())

    # An Arrow UDF rather than mapInArrow, which wants pandas for nothing. One row a partition, and
    # what is to be done inside the task: nothing is shuffled, and nothing is shown.
    work = arrow_udf(task, "string").asNondeterministic()  # type: ignore[call-overload]
    frame = spark.range(0, tasks, 1, tasks).select(work("id"))
    with run_together(spark, title, progress):
        try:
            return [row[0] for row in frame.collect()]
        except PySparkException as error:
            raise FloodmarkError(f"{title}: Spark could not run it: {_reason(error)}") from error


def _attempt() -> Attempt:
    context = TaskContext.get()
    assert context is not None
    return Attempt(context.taskAttemptId(), context.attemptNumber())


def _reason(error: PySparkException) -> str:
    """The last line of a worker's traceback, the first of anything else."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1 if isinstance(error, PythonException) else 0]
