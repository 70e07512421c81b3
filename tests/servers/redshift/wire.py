"""Messages of PostgreSQL's wire protocol, which Redshift speaks as well."""

import socket
import ssl
import struct
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

from servers.redshift.long_names import restored

_PROTOCOL = 196608
_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104
_NULL = -1

# Kinds of messages from the client ...
BIND, CLOSE, COPY_DATA, COPY_DONE, COPY_FAIL = b"B", b"C", b"d", b"c", b"f"
DESCRIBE, EXECUTE, PARSE, QUERY, SYNC, TERMINATE = b"D", b"E", b"P", b"Q", b"S", b"X"
# ... and from the server.
AUTHENTICATION, BIND_COMPLETE, COMMAND_COMPLETE, COPY_IN = b"R", b"2", b"C", b"G"
DATA_ROW, ERROR, KEY_DATA, NOTICE, PARAMETER, READY = b"D", b"E", b"K", b"N", b"S", b"Z"
ROW_DESCRIPTION = b"T"


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

    def __init__(self, connection: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self._socket = connection
        self._tls = tls
        self._reader = connection.makefile("rb")

    def read(self) -> Message:
        """Wait for the next message."""
        kind = self._bytes(1)
        return Message(kind, self._sized())

    def read_startup(self) -> dict[str, str]:
        """Read the client's parameters; before, it may ask for encryption."""
        while True:
            body = self._sized()
            code = struct.unpack_from("!i", body)[0]
            if code == _SSL_REQUEST and self._tls is not None:
                self._socket.sendall(b"S")
                self._socket = self._tls.wrap_socket(self._socket, server_side=True)
                self._reader = self._socket.makefile("rb")
                continue
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


def named_query(sql: str) -> list[Message]:
    """A statement to run at once that leaves alone what the client has prepared."""
    name = b"stand_in\0"
    return [
        Message(PARSE, name + sql.encode() + b"\0\0\0"),
        Message(BIND, name + name + b"\0" * 6),
        Message(EXECUTE, name + b"\0" * 4),
        Message(CLOSE, b"P" + name),
        Message(CLOSE, b"S" + name),
        Message(SYNC),
    ]


def notice(text: str) -> Message:
    """What a server says by the way."""
    return Message(NOTICE, b"SINFO\0C00000\0M" + text.encode() + b"\0\0")


def with_types(body: bytes, changes: Mapping[int, int]) -> tuple[bytes, list[int]]:
    """The description of a row's columns, with other numbers for types; and the old numbers."""
    changed, found = bytearray(body), []
    place = 2
    for _ in range(struct.unpack_from("!h", body)[0]):
        place = body.index(b"\0", place) + 7  # name, table, column
        (kind,) = struct.unpack_from("!I", body, place)
        found.append(kind)
        struct.pack_into("!I", changed, place, changes.get(kind, kind))
        place += 12
    return bytes(changed), found


def with_names(body: bytes) -> bytes:
    """The description of a row's columns, with names as the client gave them."""
    parts, place = [body[:2]], 2
    for _ in range(struct.unpack_from("!h", body)[0]):
        end = body.index(b"\0", place)
        parts += [restored(body[place:end]), body[end : end + 19]]
        place = end + 19
    return b"".join(parts)


def with_hex(body: bytes, columns: Collection[int]) -> bytes:
    """A row in which the bytes of some columns are hexadecimal digits, and nothing else.

    A value that is a name is one as the client gave it.
    """
    parts, place = [body[:2]], 2
    for column in range(struct.unpack_from("!h", body)[0]):
        length = struct.unpack_from("!i", body, place)[0]
        value = body[place + 4 : place + 4 + max(length, 0)]
        place += 4 + len(value)
        if column in columns:
            value = value.removeprefix(b"\\x")
        value = restored(value)
        parts.append(struct.pack("!i", _NULL if length == _NULL else len(value)) + value)
    return b"".join(parts)


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
