"""Retry storage operations; the only place that does."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from random import Random
from typing import TypeVar

from msgspec import Struct

from floodmark.errors import ObjectNotFound, StorageUnavailable, WriteConflict
from floodmark.storage.objects import ObjectInfo, ObjectStore, StoredObject

T = TypeVar("T")


class Backoff(Struct, frozen=True):
    """How often to try, and how long to wait in between: exponential, with full jitter."""

    tries: int = 3
    first_seconds: float = 0.1
    most_seconds: float = 5.0

    def pause(self, failures: int, random: Random) -> float:
        """Return the seconds to wait after this many failures."""
        doublings = min(failures - 1, 60)  # far above any maximum, and a float does not overflow
        return random.uniform(0.0, min(self.most_seconds, self.first_seconds * 2.0**doublings))


class RetryingObjectStore(ObjectStore):
    """Wrap another store and retry after transient faults.

    A write whose response was lost may have succeeded. So if a retried conditional write conflicts,
    compare the stored object: if its bytes are ours, our write succeeded. Writers that compete for
    a key must therefore write something unique.
    """

    def __init__(
        self,
        store: ObjectStore,
        backoff: Backoff,
        *,
        sleep: Callable[[float], None],
        random: Random,
    ) -> None:
        self._store = store
        self._backoff = backoff
        self._sleep = sleep
        self._random = random

    def get(self, key: str) -> StoredObject:
        """Read an object."""
        return self._retried(lambda: self._store.get(key))

    def put(self, key: str, data: bytes) -> str:
        """Write an object, overwriting any other."""
        return self._retried(lambda: self._store.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Write an object unless the key is taken."""
        return self._conditional(key, data, lambda: self._store.put_if_absent(key, data))

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """Replace the object with this etag."""
        return self._conditional(key, data, lambda: self._store.put_if_match(key, data, etag))

    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """List the objects under a prefix; a failed listing resumes after its last key."""
        failures = 0
        while True:
            try:
                for info in self._store.list_objects(prefix, after=after):
                    yield info
                    after, failures = info.key, 0
            except StorageUnavailable:
                failures += 1
                if failures >= self._backoff.tries:
                    raise
                self._sleep(self._backoff.pause(failures, self._random))
            else:
                return

    def list_folders(self, prefix: str) -> list[str]:
        """List the folders directly below a prefix."""
        return self._retried(lambda: self._store.list_folders(prefix))

    def delete(self, key: str) -> None:
        """Remove an object."""
        self._retried(lambda: self._store.delete(key))

    def remove_unfinished(
        self, prefix: str, before: datetime, *, dry_run: bool = False
    ) -> list[str]:
        """Remove incomplete uploads of dead writers."""
        return self._retried(lambda: self._store.remove_unfinished(prefix, before, dry_run=dry_run))

    def __str__(self) -> str:
        return str(self._store)

    def _conditional(self, key: str, data: bytes, write: Callable[[], str]) -> str:
        uncertain = False

        def attempt() -> str:
            nonlocal uncertain
            try:
                return write()
            except StorageUnavailable:
                uncertain = True
                raise
            except WriteConflict:
                if uncertain:
                    with suppress(ObjectNotFound):
                        found = self._store.get(key)
                        if found.data == data:
                            return found.etag
                raise

        return self._retried(attempt)

    def _retried(self, attempt: Callable[[], T]) -> T:
        failures = 0
        while True:
            try:
                return attempt()
            except StorageUnavailable:
                failures += 1
                if failures >= self._backoff.tries:
                    raise
            self._sleep(self._backoff.pause(failures, self._random))
