"""The driver's side of an extraction: one Spark task a window."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException, PythonException
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.taskcontext import TaskContext

from floodmark.engine.job import ExtractionJob
from floodmark.engine.jobs import run_together
from floodmark.engine.task import Outcome, run_window
from floodmark.errors import FloodmarkError
from floodmark.model.extraction import Receipt, Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def extract(
    spark: "SparkSession",
    job: ExtractionJob,
    windows: Sequence[Window],
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Receipt]:
    """Read all windows of a chunk into the lake; the receipts come in the order of the windows.

    `progress` hears how many windows are done, where Spark tells. If any window fails for good,
    FloodmarkError says why; what the others wrote is then named by nobody.
    """
    if not windows:
        return []
    parts = tuple(windows)

    def task(numbers: pa.Array) -> pa.Array:
        return pa.array([_run(job, parts[number]) for number in numbers.to_pylist()], pa.string())

    # An Arrow UDF rather than mapInArrow, which wants pandas for nothing. One row a partition, and
    # the windows inside the task: nothing is shuffled, and nothing is shown.
    read = arrow_udf(task, "string").asNondeterministic()  # type: ignore[call-overload]
    frame = spark.range(0, len(parts), 1, len(parts)).select(read("id"))
    with run_together(spark, f"{job.table} #{job.sequence}", progress):
        try:
            rows = frame.collect()
        except PySparkException as error:
            raise FloodmarkError(
                f"{job.table}: Spark could not run the extraction: {_reason(error)}"
            ) from error
    return _receipts(job, parts, [msgspec.json.decode(row[0], type=Outcome) for row in rows])


def _run(job: ExtractionJob, window: Window) -> bytes:
    """Run on a worker: read a window and answer in JSON."""
    context = TaskContext.get()
    assert context is not None
    outcome = run_window(
        job, window, attempt_id=context.taskAttemptId(), failures=context.attemptNumber()
    )
    return msgspec.json.encode(outcome)


def _receipts(
    job: ExtractionJob, windows: Sequence[Window], outcomes: Sequence[Outcome]
) -> list[Receipt]:
    for outcome in outcomes:
        if refusal := outcome.refusal:
            raise FloodmarkError(
                f"{job.table}: window {refusal.part}: {refusal.message}", hint=refusal.hint
            )
    receipts = [outcome.receipt for outcome in outcomes if outcome.receipt]
    if [receipt.part for receipt in receipts] != [window.part for window in windows]:
        raise FloodmarkError(f"{job.table}: Spark did not answer once for each window")
    return receipts


def _reason(error: PySparkException) -> str:
    """The last line of a worker's traceback, the first of anything else."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1 if isinstance(error, PythonException) else 0]
