"""Finding the next while the current one is worked on."""

import threading
from collections.abc import Iterator

import pytest

from floodmark.sync.extract import prefetch


def test_all_come_in_their_order() -> None:
    assert list(prefetch(iter(range(1, 9)))) == list(range(1, 9))
    assert list(prefetch(iter(()))) == []


def test_the_next_is_found_meanwhile_and_no_more() -> None:
    found = threading.Semaphore(0)
    asked = []

    def items() -> Iterator[int]:
        for number in range(1, 5):
            asked.append(number)
            found.release()
            yield number

    coming = prefetch(items())
    assert next(coming) == 1
    for _ in range(2):
        assert found.acquire(timeout=10)
    assert asked == [1, 2]
    coming.close()  # type: ignore[attr-defined]
    assert asked == [1, 2]


def test_what_goes_wrong_comes_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise LookupError("gone")

    coming = prefetch(items())
    assert next(coming) == 1
    with pytest.raises(LookupError):
        next(coming)
