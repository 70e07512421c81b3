"""Who is there: Redshift asks its clients by MD5, PostgreSQL asks us by SCRAM."""

import hmac
import os
import struct
from hashlib import md5

from scramp import ScramClient  # type: ignore[import-untyped]

from servers.redshift.wire import AUTHENTICATION, ERROR, Message, Peer

_OK, _MD5, _SASL, _SASL_CONTINUE, _SASL_FINAL = 0, 5, 10, 11, 12
_PASSWORD = b"p"
_MECHANISM = "SCRAM-SHA-256"
_WRONG = Message(ERROR, b"SFATAL\0C28000\0Mpassword authentication failed\0\0")


def ask_client(client: Peer, user: str, password: str) -> bool:
    """Ask for the password; returns whether it was right."""
    salt = os.urandom(4)
    client.send(Message(AUTHENTICATION, struct.pack("!i", _MD5) + salt))
    inner = md5((password + user).encode()).hexdigest()
    expected = b"md5" + md5(inner.encode() + salt).hexdigest().encode()
    if hmac.compare_digest(client.read().body.rstrip(b"\0"), expected):
        client.send(Message(AUTHENTICATION, struct.pack("!i", _OK)))
        return True
    client.send(_WRONG)
    return False


def answer_backend(backend: Peer, user: str, password: str) -> Message | None:
    """Log in; returns PostgreSQL's error if it does not let us."""
    scram = ScramClient([_MECHANISM], user, password)
    while True:
        message = backend.read()
        if message.kind == ERROR:
            return message
        (code,) = struct.unpack_from("!i", message.body)
        said = message.body[4:].decode(errors="replace")
        if code == _SASL:
            first = scram.get_client_first().encode()
            body = _MECHANISM.encode() + b"\0" + struct.pack("!i", len(first)) + first
            backend.send(Message(_PASSWORD, body))
        elif code == _SASL_CONTINUE:
            scram.set_server_first(said)
            backend.send(Message(_PASSWORD, scram.get_client_final().encode()))
        elif code == _SASL_FINAL:
            scram.set_server_final(said)
        elif code == _OK:
            return None
