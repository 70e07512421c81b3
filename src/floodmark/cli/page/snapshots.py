"""Keep the last reading of the lake, and read again when it is asked for and old.

If nobody asks, nothing is read. A reading that takes long is repeated less often, so that a page
that is open all day does not burden the lake: at most a tenth of the time is spent on reading.
"""

import time
from collections.abc import Callable
from threading import Lock, Thread

from msgspec import Struct

from floodmark.cli.page.document import Overview
from floodmark.errors import FloodmarkError

_SHORTEST_PAUSE = 5.0
_PATIENCE = 60.0
_PAGE_SECONDS = 3.0  # Prometheus gives up after 10
_PROBE_SECONDS = 0.8


def pause_after(seconds: float) -> float:
    """Return how long to wait after a reading that took so long."""
    return max(_SHORTEST_PAUSE, 9 * seconds)


class Snapshot(Struct, frozen=True, kw_only=True):
    """What is known: the last reading, and why there is no newer one."""

    overview: Overview | None = None
    problem: str | None = None


class Snapshots:
    """Reads at most once at a time; the others get what is known."""

    def __init__(
        self,
        read: Callable[[], Overview],
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], float] = pause_after,
    ) -> None:
        self._read = read
        self._clock = clock
        self._pause = pause
        self._lock = Lock()
        self._known = Snapshot()
        self._due = clock()
        self._began: float | None = None

    def get(self) -> Snapshot:
        """Return what is known, after a new reading if one is due and does not take long.

        The first one may take long.
        """
        self._look(None if self._known == Snapshot() else _PAGE_SECONDS)
        return self._known

    def problem(self, wait: float = _PROBE_SECONDS) -> str | None:
        """Return why the lake cannot be read; None if it can. Probes give up after a second."""
        self._look(wait)
        known, began = self._known, self._began
        if known == Snapshot():
            return "the first reading is not done yet"
        if known.problem is None and began is not None and self._clock() - began > _PATIENCE:
            return f"it has not answered for {self._clock() - began:.0f} seconds"
        return known.problem

    def _look(self, wait: float | None) -> None:
        if self._clock() >= self._due:
            reading = Thread(target=self._read_if_due, name="reading", daemon=True)
            reading.start()
            reading.join(wait)

    def _read_if_due(self) -> None:
        if self._lock.acquire(blocking=self._known == Snapshot()):
            try:
                if self._clock() >= self._due:
                    self._update()
            finally:
                self._lock.release()

    def _update(self) -> None:
        self._began = began = self._clock()
        try:
            self._known = Snapshot(overview=self._read())
        except Exception as error:  # noqa: BLE001 - whatever it is, the page must say so
            reason = f"unexpected {type(error).__name__}: {error}"
            if isinstance(error, FloodmarkError):
                reason = error.message
            self._known = Snapshot(overview=self._known.overview, problem=reason)
        finally:
            self._began = None
            self._due = self._clock() + self._pause(self._clock() - began)
