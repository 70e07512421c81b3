"""Write files to the lake; they become visible only when complete."""

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from secrets import token_hex

from floodmark.config.models import LakeSettings
from floodmark.errors import StorageError
from floodmark.storage.folders import (
    create_file,
    make_folder,
    path_of,
    temporary_folder,
    write_all,
)


class LakeFile(ABC):
    """A file that is being written. pyarrow uses it as a Python file.

    Its checksum is computed while writing: the SHA-256 of its bytes, which in a local lake is also
    its etag.
    """

    closed = False

    def __init__(self) -> None:
        self.size = 0
        self._hash = sha256()

    @property
    def checksum(self) -> str:
        """Return the checksum of all bytes written."""
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> int:
        """Append to the file."""
        self._append(data)
        self._hash.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:  # noqa: B027
        """Do nothing: only `finish` makes the file durable."""

    @abstractmethod
    def _append(self, data: bytes) -> None: ...

    @abstractmethod
    def finish(self) -> str:
        """Make the complete file visible, and return its etag."""

    @abstractmethod
    def abandon(self) -> None:
        """Discard the file. Idempotent."""


class LocalFile(LakeFile):
    """A file in a folder: written in `.tmp`, then moved to its place."""

    def __init__(self, root: str, key: str) -> None:
        super().__init__()
        self._root = os.path.abspath(root)
        self._path = path_of(self._root, key)
        with self._translated():
            temporary = temporary_folder(self._root)
            self._growing = os.path.join(temporary, f"{os.getpid()}.{token_hex(8)}")
            make_folder(self._root, temporary)
            self._file = create_file(self._root, self._growing)

    def finish(self) -> str:
        """Make the file durable, then visible."""
        folder = os.path.dirname(self._path)
        with self._translated():
            os.fsync(self._file.fileno())
            self._file.close()
            make_folder(self._root, folder)
            os.replace(self._growing, self._path)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return self._hash.hexdigest()

    def abandon(self) -> None:
        """Remove the partial file."""
        self._file.close()
        with suppress(OSError):
            os.unlink(self._growing)

    def _append(self, data: bytes) -> None:
        with self._translated():
            write_all(self._file, data)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = "make room on the disk" if error.errno == errno.ENOSPC else None
            raise StorageError(f"{self._path}: {error.strerror}", hint=hint) from error


def open_files(lake: LakeSettings, copies: str | None = None) -> Callable[[str], LakeFile]:
    """Return a function that creates a file in the lake, given its key.

    What is written to S3 is copied to the folder `copies`, if this machine has it.
    """
    if lake.is_s3:
        from floodmark.worker.s3_writer import S3Uploads, UploadedFile

        uploads = S3Uploads.to(lake)
        return lambda key: UploadedFile(uploads, key, copies)
    return lambda key: LocalFile(lake.url, key)
