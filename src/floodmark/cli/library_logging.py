"""Forward library log records as debug notices."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from floodmark.model.notice import Notice, Report


class _Handler(logging.Handler):
    def __init__(self, report: Report) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report(Notice("debug", self.format(record), "library"))


@contextmanager
def forwarding_library_logs(report: Report) -> Iterator[None]:
    """Report library log records, which would otherwise go to stderr."""
    handler = _Handler(report)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
