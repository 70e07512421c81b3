"""Copies of data files on this machine, from when they are written to S3 until they are loaded.

Only a saving: a file without a copy is fetched. A copy has the name of one attempt to write one
file, is seen whole or not at all, and its folder is removed with the command that needs it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape, glob
from hashlib import sha256
from shutil import rmtree
from tempfile import mkdtemp

from floodmark.storage.folders import write_all

_PREFIX = ".floodmark-copies-"
_GROWING = ".part"
_MOST_BYTES = 1024 * 1024 * 1024
_LEAST_FREE_BYTES = 4 * _MOST_BYTES


@contextmanager
def folder_of_copies(beside: str) -> Iterator[str | None]:
    """Make a private folder next to a file; None if that is impossible.

    Folders of commands that were killed are removed: nobody holds their locks.
    """
    parent = os.path.dirname(os.path.realpath(beside))
    for left in glob(f"{escape(parent)}/{_PREFIX}*"):
        with suppress(OSError), _locked(left):
            rmtree(left, ignore_errors=True)
    with ExitStack() as held:
        folder = None
        with suppress(OSError):
            made = mkdtemp(prefix=_PREFIX, dir=parent)
            held.callback(rmtree, made, ignore_errors=True)
            held.enter_context(_locked(made))
            folder = made
        yield folder


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lock a folder; OSError if another process has locked it, or has removed it just before."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(folder)
        yield
    finally:
        os.close(descriptor)


def copy_of(folder: str | None, key: str) -> str | None:
    """Return the path of a file's copy, None if there is none."""
    path = _path(folder, key) if folder else None
    return path if path and os.path.exists(path) else None


def remove_copy(folder: str | None, key: str) -> None:
    """Remove a file's copy, if there is one."""
    if folder:
        with suppress(OSError):
            os.unlink(_path(folder, key))


def _path(folder: str, key: str) -> str:
    return os.path.join(folder, f"{sha256(key.encode()).hexdigest()}.parquet")


class GrowingCopy:
    """A copy that is being written; if that fails, there is none, not even an older one."""

    def __init__(self, folder: str, key: str) -> None:
        self._path = _path(folder, key)
        self._file = None
        remove_copy(folder, key)  # a window that is started again writes the same files
        with suppress(OSError):
            if _has_room(folder):
                self._file = open(f"{self._path}{_GROWING}", "xb", buffering=0)  # noqa: SIM115

    def append(self, data: bytes) -> None:
        """Append to the copy."""
        if self._file is not None:
            try:
                write_all(self._file, data)
            except OSError:
                self.abandon()

    def finish(self) -> None:
        """Make the complete copy visible."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
                os.replace(self._file.name, self._path)

    def abandon(self) -> None:
        """Remove the partial copy. Idempotent."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
                os.unlink(self._file.name)
            self._file = None


def _has_room(folder: str) -> bool:
    """Whether copies, and what they are loaded into, leave space on the disk."""
    found, size = os.statvfs(folder), 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # renamed meanwhile
                size += entry.stat().st_size
    return size < _MOST_BYTES and found.f_bavail * found.f_frsize > _LEAST_FREE_BYTES
