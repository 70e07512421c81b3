"""The private folder of a user's background Spark sessions."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from stat import S_IMODE, S_ISREG

from floodmark.spark.own_folder import make_own_folder

_OWN_FILE = 0o600
_NAMES = ("sock", "secret", "lock")


class Unavailable(Exception):
    """Why there is no background Spark to attach to."""


class NotListening(Unavailable):
    """Nobody listens at the socket of a server: it does not run, or has not started yet."""


class Place:
    """An open folder. Its files are reached through its descriptor.

    So the folder cannot be exchanged, and the path of a socket is short enough.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def reach(self, name: str) -> str:
        """Return a short path to a file."""
        return f"/proc/self/fd/{self._descriptor}/{name}"

    def server_keys(self) -> list[str]:
        """Return the keys of all servers that run or start, or left files behind."""
        names = os.listdir(self._descriptor)
        return sorted(name.removesuffix(".lock") for name in names if name.endswith(".lock"))

    def lock(self, key: str) -> int | None:
        """Take the lock of a server; return a descriptor that holds it, or None if it is taken."""
        while True:
            descriptor = self._open(f"{key}.lock", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            if self._is_current(key, descriptor):
                return descriptor
            os.close(descriptor)  # its holder has just removed it

    def write_secret(self, key: str, secret: bytes) -> None:
        """Write the secret of a server."""
        with suppress(FileNotFoundError):
            os.unlink(f"{key}.secret", dir_fd=self._descriptor)
        with open(self._open(f"{key}.secret", os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(secret)

    def read_secret(self, key: str) -> bytes:
        """Read the secret of a server; Unavailable if others may have written it."""
        try:
            with open(self._open(f"{key}.secret", os.O_RDONLY), "rb") as file:
                status = os.fstat(file.fileno())
                own = status.st_uid == os.geteuid() and not S_IMODE(status.st_mode) & 0o077
                if not own or not S_ISREG(status.st_mode):
                    raise Unavailable(f"others can read or write {self.path}/{key}.secret")
                return file.read()
        except FileNotFoundError as error:
            raise NotListening("the server has just ended") from error
        except OSError as error:
            raise Unavailable(f"{self.path}/{key}.secret: {error.strerror}") from error

    def publish_socket(self, key: str) -> None:
        """Move a socket that is listened at into place."""
        new, name = f"{key}.new", f"{key}.sock"
        os.chmod(new, _OWN_FILE, dir_fd=self._descriptor)
        os.rename(new, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def clear_socket(self, key: str) -> None:
        """Remove what a start that failed left behind."""
        with suppress(FileNotFoundError):
            os.unlink(f"{key}.new", dir_fd=self._descriptor)

    def owns(self, key: str, lock: int) -> bool:
        """Whether a server with this lock can still be found."""
        try:
            os.stat(f"{key}.sock", dir_fd=self._descriptor)
        except OSError:
            return False
        return self._is_current(key, lock)

    def withdraw(self, key: str, lock: int) -> None:
        """Remove the files of a server, unless they are another one's already."""
        if self._is_current(key, lock):
            for name in _NAMES:
                with suppress(OSError):
                    os.unlink(f"{key}.{name}", dir_fd=self._descriptor)

    def _is_current(self, key: str, lock: int) -> bool:
        try:
            return os.path.samestat(
                os.stat(f"{key}.lock", dir_fd=self._descriptor, follow_symlinks=False),
                os.fstat(lock),
            )
        except OSError:
            return False

    def _open(self, name: str, flags: int) -> int:
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, _OWN_FILE, dir_fd=self._descriptor)


@contextmanager
def open_place(path: str) -> Iterator[Place]:
    """Open the folder, and create it if necessary; Unavailable unless only we can write there."""
    if not make_own_folder(path):
        raise Unavailable(f"{path} is not a folder that only this user can open")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or S_IMODE(status.st_mode) & 0o077:
            raise Unavailable(f"others can open {path}")
        yield Place(path, descriptor)
    finally:
        os.close(descriptor)


def place_path(environment: Mapping[str, str], name: str = "background-spark") -> str:
    """Return where a folder is; Unavailable without a home directory."""
    cache = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(cache):
        raise Unavailable("there is no home directory; set HOME or XDG_CACHE_HOME")
    return os.path.join(cache, "floodmark", name)
