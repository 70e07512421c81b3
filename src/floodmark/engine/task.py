"""What runs on a worker: one window from MySQL through Arrow into Parquet files in the lake."""

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from msgspec import Struct

from floodmark.engine.arrow import Conversion, UnfitValue
from floodmark.engine.files import open_files
from floodmark.engine.job import ExtractionJob
from floodmark.engine.parquet import ParquetFiles, ParquetLayout
from floodmark.engine.span import Span
from floodmark.errors import FloodmarkError
from floodmark.model.extraction import SESSION_SETTINGS, Receipt, Window


class Refusal(Struct, frozen=True):
    """Why a task gave up for good."""

    part: int
    message: str
    hint: str | None


class Outcome(Struct, frozen=True):
    """What a task answers: a receipt, or a refusal."""

    receipt: Receipt | None = None
    refusal: Refusal | None = None


def run_window(job: ExtractionJob, window: Window, *, attempt_id: int, failures: int) -> Outcome:
    """Extract a window. What another try might mend is raised, unless this was the last try.

    An answer keeps its words, while Spark wraps what is raised into pages of its own.
    """
    try:
        return Outcome(receipt=_extract(job, window, attempt_id))
    except FloodmarkError as error:
        if isinstance(error, UnfitValue) or failures + 1 >= job.tries:
            return Outcome(refusal=Refusal(window.part, error.message, error.hint))
        raise


def _extract(job: ExtractionJob, window: Window, attempt_id: int) -> Receipt:
    began = time.monotonic()
    conversion = Conversion(job.columns, job.zero_dates)
    files = ParquetFiles(
        ParquetLayout(
            schema=conversion.schema,
            create=open_files(job.lake),
            name=lambda number: job.key(window.part, attempt_id, number),
            span=lambda: Span(job.cursor, ordered=bool(job.order)),
            cursor=job.cursor.columns,
            file_bytes=job.file_bytes,
            row_group_bytes=job.row_group_bytes,
        )
    )
    try:
        for batch in read_batches(job, window):
            files.write(conversion.convert(batch))
        written = files.finish()
    except BaseException:
        files.abandon()
        raise
    return Receipt(
        part=window.part,
        rows=sum(file.rows for file in written),
        files=written,
        seconds=time.monotonic() - began,
        zero_dates=dict(conversion.zero_dates),
        peak_memory_bytes=_peak_memory(),
    )


def read_batches(job: ExtractionJob, window: Window) -> Iterator[pa.RecordBatch]:
    """Stream a window's rows from the source; its errors become ours."""
    # connectorx writes its failures to stderr as well; here they are raised, once.
    os.environ.setdefault("RUST_LOG", "off")
    os.environ["RUST_BACKTRACE"] = "0"
    import connectorx

    with _translated(job):
        yield from connectorx.read_sql(
            job.url.reveal(),
            job.query(window.predicate),
            return_type="arrow_stream",
            protocol="binary",
            batch_size=job.batch_rows,
            pre_execution_query=SESSION_SETTINGS,
        )


@contextmanager
def _translated(job: ExtractionJob) -> Iterator[None]:
    try:
        yield
    except (GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # connectorx raises RuntimeError before the first batch, and afterwards its panics, which
        # are no Exceptions.
        reason = str(error).replace(job.url.reveal(), "***")
        raise FloodmarkError(f"reading {job.table} failed: {reason}") from error


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
