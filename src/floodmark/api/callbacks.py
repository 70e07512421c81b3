"""Callbacks of the caller: what they raise must not reach the threads that do the work."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from floodmark.model.notice import Notice, Report

if TYPE_CHECKING:
    from floodmark.model.table import TableName
    from floodmark.sync.extract import Progress

OnProgress = Callable[["TableName", "Progress"], None]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Listener:
    """Hands notices to the caller, and keeps those of a run for its result."""

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
        except Exception as error:  # noqa: BLE001 - a lease's thread may have called it
            self._complain(error)

    def start(self) -> None:
        """Keep notices from now on."""
        with self._lock:
            self._kept = []

    def take(self) -> list[Notice]:
        """The notices since the start."""
        with self._lock:
            kept, self._kept = self._kept or [], None
        return kept

    def _complain(self, error: Exception) -> None:
        message = f"on_notice raised {type(error).__name__}: {error}"
        with self._lock:
            if self._kept is not None:
                self._kept.append(Notice("warning", message, "callback"))
                return
        with suppress(RuntimeWarning):  # where warnings are errors
            warnings.warn(message, RuntimeWarning, stacklevel=3)


def guarded_progress(on_progress: OnProgress | None, report: Report) -> OnProgress:
    """Call on_progress until it raises; then report that, and call it no more in this run."""
    active = on_progress is not None

    def progress(table: "TableName", done: "Progress") -> None:
        nonlocal active
        if not active or on_progress is None:
            return
        try:
            on_progress(table, done)
        except Exception as error:  # noqa: BLE001 - progress is no reason to fail a table
            active = False
            message = f"on_progress raised {type(error).__name__}: {error}; it is not called again"
            report(Notice("warning", message, "callback"))

    return progress


def log_notice(notice: Notice) -> None:
    """Log a notice under the name `floodmark`, as libraries do."""
    import logging

    logger = logging.getLogger("floodmark")
    if not logger.handlers:  # else Python would write to stderr where logging is not set up
        logger.addHandler(logging.NullHandler())
    text = f"{notice.message}; hint: {notice.hint}" if notice.hint else notice.message
    logger.log(_LEVELS[notice.level], "%s", text)


def traceback_notice(error: BaseException) -> Notice:
    """Where an error came from, for debugging."""
    import traceback

    lines = "".join(traceback.format_exception(error))
    return Notice("debug", str(error), "traceback", facts={"traceback": lines})
