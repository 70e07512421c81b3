"""A fake MySQL server that only asks for a password."""

import socket
from contextlib import suppress
from threading import Thread
from typing import Self

from floodmark.subprocesses import LOOPBACK

_SALT = b"12345678901234567890"
# Protocol 4.1, secure connection, plugin authentication; and not TLS.
_ABILITIES = 0x0200 | 0x8000 | 0x80000 | 0x1


class Impostor:
    """Asks for the password in some way, and keeps whatever is answered."""

    def __init__(self, plugin: str, data: bytes = b"") -> None:
        self._switch = b"\xfe" + plugin.encode() + b"\0" + data
        self._socket = socket.create_server((LOOPBACK, 0))
        self.port: int = self._socket.getsockname()[1]
        self.heard: list[bytes] = []
        self._thread = Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                client.settimeout(5)
                with client, suppress(OSError):
                    client.sendall(_packet(0, _greeting()))
                    self.heard.append(client.recv(4096))
                    client.sendall(_packet(2, self._switch))
                    while heard := client.recv(4096):
                        self.heard.append(heard)


def _packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


def _greeting() -> bytes:
    low, high = (
        (_ABILITIES & 0xFFFF).to_bytes(2, "little"),
        (_ABILITIES >> 16).to_bytes(2, "little"),
    )
    return b"".join(
        [
            *(b"\x0a8.0.99\0", (1).to_bytes(4, "little"), _SALT[:8], b"\0", low),
            *(b"\x2d", b"\x02\x00", high, b"\x15", bytes(10), _SALT[8:], b"\0"),
            b"mysql_native_password\0",
        ]
    )
