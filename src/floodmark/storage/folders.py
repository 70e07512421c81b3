"""Files and folders of a lake in a folder: what they are called, and who may see them.

A lake that we make is its owner's alone. In a folder that was there before, whoever may enter the
folder may read what is added to it, and its group may write if it may write there: so the mode of
one folder says who shares a lake. Nothing that exists already is changed.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

from floodmark.storage.objects import check_key

_LONGEST = 255  # bytes of a name, in every usual file system
_PIECE = 250
_JOINT = "~"


def path_of(root: str, key: str) -> str:
    """Where an object lies; a part of its key that no file can be called is split over folders.

    `xxx…yyy…zzz` becomes `xxx…~/~yyy…~/~zzz`.
    """
    return os.path.join(root, *map(_split, check_key(key).split("/")))


def entries(folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What is in a folder, each under its part of a key; nothing that is hidden."""
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name.startswith("."):
                continue
            if len(entry.name) < _PIECE or not entry.name.endswith(_JOINT) or not entry.is_dir():
                yield entry.name, entry
                continue
            for name, rest in entries(entry.path):
                yield entry.name.removesuffix(_JOINT) + name.removeprefix(_JOINT), rest


def make_folder(root: str, path: str) -> None:
    """Make a folder of the lake, and those above it, unless they are there."""
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if parent == path:
            raise
        make_folder(root, parent)
        make_folder(root, path)
    except FileExistsError:
        return
    else:
        if path.startswith(f"{root}{os.sep}"):
            with suppress(PermissionError):  # a file system without modes
                os.chmod(path, 0o700 | _shared(root))


def create_file(root: str, path: str) -> IO[bytes]:
    """Create a file that is not there, to be written; FileExistsError if it is."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with suppress(PermissionError):
        os.fchmod(descriptor, 0o600 | _shared(root) & 0o064)
    return open(descriptor, "wb", buffering=0)


def write_all(file: IO[bytes], data: bytes) -> None:
    """Write everything; a system call may take a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _split(part: str) -> str:
    if len(os.fsencode(part)) <= _LONGEST:
        return part
    if not part.isascii():  # never ours, so there is no such file
        raise FileNotFoundError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), part)
    pieces = [part[start : start + _PIECE] for start in range(0, len(part), _PIECE)]
    return f"{_JOINT}/{_JOINT}".join(pieces)


def _shared(root: str) -> int:
    """What others than the owner may do in the lake; nobody but owner and group may write."""
    return os.stat(root).st_mode & (stat.S_ISGID | 0o075)
