"""A folder of another object store, as a store of its own."""

from collections.abc import Iterator
from datetime import datetime

from floodmark.storage.objects import ObjectInfo, ObjectStore, StoredObject, check_prefix


class PrefixedObjectStore(ObjectStore):
    """The objects of another store under a prefix, which is not part of their keys here."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = check_prefix(prefix)

    def get(self, key: str) -> StoredObject:
        """Read an object."""
        return self._store.get(self._prefix + key)

    def put(self, key: str, data: bytes) -> str:
        """Write an object, overwriting any other."""
        return self._store.put(self._prefix + key, data)

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Write an object unless the key is taken."""
        return self._store.put_if_absent(self._prefix + key, data)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """Replace the object with this etag."""
        return self._store.put_if_match(self._prefix + key, data, etag)

    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """List the objects under a prefix, in key order."""
        start = self._prefix + after if after else ""
        for info in self._store.list_objects(self._prefix + prefix, after=start):
            yield ObjectInfo(info.key.removeprefix(self._prefix), info.size, info.modified)

    def list_folders(self, prefix: str) -> list[str]:
        """List the folders directly below a prefix."""
        return self._store.list_folders(self._prefix + prefix)

    def delete(self, key: str) -> None:
        """Remove an object."""
        self._store.delete(self._prefix + key)

    def remove_unfinished(
        self, prefix: str, before: datetime, *, dry_run: bool = False
    ) -> list[str]:
        """Remove incomplete uploads of dead writers."""
        return self._store.remove_unfinished(self._prefix + prefix, before, dry_run=dry_run)

    def __str__(self) -> str:
        return f"{self._store}/{self._prefix.rstrip('/')}"
