"""Process several items concurrently, and yield their results in order."""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Condition, Event
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def read_ahead(
    items: Iterator[Item],
    read: Callable[[Item], Answer],
    *,
    at_once: int,
    limit: Callable[[], int] | None = None,
    cancel: Callable[[], None] = lambda: None,
) -> Generator[Answer]:
    """Yield `read(item)` for each item, in order, while up to `at_once` of them are read.

    An item counts until the caller asks for the answer after its own, so never more than `at_once`
    are read or wait for the caller; one more item is fetched meanwhile. `limit` is asked after each
    fetched item, and may allow fewer. Items are fetched in a thread, one after another. An error is
    raised when its item is due, after the answers before it.

    Closing the iterator, or an error, ends everything: no further item is read, `cancel` is called
    to end those that are being read, and their threads are waited for.
    """
    over, changed, in_flight = Event(), Condition(), 0
    coming: SimpleQueue[Future[Answer] | None] = SimpleQueue()

    def add(change: int) -> None:
        nonlocal in_flight
        with changed:
            in_flight += change
            changed.notify_all()

    def wait_for_room(most: int) -> None:
        with changed:
            changed.wait_for(lambda: over.is_set() or in_flight < most)

    def feed() -> None:
        try:
            for item in items:
                wait_for_room(at_once if limit is None else min(at_once, limit()))
                if over.is_set():
                    return
                add(1)
                coming.put(pool.submit(read, item))
        except BaseException as error:  # noqa: BLE001 - raised for the caller
            failed: Future[Answer] = Future()
            failed.set_exception(error)
            coming.put(failed)
        else:
            coming.put(None)

    with ThreadPoolExecutor(at_once + 1) as pool:  # one of the threads feeds the others
        pool.submit(feed)
        try:
            while (answer := coming.get()) is not None:
                yield answer.result()
                add(-1)
        finally:
            over.set()
            add(-1)
            cancel()
            pool.shutdown(cancel_futures=True)
