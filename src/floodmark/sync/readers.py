"""Share a source's connections between the windows that are read at once."""

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from threading import Condition
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Readers:
    """Counts the windows that are read from a source at once, by all tables. Thread-safe."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._reading = 0
        self._waiting: list[int] = []
        self._turns = count()

    def turn(self) -> int:
        """Return the place in the queue: who got it first is served first."""
        return next(self._turns)

    @contextmanager
    def take(self, wanted: int, most: int, turn: int) -> Iterator[int]:
        """Wait until it is our turn and fewer than `most` windows are read; yield how many may be.

        At least one, and at most as many as `wanted`.
        """
        with self._changed:
            insort(self._waiting, turn)
            try:
                self._changed.wait_for(lambda: self._waiting[0] == turn and self._reading < most)
                granted = min(wanted, most - self._reading)
                self._reading += granted
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()
        try:
            yield granted
        finally:
            with self._changed:
                self._reading -= granted
                self._changed.notify_all()

    def run(
        self,
        items: Sequence[Item],
        work: Callable[[Sequence[Item]], list[Answer]],
        *,
        most: int,
        turn: int | None = None,
    ) -> list[Answer]:
        """Work on all items, in parts of as many as may be read; return the answers in order."""
        turn = self.turn() if turn is None else turn
        answers: list[Answer] = []
        done = 0
        while done < len(items):
            with self.take(len(items) - done, most, turn) as granted:
                answers += work(items[done : done + granted])
            done += granted
        return answers
