"""A class-data sharing archive: the JVM maps Spark's classes instead of loading them.

With it, Spark starts in less than half the time. The JVM that runs Spark writes it at exit; a later
JVM ignores it if it does not match (another Java, other jars). The JVM's arguments are saved next
to it.

The JVM runs code from the archive. So both files are used only if nobody else can have written
them: the folder and the files must be our own, and must not be links. Otherwise Spark starts
without them.
"""

import os
import time
from contextlib import suppress
from glob import escape as glob_escape
from glob import glob
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from secrets import token_hex
from stat import S_IMODE, S_ISREG, S_IWGRP, S_IWOTH

from msgspec import DecodeError, Struct, json

from floodmark.spark.own_folder import make_own_folder

_QUIET = "-Xlog:disable -Xlog:all=off"
_LEFTOVER_SECONDS = 3600.0
_OWN_FILE = 0o600
_OTHERS_WRITE = S_IWGRP | S_IWOTH


class ClassArchive(Struct, frozen=True):
    """The path of the archive, and of a new one that is being written."""

    path: str
    unfinished: str

    @property
    def exists(self) -> bool:
        """Whether there is an archive to use."""
        return _is_ours(self.path)

    @property
    def options(self) -> str:
        """Return the Java options that use the archive, or write one at exit."""
        if self.exists:
            return f"-XX:SharedArchiveFile={self.path} -Xshare:auto {_QUIET}"
        return f"-XX:ArchiveClassesAtExit={self.unfinished} {_QUIET}"

    @property
    def jvm_args(self) -> list[str] | None:
        """Return the arguments of the JVM that left the archive, if they are known."""
        if not _is_ours(self._args_path):
            return None
        with suppress(OSError, DecodeError), open(self._args_path, "rb") as file:
            return json.decode(file.read(), type=list[str])
        return None

    def keep(self) -> None:
        """Move a newly written archive into place, if there is one."""
        with suppress(OSError):
            os.chmod(self.unfinished, _OWN_FILE)
            os.replace(self.unfinished, self.path)

    def note(self, args: list[str]) -> None:
        """Save the arguments of a JVM."""
        with suppress(OSError):
            fresh = os.open(self.unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWN_FILE)
            with open(fresh, "wb") as file:
                file.write(json.encode(args))
            os.replace(self.unfinished, self._args_path)

    @property
    def _args_path(self) -> str:
        return f"{self.path.removesuffix('.jsa')}.json"

    def discard(self) -> None:
        """Remove an unfinished archive."""
        with suppress(OSError):
            os.unlink(self.unfinished)

    def remove(self) -> None:
        """Remove the archive and the arguments, so that the next start writes them again."""
        for path in (self.path, self._args_path, self.unfinished):
            with suppress(OSError):
                os.unlink(path)


def find_archive(java: str, environment: dict[str, str]) -> ClassArchive | None:
    """Return the archive for this Java and this Spark; None if there is no safe place for it."""
    cache = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "floodmark")
    path = os.path.join(folder, f"spark-{_mark(java)}.jsa")
    # Spark splits Java options at spaces; and without a home directory the path is not absolute.
    if " " in path or not os.path.isabs(path) or not make_own_folder(folder):
        return None
    _remove_leftovers(path)
    if not os.access(folder, os.W_OK) and not os.path.exists(path):
        return None
    return ClassArchive(path, f"{path}.{os.getpid()}.{token_hex(4)}")


def _is_ours(path: str) -> bool:
    """Whether a file exists that only we can have written."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    mine = status.st_uid == os.geteuid() and not S_IMODE(status.st_mode) & _OTHERS_WRITE
    return S_ISREG(status.st_mode) and mine


def _mark(java: str) -> str:
    """Return a fingerprint of this Java, its own class archive, and this Spark."""
    program = os.path.realpath(java)
    own_classes = os.path.join(os.path.dirname(program), "..", "lib", "server", "classes.jsa")
    made = [os.stat(path).st_mtime_ns for path in (program, own_classes) if os.path.exists(path)]
    spark = find_spec("pyspark")
    facts = f"{program} {made} {spark and spark.origin} {version('pyspark')} core"
    return sha256(facts.encode()).hexdigest()[:16]


def _remove_leftovers(path: str) -> None:
    """Remove unfinished archives of killed runs."""
    for leftover in glob(f"{glob_escape(path)}.*"):
        with suppress(OSError):
            if time.time() - os.stat(leftover).st_mtime > _LEFTOVER_SECONDS:
                os.unlink(leftover)
