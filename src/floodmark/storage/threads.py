"""Requests to an object store, several at once."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_AT_ONCE = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], *, at_once: int = _AT_ONCE
) -> list[Result]:
    """Call a function for every item, several at once; return the results in the same order."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(function, items))
