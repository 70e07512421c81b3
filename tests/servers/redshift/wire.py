"""Messages of PostgreSQL's wire protocol, which Redshift speaks as well."""

import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

_PROTOCOL = 196608
_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104
_NULL = -1

# Kinds of messages from the client ...
BIND, CLOSE, COPY_DATA, COPY_DONE, COPY_FAIL = b"B", b"C", b"d", b"c", b"f"
DESCRIBE, EXECUTE, PARSE, QUERY, SYNC, TERMINATE = b"D", b"E", b"P", b"Q", b"S", b"X"
# ... and from the server.
AUTHENTICATION, BIND_COMPLETE, COMMAND_COMPLETE, COPY_IN = b"R", b"2", b"C", b"G"
DATA_ROW, ERROR, KEY_DATA, NOTICE, PARAMETER, READY = b"D", b"E", b"K", b"N", b"S", b"Z"


class Message(NamedTuple):
    """One message: its kind, a single byte, and what follows its length."""

    kind: bytes
    body: bytes = b""

    @property
    def encoded(self) -> bytes:
        """The message as it goes over the wire."""
        return self.kind + struct.pack("!i", len(self.body) + 4) + self.body


class Peer:
    """One end of a connection, in whole messages. EOFError when it hangs up."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = connection.makefile("rb")

    def read(self) -> Message:
        """Wait for the next message."""
        kind = self._bytes(1)
        return Message(kind, self._sized())

    def read_startup(self) -> dict[str, str]:
        """Read the client's parameters; encryption is refused before, as often as it is asked."""
        while True:
            body = self._sized()
            code = struct.unpack_from("!i", body)[0]
            if code in (_SSL_REQUEST, _GSS_REQUEST):
                self._socket.sendall(b"N")
                continue
            if code != _PROTOCOL:
                raise EOFError(f"unknown protocol {code}")
            words = body[4:].rstrip(b"\0").decode().split("\0")
            return dict(zip(words[::2], words[1::2], strict=True))

    def send(self, *messages: Message) -> None:
        """Send messages."""
        self._socket.sendall(b"".join(message.encoded for message in messages))

    def send_startup(self, parameters: Mapping[str, str]) -> None:
        """Send what a client says first."""
        words = "".join(f"{name}\0{value}\0" for name, value in parameters.items()) + "\0"
        body = struct.pack("!i", _PROTOCOL) + words.encode()
        self._socket.sendall(struct.pack("!i", len(body) + 4) + body)

    def reset(self) -> None:
        """Hang up in the middle of everything, as a broken network does."""
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Hang up, also while another thread reads."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._reader.close()
        self._socket.close()

    def _sized(self) -> bytes:
        return self._bytes(struct.unpack("!i", self._bytes(4))[0] - 4)

    def _bytes(self, count: int) -> bytes:
        data = self._reader.read(count)
        if data is None or len(data) < count:
            raise EOFError("the other end hung up")
        return data


def texts(body: bytes, count: int) -> list[str]:
    """The zero-terminated texts at the start of a message."""
    return [part.decode() for part in body.split(b"\0", count)[:count]]


def query(sql: str) -> Message:
    """A statement to run at once."""
    return Message(QUERY, sql.encode() + b"\0")


def notice(text: str) -> Message:
    """What a server says by the way."""
    return Message(NOTICE, b"SINFO\0C00000\0M" + text.encode() + b"\0\0")


def row(body: bytes) -> list[str | None]:
    """The values of a row, as text."""
    values: list[str | None] = []
    place = 2
    for _ in range(struct.unpack_from("!h", body)[0]):
        length = struct.unpack_from("!i", body, place)[0]
        place += 4
        if length == _NULL:
            values.append(None)
        else:
            values.append(body[place : place + length].decode())
            place += length
    return values
