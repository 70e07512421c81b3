"""The driver side of an extraction: one Spark task per window."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec import structs

from floodmark.errors import FloodmarkError
from floodmark.model.extraction import Receipt, Window
from floodmark.spark.runner import Attempt, Spark, run_tasks
from floodmark.worker.job import ExtractionJob, Outcome


def extract(
    spark: Spark,
    job: ExtractionJob,
    windows: Sequence[Window],
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Receipt]:
    """Read all windows of a chunk into the lake; return receipts in the order of the windows.

    `progress` receives the number of windows done, if Spark reports it. FloodmarkError if any
    window fails permanently; no manifest will list the files of the others.
    """
    if not windows:
        return []
    parts, job = tuple(windows), structs.replace(job, tries=spark.tries)
    work = partial(_extract, job, parts)
    answers = run_tasks(spark, title_of(job), work, len(parts), progress=progress)
    return _receipts(job, parts, [msgspec.json.decode(answer, type=Outcome) for answer in answers])


def _extract(job: ExtractionJob, windows: Sequence[Window], number: int, attempt: Attempt) -> bytes:
    from floodmark.worker.extract_window import run_window  # the driver need not import Arrow

    outcome = run_window(job, windows[number], attempt_id=attempt.id, failures=attempt.failures)
    return msgspec.json.encode(outcome)


def title_of(job: ExtractionJob) -> str:
    """Return the title of a chunk's tasks."""
    return f"{job.table} #{job.sequence}"


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
        raise FloodmarkError(f"{job.table}: Spark did not return one answer for each window")
    return receipts
