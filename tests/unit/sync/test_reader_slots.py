"""Windows that share a source's connections."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.sync.reader_slots import Readers

Work = Callable[[Sequence[int], Callable[[int], None]], list[int]]


@settings(max_examples=30)
@given(chunks=st.lists(st.integers(0, 9), max_size=8), most=st.integers(1, 6))
def test_never_more_at_once_and_every_answer_in_order(chunks: list[int], most: int) -> None:
    readers, lock = Readers(), threading.Lock()
    reading, seen = 0, [0]

    def work(part: Sequence[int], finished: Callable[[int], None]) -> list[int]:
        nonlocal reading
        with lock:
            reading += len(part)
            seen.append(reading)
        for number in range(1, len(part) + 1):
            with lock:
                reading -= 1
            finished(number)
        return [2 * number for number in part]

    with ThreadPoolExecutor(8) as pool:
        running = [
            pool.submit(readers.run, range(windows), work, most=most, turn=readers.turn())
            for windows in chunks
        ]
        answers = [one.result(timeout=30) for one in running]
    assert answers == [[2 * number for number in range(windows)] for windows in chunks]
    assert max(seen) <= most


def test_the_earlier_turn_is_served_first_even_between_its_parts() -> None:
    readers = Readers()
    first, second, third = (readers.turn() for _ in range(3))
    served: list[int] = []
    waiting: list[Future[list[int]]] = []

    def work(turn: int, part: Sequence[int]) -> list[int]:
        served.append(turn)
        if not waiting:
            for later in (third, second):
                one = pool.submit(readers.run, range(1), _serve(work, later), most=1, turn=later)
                waiting.append(one)
            while len(readers._waiting) < 2:
                pass
        return list(part)

    with ThreadPoolExecutor(2) as pool:
        assert readers.run(range(2), _serve(work, first), most=1, turn=first) == [0, 1]
        for one in waiting:
            one.result(timeout=30)
    assert served == [first, first, second, third]


def _serve(work: Callable[[int, Sequence[int]], list[int]], turn: int) -> Work:
    return lambda part, _finished: work(turn, part)


def test_others_use_the_readers_of_windows_that_are_done() -> None:
    """A part does not wait for its last window while others could read."""
    readers = Readers()
    another = threading.Event()

    def read(part: Sequence[int], finished: Callable[[int], None]) -> list[int]:
        if len(part) == 3:
            finished(2)
            assert another.wait(10)
        return list(part)

    def read_others(part: Sequence[int], _finished: Callable[[int], None]) -> list[int]:
        assert len(part) == 2
        another.set()
        return list(part)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(readers.run, range(3), read, most=3)
        second = pool.submit(readers.run, range(2), read_others, most=3)
        assert first.result(timeout=30) == [0, 1, 2]
        assert second.result(timeout=30) == [0, 1]


def test_a_failure_frees_its_readers() -> None:
    readers = Readers()

    def fail(_part: Sequence[int], _finished: Callable[[int], None]) -> list[int]:
        raise LookupError

    with pytest.raises(LookupError):
        readers.run(range(5), fail, most=3)
    assert readers.run(range(5), lambda part, _: list(part), most=3) == [0, 1, 2, 3, 4]
