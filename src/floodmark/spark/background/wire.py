"""What a command and a background Spark send each other, once each has proven who it is.

Both check that the other process has the same user id, which the kernel tells, and that it knows
the server's secret: each answers a random challenge of the other one. Until then nothing is read
but challenges and answers of fixed length. Then messages follow, each after its length.
"""

import hmac
import os
import socket
import struct
from secrets import token_bytes
from threading import Lock
from typing import TypeVar

import msgspec
from msgspec import Struct

from floodmark.config.models import SparkSettings
from floodmark.spark.background.place import NotListening
from floodmark.worker.job_context import JobContext

_LENGTH = struct.Struct(">Q")
_PEER = struct.Struct("3i")  # process, user, group
_CHALLENGE_BYTES = 32
_PROOF_BYTES = 32
_PROVING_SECONDS = 10.0
_MOST_BYTES = 1 << 30


class Order(Struct, frozen=True, kw_only=True):
    """What a command tells the server that it starts, on stdin."""

    folder: str
    key: str
    lock: int
    settings: SparkSettings
    keep_seconds: float


class Started(Struct, frozen=True, kw_only=True):
    """What the server answers, on stdout: that it listens, or why it does not."""

    error: str | None = None
    hint: str | None = None
    place_failed: bool = False


class Attach(Struct, frozen=True, tag=True):
    """Use the server until the connection ends; it then stays for some seconds."""

    keep_seconds: float


class Run(Struct, frozen=True, tag=True):
    """Run tasks; the end of the connection cancels them. `task` is pickled."""

    title: str
    task: bytes
    tasks: int
    context: JobContext


class Ask(Struct, frozen=True, tag=True):
    """Describe yourself."""


class Stop(Struct, frozen=True, tag=True):
    """Accept no more commands, and end after those that run; or end `now`."""

    now: bool


Request = Attach | Run | Ask | Stop


class Ready(Struct, frozen=True, tag=True):
    """The server may be used."""

    slots: int
    tries: int


class Progress(Struct, frozen=True, tag=True):
    """The number of tasks done."""

    done: int


class Answers(Struct, frozen=True, tag=True):
    """The answers of all tasks."""

    answers: list[str]


class Failed(Struct, frozen=True, tag=True):
    """A task failed, or `broken`: Spark itself did."""

    reason: str
    broken: bool = False


class State(Struct, frozen=True, tag=True, kw_only=True):
    """What a server says about itself. `memory_bytes` is that of all its processes."""

    pid: int
    version: str
    master: str
    started_at: float
    idle_seconds: float
    keep_seconds: float
    commands: int
    jobs: int
    jobs_done: int
    memory_bytes: int


Reply = Ready | Progress | Answers | Failed | State
Message = TypeVar("Message")


class Lost(Exception):
    """The other side ended the connection, or sent what cannot be understood."""


class Channel:
    """An authenticated connection. Sending is thread-safe."""

    def __init__(self, connection: socket.socket, secret: bytes, *, serving: bool) -> None:
        self._socket = connection
        self._sending = Lock()
        self._check_user()
        try:
            connection.settimeout(_PROVING_SECONDS)
            self._prove(secret, serving=serving)
            connection.settimeout(None)
        except OSError as error:
            raise Lost(str(error) or "no answer") from error

    def send(self, message: Request | Reply) -> None:
        """Send a message; Lost if the other side is gone."""
        data = msgspec.msgpack.encode(message)
        try:
            with self._sending:
                self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise Lost(str(error)) from error

    def receive(self, kind: type[Message], seconds: float | None = None) -> Message:
        """Wait for a message; Lost if the connection ends before."""
        try:
            self._socket.settimeout(seconds)
            (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
            if length > _MOST_BYTES:
                raise Lost(f"a message of {length:,} bytes")
            return msgspec.msgpack.decode(self._read(length), type=kind)
        except (OSError, msgspec.DecodeError) as error:
            raise Lost(str(error) or "no answer") from error

    def wait_for_end(self) -> None:
        """Wait until the other side ends the connection, or `end` is called."""
        try:
            self._socket.settimeout(None)
            while self._socket.recv(4096):
                pass
        except OSError:
            return

    def is_open(self) -> bool:
        """Whether the other side, which sends nothing now, has not ended the connection."""
        try:
            self._socket.settimeout(0)
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def end(self) -> None:
        """End the connection in both directions; `wait_for_end` returns."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """End the connection, and free it."""
        self.end()
        self._socket.close()

    @staticmethod
    def peer_of(connection: socket.socket) -> int:
        """Return the number of the process at the other end, as the kernel tells."""
        return _credentials(connection)[0]

    def _check_user(self) -> None:
        user = _credentials(self._socket)[1]
        if user != os.geteuid():
            raise Lost(f"the other process belongs to user {user}")

    def _prove(self, secret: bytes, *, serving: bool) -> None:
        ours = token_bytes(_CHALLENGE_BYTES)
        if serving:
            self._socket.sendall(ours)
            theirs = self._read(_CHALLENGE_BYTES)
            self._require(self._read(_PROOF_BYTES), secret, b"command", ours + theirs)
            self._socket.sendall(hmac.digest(secret, b"server" + ours + theirs, "sha256"))
            return
        theirs = self._read(_CHALLENGE_BYTES)
        self._socket.sendall(ours + hmac.digest(secret, b"command" + theirs + ours, "sha256"))
        self._require(self._read(_PROOF_BYTES), secret, b"server", theirs + ours)

    def _require(self, proof: bytes, secret: bytes, who: bytes, challenges: bytes) -> None:
        expected = hmac.digest(secret, who + challenges, "sha256")
        if not secret or not hmac.compare_digest(proof, expected):
            raise Lost("the other process does not know the secret")

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise Lost("the connection ended")
            parts += part
        return bytes(parts)


def _credentials(connection: socket.socket) -> tuple[int, int, int]:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    process, user, group = _PEER.unpack(data)
    return process, user, group


def connect(path: str) -> socket.socket:
    """Connect to a socket; NotListening if nobody does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_PROVING_SECONDS)
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise NotListening(error.strerror or str(error)) from error
    return connection
