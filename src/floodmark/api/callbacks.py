"""Call the caller's callbacks, and keep their exceptions out of our worker threads."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from floodmark.model.notice import Notice, Report

if TYPE_CHECKING:
    from floodmark.model.table import TableName
    from floodmark.sync.progress import Progress
    from floodmark.sync.result import TableResult

OnResult = Callable[["TableResult"], None]
OnProgress = Callable[["TableName", "Progress"], None]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Listener:
    """Passes notices to the caller, and collects those of a run for its result."""

    def __init__(self, on_notice: Report | None) -> None:
        self._on_notice = on_notice or log_notice
        self._lock = Lock()
        self._kept: list[Notice] | None = None

    def __call__(self, notice: Notice) -> None:
        """Report a notice; called from any thread."""
        with self._lock:
            if self._kept is not None and notice.level != "debug":
                self._kept.append(notice)
        try:
            self._on_notice(notice)
        except Exception as error:  # noqa: BLE001 - may be called from a lease's thread
            self._report_failure(error)

    def start(self) -> None:
        """Start collecting notices."""
        with self._lock:
            self._kept = []

    def take(self) -> list[Notice]:
        """Return the collected notices and stop collecting."""
        with self._lock:
            kept, self._kept = self._kept or [], None
        return kept

    def _report_failure(self, error: Exception) -> None:
        message = f"on_notice raised {type(error).__name__}: {error}"
        with self._lock:
            if self._kept is not None:
                self._kept.append(Notice("warning", message, "callback"))
                return
        with suppress(RuntimeWarning):  # if warnings are errors
            warnings.warn(message, RuntimeWarning, stacklevel=3)


def guarded_progress(on_progress: OnProgress | None, report: Report) -> OnProgress:
    """Wrap on_progress: after its first exception, report that and stop calling it."""
    active = on_progress is not None

    def progress(table: "TableName", done: "Progress") -> None:
        nonlocal active
        if not active or on_progress is None:
            return
        try:
            on_progress(table, done)
        except Exception as error:  # noqa: BLE001 - must not fail a table
            active = False
            message = (
                f"on_progress raised {type(error).__name__}: {error}; it will not be called again"
            )
            report(Notice("warning", message, "callback"))

    return progress


def guarded_result(on_result: OnResult | None, report: Report) -> OnResult:
    """Wrap on_result: report its exceptions."""

    def result(done: "TableResult") -> None:
        if on_result is None:
            return
        try:
            on_result(done)
        except Exception as error:  # noqa: BLE001 - must not fail a table
            message = f"on_result raised {type(error).__name__}: {error}"
            report(Notice("warning", message, "callback"))

    return result


def log_notice(notice: Notice) -> None:
    """Log a notice to the logger `floodmark`."""
    import logging

    logger = logging.getLogger("floodmark")
    if not logger.handlers:  # else Python writes to stderr if logging is not set up
        logger.addHandler(logging.NullHandler())
    text = f"{notice.message}; hint: {notice.hint}" if notice.hint else notice.message
    logger.log(_LEVELS[notice.level], "%s", text)


def traceback_notice(error: BaseException) -> Notice:
    """Return a debug notice with the traceback of an error."""
    import traceback

    lines = "".join(traceback.format_exception(error))
    return Notice("debug", str(error), "traceback", facts={"traceback": lines})
