"""Waits that are told of, if they take long."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from floodmark.model.notice import Notice, Report


@contextmanager
def reporting_slow_wait(report: Report, notice: Notice, seconds: float) -> Iterator[None]:
    """Say what is waited for, after so many seconds; the wait itself stays as it is."""
    timer = Timer(seconds, report, [notice])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
