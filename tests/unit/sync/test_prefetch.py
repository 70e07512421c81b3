"""Prefetch one item in a background thread."""

import threading
from collections.abc import Iterator

import pytest

from floodmark.sync.extract import prefetch


def test_items_keep_their_order() -> None:
    assert list(prefetch(iter(range(1, 9)))) == list(range(1, 9))
    assert list(prefetch(iter(()))) == []


def test_only_the_next_item_is_prefetched() -> None:
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


def test_an_error_is_raised_when_its_item_is_due() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise LookupError("gone")

    coming = prefetch(items())
    assert next(coming) == 1
    with pytest.raises(LookupError):
        next(coming)
