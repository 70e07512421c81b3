"""Handle SIGTERM as Ctrl-C: stop cleanly."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Terminated(BaseException):
    """SIGTERM was received. Like KeyboardInterrupt, `except Exception` does not catch it."""


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise Terminated on SIGTERM; ignore further ones while stopping."""

    def stop(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
