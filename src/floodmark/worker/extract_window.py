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
from floodmark.worker.slice_marks import mark_done


def run_window(job: ExtractionJob, window: Window, *, attempt_id: int, failures: int) -> Outcome:
    """Extract a window. Raise errors that a retry might fix, unless this was the last try.

    A refusal keeps its message; Spark would bury an exception in a long traceback.
    """
    try:
        while True:
            extract = _Extract(job, window, attempt_id)
            try:
                return Outcome(receipt=extract.run())
            except TooFarAhead:  # its files are overwritten
                if window.statements[extract.done].streamed:
                    raise
                window = _streamed(window, extract.done)
    except FloodmarkError as error:
        if is_final(job, error, failures):
            return Outcome(refusal=Refusal(window.part, error.message, error.hint))
        raise


def _streamed(window: Window, first: int) -> Window:
    """Have a window streamed, from its slice of this number on: those before it had fitted."""
    if not window.slices:
        return structs.replace(window, streamed=True)
    later = (structs.replace(one, streamed=True) for one in window.slices[first:])
    return structs.replace(window, slices=(*window.slices[:first], *later))


def is_final(job: ExtractionJob, error: FloodmarkError, failures: int) -> bool:
    """Whether a retry would not help, or this was the last try."""
    return isinstance(error, UnfitValue | ConfigError | NoLogin) or failures + 1 >= job.tries


class _Extract:
    """Reads the slices of a window one after another, of which some are `done`."""

    def __init__(self, job: ExtractionJob, window: Window, attempt_id: int) -> None:
        self._job = job
        self._window = window
        self._attempt_id = attempt_id
        self._began, self._rows = time.monotonic(), 0
        self.done = 0

    def run(self) -> Receipt:
        """Write all rows of the window."""
        job, part, attempt_id = self._job, self._window.part, self._attempt_id
        quarantine = Quarantine(job, part, attempt_id)
        conversion = Conversion(job.columns, job.zero_dates, quarantine.add)
        files = ParquetFiles(
            ParquetLayout(
                schema=conversion.schema,
                create=open_files(job.lake, job.copies),
                name=lambda number: job.key(part, attempt_id, number),
                span=lambda: Span(job.cursor, ordered=bool(job.order)),
                cursor=job.cursor.columns,
                file_bytes=job.file_bytes,
                row_group_bytes=job.row_group_bytes,
                codec=job.lake.codec,
            )
        )
        try:
            for window in self._window.statements:
                for batch in read_batches(job, window):
                    self._rows += batch.num_rows
                    files.write(conversion.convert(batch))
                    if window.streamed:
                        self._wait()  # so does the server, which sends rows as we read them
                self._finish_slice()
            written, aside = files.finish(), quarantine.finish()
        except BaseException:
            files.abandon()
            quarantine.abandon()
            raise
        return Receipt(
            part=part,
            slices=self.done,
            rows=sum(file.rows for file in written),
            files=written,
            quarantine=aside,
            seconds=time.monotonic() - self._began,
            zero_dates=dict(conversion.zero_dates),
            peak_memory_bytes=_peak_memory(),
        )

    def _finish_slice(self) -> None:
        self.done += 1
        mark_done(self._job.marks)
        self._wait()

    def _wait(self) -> None:
        """Sleep until it is late enough for this many rows, if their rate is limited."""
        if self._job.rows_per_second is not None:
            due = self._began + self._rows / self._job.rows_per_second
            time.sleep(max(0.0, due - time.monotonic()))


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
