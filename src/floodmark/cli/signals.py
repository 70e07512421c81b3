"""SIGTERM ends the program in order, as Ctrl-C does."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Terminated(BaseException):
    """SIGTERM has come. Like a KeyboardInterrupt, it is not for those who catch errors."""


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise Terminated here when SIGTERM comes. A second one is ignored: we are at it."""

    def stop(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
