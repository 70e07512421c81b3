"""A TCP proxy in front of a server that loses connections: around a COMMIT, or in silence."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Self

from floodmark.subprocesses import LOOPBACK

Moment = Literal["before the commit", "after the commit"]

_COMMIT = b"COMMIT\0"
_MUCH = 1 << 16


class CommitDropper:
    """Passes bytes on to a server. With `drop` set, the next COMMIT is lost with its connection:
    before the server sees it, or once the server has answered. Then `drop` is unset.

    With `forget_at` set, a connection on which these bytes are said is forgotten: the server's side
    ends, and the client never hears of it. Then `forget_at` is unset.
    """

    def __init__(self, port: int) -> None:
        self.upstream = port
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self.drop: Moment | None = None
        self.forget_at: bytes | None = None

    def __enter__(self) -> Self:
        _in_background(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                _in_background(_Conversation(self, client).run)


class _Conversation:
    def __init__(self, proxy: CommitDropper, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = socket.create_connection((LOOPBACK, proxy.upstream))
        self._muted = threading.Event()
        self._answered = threading.Event()

    def run(self) -> None:
        with self._client, self._server:
            back = _in_background(self._pass_back)
            with suppress(OSError):
                while (data := self._client.recv(_MUCH)) and self._pass_on(data):
                    pass
            for side in (self._client, self._server):
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
            back.join()

    def _pass_on(self, data: bytes) -> bool:
        """Send to the server; false if the connection is to end."""
        if (said := self._proxy.forget_at) and said in data:
            self._proxy.forget_at = None
            self._server.shutdown(socket.SHUT_RDWR)
            while self._client.recv(_MUCH):  # until it gives up
                pass
            return False
        if not data.endswith(_COMMIT) or (moment := self._proxy.drop) is None:
            self._server.sendall(data)
            return True
        self._proxy.drop = None
        if moment == "after the commit":
            self._muted.set()
            self._server.sendall(data)
            assert self._answered.wait(10)
        return False

    def _pass_back(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(_MUCH):
                if self._muted.is_set():
                    self._answered.set()
                else:
                    self._client.sendall(data)


def _in_background(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
