"""The object store interface, through which Floodmark stores everything."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from floodmark.errors import StorageError


class StoredObject(Struct, frozen=True):
    """An object's content and ETag, which changes whenever the content does."""

    data: bytes
    etag: str


class ObjectInfo(Struct, frozen=True):
    """An entry of a listing."""

    key: str
    size: int
    modified: datetime


class ObjectStore(ABC):
    """Objects under keys such as `watermarks/v2/A/b.c.json`.

    A reader sees a whole object or none, never a part. Once a write has returned, every reader sees
    it. Any method may raise StorageUnavailable for a transient fault, AccessDenied, or another
    StorageError; after StorageUnavailable, a write may or may not have happened.
    """

    @abstractmethod
    def get(self, key: str) -> StoredObject:
        """Read an object; ObjectNotFound if there is none."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> str:
        """Write an object, overwriting any other, and return its etag. Idempotent."""

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes) -> str:
        """Write an object and return its etag; WriteConflict if the key is taken."""

    @abstractmethod
    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """Replace the object with this etag and return the new one.

        WriteConflict if the object has changed or is gone.
        """

    @abstractmethod
    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """List the objects whose keys start with a prefix, in key order.

        The prefix ends in `/`; an empty one means everything. With `after`, which need not exist,
        only keys that sort after it. Works for any number of objects.
        """

    @abstractmethod
    def list_folders(self, prefix: str) -> list[str]:
        """List the folders directly below a prefix, in order, without the prefix.

        A folder whose last object was deleted may still be listed.
        """

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; do nothing if there is none. Idempotent."""

    def remove_unfinished(
        self,
        prefix: str,  # noqa: ARG002
        before: datetime,  # noqa: ARG002
        *,
        dry_run: bool = False,  # noqa: ARG002
    ) -> list[str]:
        """Remove incomplete uploads under a prefix from before a time; return their names.

        A store whose writes leave nothing behind does nothing.
        """
        return []

    @abstractmethod
    def __str__(self) -> str:
        """Return the store's address for messages, without secrets."""


def check_key(key: str) -> str:
    """Return the key; StorageError if it could mean different things to different stores."""
    if not is_key(key):
        raise StorageError(f"{key!r} is not an object key")
    return key


def is_key(text: str) -> bool:
    """Return whether a text means the same object to every store, and none outside the lake."""
    return text.isprintable() and all(part[:1] not in ("", ".") for part in text.split("/"))


def check_prefix(prefix: str) -> str:
    """Return the prefix; StorageError if it is neither empty nor a key followed by `/`."""
    if prefix:
        check_key(prefix.removesuffix("/"))
        if not prefix.endswith("/"):
            raise StorageError(f"prefix {prefix!r} does not end in '/'")
    return prefix
