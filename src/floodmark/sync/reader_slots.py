"""Share a source's connections between the windows that are read at once."""

from bisect import insort
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from threading import Condition
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Readers:
    """Counts the windows that are read from a source at once, by all tables. Thread-safe.

    Also the parts of loads that are copied into a warehouse at once.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._reading = 0
        self._waiting: list[int] = []
        self._turns = count()

    def turn(self) -> int:
        """Return the place in the queue: who got it first is served first."""
        return next(self._turns)

    def run(
        self,
        items: Sequence[Item],
        work: Callable[[Sequence[Item], Callable[[int], None]], list[Answer]],
        *,
        most: int,
        turn: int | None = None,
    ) -> list[Answer]:
        """Work on all items, in parts of as many as may be read; return the answers in order.

        Work may call its second argument with the number of its items that are done: others may
        begin then. Between two parts, an earlier turn is served before a later one.
        """
        turn = self.turn() if turn is None else turn
        answers: list[Answer] = []
        begun, part = 0, _Part()
        try:
            while begun < len(items):
                part = self._exchange(part, len(items) - begun, most, turn)
                begun += part.granted
                these = items[begun - part.granted : begun]
                answers += work(these, partial(self._give_back, part))
        finally:
            self._give_back(part, part.granted)
        return answers

    def _exchange(self, last: "_Part", wanted: int, most: int, turn: int) -> "_Part":
        """Give back a part's readers, and wait until it is our turn and some are free."""
        with self._changed:
            insort(self._waiting, turn)
            try:
                self._give_back(last, last.granted)
                self._changed.wait_for(lambda: self._waiting[0] == turn and self._reading < most)
                granted = min(wanted, most - self._reading)
                self._reading += granted
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()
            return _Part(granted)

    def _give_back(self, part: "_Part", done: int) -> None:
        """Let others use the readers of the items of a part that are done."""
        with self._changed:
            more = min(done, part.granted) - part.done
            if more > 0:
                part.done += more
                self._reading -= more
                self._changed.notify_all()


class _Part:
    """Some items that are read at once, and how many of them are done."""

    def __init__(self, granted: int = 0) -> None:
        self.granted = granted
        self.done = 0
