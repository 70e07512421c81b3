"""Threads of a server that are waited for when it stops."""

import threading
from collections.abc import Callable
from typing import Any


class Threads:
    """The threads that are running; any of them may start more."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._running: set[threading.Thread] = set()

    def start(self, work: Callable[..., object], *arguments: Any) -> None:
        """Do something in a thread of its own."""

        def run() -> None:
            try:
                work(*arguments)
            finally:
                with self._lock:
                    self._running.discard(thread)

        thread = threading.Thread(target=run, name=self._name, daemon=True)
        with self._lock:
            self._running.add(thread)
        thread.start()

    def join(self) -> None:
        """Wait until all have ended."""
        while threads := self._now():
            for thread in threads:
                thread.join()

    def _now(self) -> list[threading.Thread]:
        with self._lock:
            return list(self._running)
