"""Windows that share a source's connections."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.sync.readers import Readers


@settings(max_examples=30)
@given(chunks=st.lists(st.integers(0, 9), max_size=8), most=st.integers(1, 6))
def test_never_more_at_once_and_every_answer_in_order(chunks: list[int], most: int) -> None:
    readers, lock = Readers(), threading.Lock()
    reading, seen = 0, [0]

    def work(part: Sequence[int]) -> list[int]:
        nonlocal reading
        with lock:
            reading += len(part)
            seen.append(reading)
        with lock:
            reading -= len(part)
        return [2 * number for number in part]

    with ThreadPoolExecutor(8) as pool:
        running = [
            pool.submit(readers.run, range(windows), work, most=most, turn=readers.turn())
            for windows in chunks
        ]
        answers = [one.result(timeout=30) for one in running]
    assert answers == [[2 * number for number in range(windows)] for windows in chunks]
    assert max(seen) <= most


def test_the_earlier_turn_is_served_first() -> None:
    readers = Readers()
    first, second, third = (readers.turn() for _ in range(3))
    served: list[int] = []
    with ThreadPoolExecutor(2) as pool:
        with readers.take(1, 1, first):
            waiting = [pool.submit(_serve, readers, turn, served) for turn in (third, second)]
            while len(readers._waiting) < 2:
                pass
        for one in waiting:
            one.result(timeout=30)
    assert served == [second, third]


def _serve(readers: Readers, turn: int, served: list[int]) -> None:
    with readers.take(1, 1, turn):
        served.append(turn)


def test_a_failure_frees_its_readers() -> None:
    readers = Readers()

    def fail(_part: Sequence[int]) -> list[int]:
        raise LookupError

    with pytest.raises(LookupError):
        readers.run(range(5), fail, most=3)
    assert readers.run(range(5), list, most=3) == [0, 1, 2, 3, 4]
