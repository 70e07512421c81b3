"""The driver side of a comparison: one Spark task per window."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec import structs

from floodmark.errors import FloodmarkError
from floodmark.model.verification import Comparison, WindowPair
from floodmark.spark.runner import Attempt, Spark, run_tasks
from floodmark.worker.compare_window import Compared, VerificationJob, run_comparison


def compare(
    spark: Spark,
    job: VerificationJob,
    pairs: Sequence[WindowPair],
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Comparison]:
    """Compare all windows; return the answers in order.

    FloodmarkError if any window cannot be compared.
    """
    job = structs.replace(job, source=structs.replace(job.source, tries=spark.tries))
    title, work = f"{job.source.table} compared", partial(_compare, job, tuple(pairs))
    answers = run_tasks(spark, title, work, len(pairs), progress=progress)
    return answered(job, [msgspec.json.decode(answer, type=Compared) for answer in answers])


def _compare(
    job: VerificationJob, pairs: Sequence[WindowPair], number: int, attempt: Attempt
) -> bytes:
    return msgspec.json.encode(run_comparison(job, pairs[number], failures=attempt.failures))


def answered(job: VerificationJob, answers: Sequence[Compared]) -> list[Comparison]:
    """Return the comparisons; FloodmarkError if a window was refused."""
    for answer in answers:
        if refusal := answer.refusal:
            raise FloodmarkError(
                f"{job.source.table}: window {refusal.part}: {refusal.message}", hint=refusal.hint
            )
    return [answer.comparison for answer in answers if answer.comparison]
