"""Objects in memory, for tests and experiments."""

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from threading import Lock

from floodmark.errors import ObjectNotFound, WriteConflict
from floodmark.storage.objects import ObjectInfo, ObjectStore, StoredObject, check_key, check_prefix


class MemoryObjectStore(ObjectStore):
    """Objects that last as long as the process."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[StoredObject, datetime]] = {}
        self._lock = Lock()

    def get(self, key: str) -> StoredObject:
        """Read an object."""
        try:
            return self._objects[check_key(key)][0]
        except KeyError:
            raise ObjectNotFound(f"{self}/{key} does not exist") from None

    def put(self, key: str, data: bytes) -> str:
        """Write an object, overwriting any other."""
        with self._lock:
            return self._write(key, data)

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Write an object unless the key is taken."""
        with self._lock:
            if check_key(key) in self._objects:
                raise WriteConflict(f"{self}/{key} exists already")
            return self._write(key, data)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """Replace the object with this etag."""
        with self._lock:
            found = self._objects.get(check_key(key))
            if found is None or found[0].etag != etag:
                raise WriteConflict(f"{self}/{key} has changed")
            return self._write(key, data)

    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """List the objects under a prefix, in key order."""
        check_prefix(prefix)
        with self._lock:
            found = sorted(self._objects.items())
        for key, (stored, modified) in found:
            if key.startswith(prefix) and key > after:
                yield ObjectInfo(key, len(stored.data), modified)

    def list_folders(self, prefix: str) -> list[str]:
        """List the folders directly below a prefix."""
        check_prefix(prefix)
        with self._lock:
            rests = [key[len(prefix) :] for key in self._objects if key.startswith(prefix)]
        return sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def delete(self, key: str) -> None:
        """Remove an object."""
        with self._lock:
            self._objects.pop(check_key(key), None)

    def __str__(self) -> str:
        return "memory"

    def _write(self, key: str, data: bytes) -> str:
        etag = sha256(data).hexdigest()
        self._objects[check_key(key)] = (StoredObject(bytes(data), etag), datetime.now(UTC))
        return etag
