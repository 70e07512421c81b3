"""Names and permissions of the files and folders of a local lake.

A lake that we create is private to its owner. In an existing folder, new files inherit the folder's
read permissions, and its group's write permission: the mode of one folder decides who shares the
lake. Existing files are never changed.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

from floodmark.errors import StorageError
from floodmark.storage.objects import check_key

_LONGEST = 255  # bytes of a file name, in all common file systems
_PIECE = 250
_JOINT = "~"


def path_of(root: str, key: str) -> str:
    """Return the path of an object; parts of the key that are too long are split into folders.

    `xxx…yyy…zzz` becomes `xxx…~/~yyy…~/~zzz`.
    """
    return os.path.join(root, *map(_split, check_key(key).split("/")))


def entries(folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the visible entries of a folder, each with its part of the key."""
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name.startswith("."):
                continue
            if len(entry.name) < _PIECE or not entry.name.endswith(_JOINT) or not entry.is_dir():
                yield entry.name, entry
                continue
            for name, rest in entries(entry.path):
                yield entry.name.removesuffix(_JOINT) + name.removeprefix(_JOINT), rest


def temporary_folder(root: str) -> str:
    """Return the path of the folder for unfinished files, which need not exist.

    StorageError if it is not a folder: a link may lead out of the lake.
    """
    path = os.path.join(root, ".tmp")
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not stat.S_ISDIR(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "not a folder"
            raise StorageError(f"{path} is {kind}", hint="remove it; a run creates the folder")
    return path


def make_folder(root: str, path: str, *, tries: int = 20) -> None:
    """Create a folder of the lake and its parents, unless they exist.

    Somebody may remove a parent meanwhile. But some places take no folders, and say the same.
    """
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if parent == path or tries == 0:
            raise
        make_folder(root, parent)
        make_folder(root, path, tries=tries - 1)
    except FileExistsError:
        return
    else:
        if path.startswith(f"{root}{os.sep}"):
            with suppress(PermissionError):  # a file system without modes
                os.chmod(path, 0o700 | _shared(root))


def create_file(root: str, path: str) -> IO[bytes]:
    """Create a file and open it for writing; FileExistsError if it exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with suppress(PermissionError):
        os.fchmod(descriptor, 0o600 | _shared(root) & 0o064)
    return open(descriptor, "wb", buffering=0)


def write_all(file: IO[bytes], data: bytes) -> None:
    """Write everything; one system call may write only a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _split(part: str) -> str:
    if len(os.fsencode(part)) <= _LONGEST:
        return part
    if not part.isascii():  # never written by us, so it does not exist
        raise FileNotFoundError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), part)
    pieces = [part[start : start + _PIECE] for start in range(0, len(part), _PIECE)]
    return f"{_JOINT}/{_JOINT}".join(pieces)


def _shared(root: str) -> int:
    """Return the mode bits for users other than the owner; only the group may write."""
    return os.stat(root).st_mode & (stat.S_ISGID | 0o075)
