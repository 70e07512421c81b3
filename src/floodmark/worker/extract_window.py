"""Extract one window on a worker: from MySQL through Arrow into Parquet files in the lake."""

import resource
import sys
import time

from msgspec import structs

from floodmark.errors import ConfigError, FloodmarkError, NoLogin, TooFarAhead, UnfitValue
from floodmark.model.extraction import Receipt, Window
from floodmark.worker.conversion import Conversion
from floodmark.worker.invalid_dates import Quarantine
from floodmark.worker.job import ExtractionJob, Outcome, Refusal
from floodmark.worker.lake_writer import open_files
from floodmark.worker.mysql_reader import read_batches
from floodmark.worker.parquet_writer import ParquetFiles, ParquetLayout
from floodmark.worker.position_range import Span


def run_window(job: ExtractionJob, window: Window, *, attempt_id: int, failures: int) -> Outcome:
    """Extract a window. Raise errors that a retry might fix, unless this was the last try.

    A refusal keeps its message; Spark would bury an exception in a long traceback.
    """
    try:
        try:
            return Outcome(receipt=_extract(job, window, attempt_id))
        except TooFarAhead:  # its files are overwritten
            streamed = structs.replace(window, streamed=True)
            return Outcome(receipt=_extract(job, streamed, attempt_id))
    except FloodmarkError as error:
        if is_final(job, error, failures):
            return Outcome(refusal=Refusal(window.part, error.message, error.hint))
        raise


def is_final(job: ExtractionJob, error: FloodmarkError, failures: int) -> bool:
    """Whether a retry would not help, or this was the last try."""
    return isinstance(error, UnfitValue | ConfigError | NoLogin) or failures + 1 >= job.tries


def _extract(job: ExtractionJob, window: Window, attempt_id: int) -> Receipt:
    began, rows = time.monotonic(), 0
    quarantine = Quarantine(job, window.part, attempt_id)
    conversion = Conversion(job.columns, job.zero_dates, quarantine.add)
    files = ParquetFiles(
        ParquetLayout(
            schema=conversion.schema,
            create=open_files(job.lake),
            name=lambda number: job.key(window.part, attempt_id, number),
            span=lambda: Span(job.cursor, ordered=bool(job.order)),
            cursor=job.cursor.columns,
            file_bytes=job.file_bytes,
            row_group_bytes=job.row_group_bytes,
            codec=job.lake.codec,
        )
    )
    try:
        for batch in read_batches(job, window):
            rows += batch.num_rows
            files.write(conversion.convert(batch))
            if window.streamed:
                _wait(job, rows, began)  # so does the server, which sends rows as we read them
        written, aside = files.finish(), quarantine.finish()
    except BaseException:
        files.abandon()
        quarantine.abandon()
        raise
    _wait(job, rows, began)
    return Receipt(
        part=window.part,
        rows=sum(file.rows for file in written),
        files=written,
        quarantine=aside,
        seconds=time.monotonic() - began,
        zero_dates=dict(conversion.zero_dates),
        peak_memory_bytes=_peak_memory(),
    )


def _wait(job: ExtractionJob, rows: int, began: float) -> None:
    """Sleep until it is late enough for this many rows, if their rate is limited."""
    if job.rows_per_second is not None:
        time.sleep(max(0.0, began + rows / job.rows_per_second - time.monotonic()))


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
