"""Authentication: Redshift uses MD5 with its clients, PostgreSQL uses SCRAM with us."""

import hmac
import os
import struct
import threading
from hashlib import md5

from scramp import ScramClient  # type: ignore[import-untyped]

from servers.redshift.wire import AUTHENTICATION, ERROR, Message, Peer

_OK, _MD5, _SASL, _SASL_CONTINUE, _SASL_FINAL = 0, 5, 10, 11, 12
_PASSWORD = b"p"
_MECHANISM = "SCRAM-SHA-256"
MOST_FAILED_LOGINS = 5


def _refusal(message: str) -> Message:
    return Message(ERROR, f"SFATAL\0C28000\0M{message}\0\0".encode())


class Logins:
    """Who may log in; a user whose password was wrong several times in a row is locked."""

    def __init__(self, user: str, password: str) -> None:
        self._user, self._password = user, password
        self.password = password
        """The password that clients must give; PostgreSQL's own does not change."""
        self.temporary: dict[str, str] = {}
        """Passwords that the AWS API has handed out, by `IAM:user` and `IAMR:role`."""
        self._lock = threading.Lock()
        self._failed: dict[str, int] = {}
        self.tried = 0
        """Logins, whether right or wrong."""

    def forget(self) -> None:
        """Unlock every user."""
        with self._lock:
            self._failed = {}
            self.tried = 0
            self.temporary.clear()

    def authenticate(self, client: Peer, user: str) -> tuple[str, str] | None:
        """Ask for the password; returns PostgreSQL's login if it was right, and nobody is locked.

        An IAM login is PostgreSQL's only user, too.
        """
        named = user.startswith(("IAM:", "IAMR:"))
        expected = self.temporary.get(user) if named else self.password
        right = _ask_client(client, user, expected or "") and expected is not None
        with self._lock:
            self.tried += 1
            failed = self._failed.get(user, 0)
            locked = failed >= MOST_FAILED_LOGINS
            self._failed[user] = failed if locked else 0 if right else failed + 1
        if right and not locked:
            client.send(Message(AUTHENTICATION, struct.pack("!i", _OK)))
            return (self._user, self._password) if named else (user, self._password)
        client.send(_refusal("user is locked" if locked else "password authentication failed"))
        return None


def _ask_client(client: Peer, user: str, password: str) -> bool:
    salt = os.urandom(4)
    client.send(Message(AUTHENTICATION, struct.pack("!i", _MD5) + salt))
    inner = md5((password + user).encode()).hexdigest()
    expected = b"md5" + md5(inner.encode() + salt).hexdigest().encode()
    return hmac.compare_digest(client.read().body.rstrip(b"\0"), expected)


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
