"""Find which encryption a MySQL server offers, without logging in."""

import socket
import ssl
from typing import Any

from msgspec import Struct

from floodmark.config.models import MysqlConnection, Tls, TlsSettings
from floodmark.config.tls_context import tls_context

_SSL = 0x0800
_ABILITIES = 0x0200 | 0x8000 | _SSL  # protocol 4.1, secure connection, TLS
_MOST_BYTES = 0xFFFFFF
_SALT_AND_THREAD = 4 + 8 + 1


class Offer(Struct, frozen=True):
    """The strongest TLS settings that work, and why stronger ones do not."""

    tls: Tls
    reason: str = ""


def find_offer(connection: MysqlConnection, *, timeout_seconds: float = 10.0) -> Offer:
    """Try a verified connection, then an encrypted one; no password is sent. May raise OSError."""
    reason = "the server offers no encryption"
    for tls in (TlsSettings(), TlsSettings(verify="none")):
        address = (connection.host, connection.port)
        with socket.create_connection(address, timeout_seconds) as plain:
            if not _begin(plain):
                return Offer("off", reason)
            context = tls_context(tls)
            assert context is not None
            try:
                context.wrap_socket(plain, server_hostname=connection.host).close()
            except ssl.SSLError as error:
                reason = getattr(error, "verify_message", "") or str(error)
            else:
                return Offer(tls, "" if tls.verify == "identity" else reason)
    return Offer("off", reason)


def _begin(plain: socket.socket) -> bool:
    """Ask for TLS if the server's greeting offers it."""
    with plain.makefile("rb", buffering=0) as reader:
        greeting = _read(reader, int.from_bytes(_read(reader, 4)[:3], "little"))
    _, _, rest = greeting[1:].partition(b"\0")  # the version
    abilities = int.from_bytes(rest[_SALT_AND_THREAD:][:2], "little")
    if greeting[:1] != b"\x0a" or not abilities & _SSL:
        return False
    request = (
        _ABILITIES.to_bytes(4, "little") + _MOST_BYTES.to_bytes(4, "little") + b"\x2d" + bytes(23)
    )
    plain.sendall(len(request).to_bytes(3, "little") + b"\1" + request)
    return True


def _read(reader: Any, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = reader.read(size - len(found))
        if not part:
            raise ConnectionError("the server ended the connection")
        found += part
    return found
