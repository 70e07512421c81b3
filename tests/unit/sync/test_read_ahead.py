"""Items are read concurrently, and yielded in order."""

import threading
import time
from collections.abc import Iterator
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.sync.read_ahead import read_ahead


@settings(max_examples=30)
@given(items=st.integers(0, 20), at_once=st.integers(1, 4), seed=st.integers(0, 9))
def test_answers_keep_the_order_of_their_items(items: int, at_once: int, seed: int) -> None:
    random, lock = Random(seed), threading.Lock()
    reading, most = 0, 0

    def read(item: int) -> int:
        nonlocal reading, most
        with lock:
            reading += 1
            most = max(most, reading)
        time.sleep(random.random() / 1000)
        with lock:
            reading -= 1
        return 2 * item

    assert list(read_ahead(iter(range(items)), read, at_once=at_once)) == list(
        range(0, 2 * items, 2)
    )
    assert most <= at_once


def test_no_more_than_allowed_wait_for_the_caller() -> None:
    asked: list[int] = []
    began: list[int] = []
    third = threading.Event()

    def items() -> Iterator[int]:
        for number in count(1):
            asked.append(number)
            if number == 3:
                third.set()
            yield number

    def read(item: int) -> int:
        began.append(item)
        return item

    found = read_ahead(items(), read, at_once=2)
    assert next(found) == 1
    assert third.wait(10)
    time.sleep(0.05)
    assert (asked, began) == ([1, 2, 3], [1, 2])  # the first is not done with yet
    assert next(found) == 2
    found.close()
    assert began in ([1, 2], [1, 2, 3])


def test_the_first_failure_in_order_is_raised_after_what_came_before_it() -> None:
    second = threading.Event()

    def read(item: int) -> int:
        if item == 2:
            second.set()
            raise LookupError("second")
        if item == 3:
            raise LookupError("third")
        assert second.wait(10)
        return item

    found = read_ahead(iter(range(1, 9)), read, at_once=3)
    assert next(found) == 1
    with pytest.raises(LookupError, match="second"):
        next(found)


def test_an_item_that_cannot_be_found_is_raised_when_it_is_due() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise LookupError("gone")

    found = read_ahead(items(), lambda item: item, at_once=3)
    assert next(found) == 1
    with pytest.raises(LookupError, match="gone"):
        next(found)


def test_a_failure_cancels_what_is_read_and_waits_for_it() -> None:
    cancelled, ended, begun = threading.Event(), [], threading.Event()

    def read(item: int) -> int:
        if item == 1:
            assert begun.wait(10)
            raise LookupError
        begun.set()
        assert cancelled.wait(10)
        ended.append(item)
        return item

    with pytest.raises(LookupError):
        list(read_ahead(iter(range(1, 9)), read, at_once=2, cancel=cancelled.set))
    assert ended == [2]
    assert not [one for one in threading.enumerate() if "ThreadPool" in one.name]
