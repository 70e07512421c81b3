"""Objects as files in a folder, with the guarantees of an object store.

An object is written to a temporary file in `.tmp` and then moved or linked into place, so a partial
file is never visible, even if the process dies. Writers briefly lock the object's folder; the
kernel releases the lock if its holder dies, and waiting for a suspended holder times out.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256

from floodmark.errors import (
    AccessDenied,
    ObjectNotFound,
    StorageError,
    StorageUnavailable,
    WriteConflict,
)
from floodmark.storage.folders import (
    create_file,
    entries,
    make_folder,
    path_of,
    temporary_folder,
    write_all,
)
from floodmark.storage.objects import ObjectInfo, ObjectStore, StoredObject, check_prefix

LOCK_SECONDS = 10.0

_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
# ENOENT: another process removed a folder while we were writing to it.
_PASSING = {
    errno.EINTR,
    errno.EAGAIN,
    errno.EIO,
    errno.ENOENT,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
_FULL = {errno.ENOSPC, errno.EDQUOT}
# An object store has no folders, so a folder is not an object.
_NO_OBJECT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class LocalObjectStore(ObjectStore):
    """A folder. Several processes may share it, also on a network file system with `flock`."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)

    def get(self, key: str) -> StoredObject:
        """Read an object."""
        with self._translated(key):
            try:
                with open(self._path(key), "rb") as file:
                    data = file.read()
            except _NO_OBJECT as error:
                raise ObjectNotFound(f"{self}/{key} does not exist") from error
        return StoredObject(data, _etag(data))

    def put(self, key: str, data: bytes) -> str:
        """Write an object, overwriting any other."""
        with self._translated(key), self._writing(key, data) as written:
            os.replace(written, self._path(key))
        return _etag(data)

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Write an object unless the key is taken."""
        with self._translated(key), self._writing(key, data) as written:
            try:
                # Unlike a rename, a link never replaces anything.
                os.link(written, self._path(key))
            except FileExistsError as error:
                if os.path.isdir(self._path(key)):
                    raise StorageError(f"{self}/{key} is a folder") from error
                raise WriteConflict(f"{self}/{key} exists already") from error
        return _etag(data)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """Replace the object with this etag."""
        with self._translated(key), self._writing(key, data) as written:
            try:
                current = self.get(key).etag
            except ObjectNotFound:
                raise WriteConflict(f"{self}/{key} is gone") from None
            if current != etag:
                raise WriteConflict(f"{self}/{key} has changed")
            os.replace(written, self._path(key))
        return _etag(data)

    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """List the objects under a prefix, in key order."""
        with self._translated(prefix), suppress(FileNotFoundError):
            yield from self._walk(self._folder(prefix), prefix, after)

    def list_folders(self, prefix: str) -> list[str]:
        """List the folders directly below a prefix."""
        with self._translated(prefix):
            try:
                found = entries(self._folder(prefix))
                return sorted(name for name, entry in found if entry.is_dir())
            except (FileNotFoundError, NotADirectoryError):
                return []

    def delete(self, key: str) -> None:
        """Remove an object."""
        path = self._path(key)
        # Lock, so as not to interfere between another writer's etag check and its write.
        locked = _locked_folder(os.path.dirname(path))
        with self._translated(key), suppress(*_NO_OBJECT), locked:
            os.unlink(path)

    def remove_unfinished(
        self, prefix: str, before: datetime, *, dry_run: bool = False
    ) -> list[str]:
        """Remove old files from `.tmp`; their keys are not known, so `prefix` is ignored."""
        removed = []
        with self._translated(prefix), suppress(FileNotFoundError):
            found = os.scandir(temporary_folder(self._root))
            for entry in sorted(found, key=lambda entry: entry.name):
                with suppress(FileNotFoundError):  # finished in the meantime
                    if entry.stat(follow_symlinks=False).st_mtime < before.timestamp():
                        removed.append(f".tmp/{entry.name}")
                        if not dry_run:
                            os.unlink(entry.path)
        return removed

    def __str__(self) -> str:
        return self._root

    def _path(self, key: str) -> str:
        return path_of(self._root, key)

    def _folder(self, prefix: str) -> str:
        return path_of(self._root, check_prefix(prefix).removesuffix("/")) if prefix else self._root

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        try:
            # Sort a folder by its name with the slash, as its keys sort.
            found = sorted(
                (name + "/" * entry.is_dir(), entry)
                for name, entry in entries(folder)
                if (below := f"{prefix}{name}/") > after or after.startswith(below)
            )
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, entry in found:
            key = prefix + name
            if name.endswith("/"):
                if key > after or after.startswith(key):
                    yield from self._walk(entry.path, key, after)
            elif key > after and entry.is_file():  # a pipe, for example, would block its reader
                with suppress(FileNotFoundError):  # removed since the folder was read
                    facts = entry.stat()
                    yield ObjectInfo(
                        key, facts.st_size, datetime.fromtimestamp(facts.st_mtime, tz=UTC)
                    )

    @contextmanager
    def _writing(self, key: str, data: bytes) -> Iterator[str]:
        """Write the data to a temporary file, and lock the key's folder."""
        path = self._path(key)
        temporary = temporary_folder(self._root)
        written = os.path.join(temporary, f"{os.getpid()}.{os.urandom(8).hex()}")
        make_folder(self._root, temporary)
        try:
            with create_file(self._root, written) as file:
                write_all(file, data)
                os.fsync(file.fileno())
            # If a file is in the way, locking the folder fails.
            make_folder(self._root, os.path.dirname(path))
            with _locked_folder(os.path.dirname(path)):
                yield written
        finally:
            with suppress(FileNotFoundError):
                os.unlink(written)

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        """Translate the operating system's errors into ours, by errno."""
        try:
            yield
        except OSError as error:
            message = f"{self}/{key}: {error.strerror}"
            if error.errno in _DENIED:
                raise AccessDenied(message, hint="check the folder's owner and mode") from error
            if error.errno in _PASSING:
                raise StorageUnavailable(message) from error
            hint = "make room on the disk" if error.errno in _FULL else None
            raise StorageError(message, hint=hint) from error


@contextmanager
def _locked_folder(path: str) -> Iterator[None]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(folder)
        try:
            yield
        finally:
            fcntl.flock(folder, fcntl.LOCK_UN)
        os.fsync(folder)
    finally:
        os.close(folder)


def _lock(folder: int) -> None:
    """Wait for the lock, which others hold only briefly unless they are suspended."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                reason = "another process has locked the folder; it may be suspended"
                raise OSError(errno.ETIMEDOUT, reason) from None
            time.sleep(0.001)
        else:
            return


def _etag(data: bytes) -> str:
    return sha256(data).hexdigest()
