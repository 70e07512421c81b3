"""Limit retries of rejected logins: never within a run, and rarely in later runs.

A server may lock a user after a few wrong passwords, and a run has many tables.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Lock

from msgspec import Struct, structs

from floodmark.config.aws_login import AWS_LOGINS
from floodmark.config.models import MysqlConnection, PostgresConnection, RedshiftConnection
from floodmark.errors import FloodmarkError
from floodmark.model.timestamps import stamped, utc_now

Server = MysqlConnection | PostgresConnection | RedshiftConnection

# 10 minutes, an hour, 6 hours, then a day: where five wrong passwords lock a user, an operator has
# more than a day to see the errors.
FIRST_PAUSE = timedelta(minutes=10)
LONGEST_PAUSE = timedelta(days=1)


class Refusal(Struct, frozen=True):
    """A rejected login: in which run and when, and when it may be retried."""

    error: Exception
    run: int
    at: datetime
    again: datetime


class Logins:
    """Accepted and rejected logins; a login not yet known is tried by one thread at a time."""

    def __init__(self, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock = clock
        self._lock = Lock()
        self._gates: dict[bytes, Lock] = defaultdict(Lock)
        self._accepted: set[bytes] = set()
        self._refused: dict[bytes, Refusal] = {}
        self._run = 0

    def forget(self) -> None:
        """Forget everything: a new command starts, and something may have changed."""
        with self._lock:
            self._accepted.clear()
            self._refused.clear()
        AWS_LOGINS.forget()

    def begin_run(self) -> None:
        """Begin the next run of the same command; rejected logins keep their pause."""
        self._run += 1

    @contextmanager
    def once(
        self, server: Server, is_refusal: Callable[[Exception], bool], *, note: bool = True
    ) -> Iterator[None]:
        """Log in within this; raise the earlier error if the server rejected the same login.

        With `note=False`, a rejection here does not keep others from trying.
        """
        key, user = _key(server), _key_of_user(server)
        with self._lock:
            gate = self._gates[key]
        if key in self._accepted:
            with self._noted(server, is_refusal, key if note else None):
                yield
            return
        with gate:
            for known in (key, user):
                if known in self._refused:
                    self._refuse_again(server, self._refused[known])
            with self._noted(server, is_refusal, user if note else None):
                yield
            self._accepted.add(key)
            for known in (key, user):
                self._refused.pop(known, None)

    def _refuse_again(self, server: Server, refusal: Refusal) -> None:
        """Raise unless the pause has passed."""
        if refusal.run == self._run:
            raise refusal.error
        if self._clock() < refusal.again:
            AWS_LOGINS.forget()  # the next round fetches the password again
            raise FloodmarkError(
                f"{server.host}:{server.port} rejected user {server.user!r} at"
                f" {stamped(refusal.at)}; the next attempt is not before"
                f" {stamped(refusal.again)}, to avoid locking the user",
                hint="correct 'user' or 'password' of the connection and restart the command;"
                " a new password in Secrets Manager is used in the next round",
            )

    @contextmanager
    def _noted(
        self, server: Server, is_refusal: Callable[[Exception], bool], key: bytes | None
    ) -> Iterator[None]:
        """Note a rejection under a key, if there is one."""
        try:
            yield
        except Exception as error:
            if is_refusal(error):
                AWS_LOGINS.forget_rejected(server.password)
            if is_refusal(error) and key is not None:
                at, before = self._clock().replace(microsecond=0), self._refused.get(key)
                pause = min((before.again - before.at) * 6, LONGEST_PAUSE) if before else None
                # The error itself would keep the driver's connection open.
                kept = type(error)(*error.args)
                self._refused[key] = Refusal(kept, self._run, at, at + (pause or FIRST_PAUSE))
                self._accepted.discard(key)
            raise


LOGINS = Logins()


def _key(server: Server) -> bytes:
    password = server.password.reveal() if server.password else ""
    parts = (type(server).__name__, server.host, server.port, server.user, password)
    return hashlib.sha256(repr(parts).encode()).digest()


def _key_of_user(server: Server) -> bytes:
    """Return the key of logins that are rejected at once, not after they expired.

    With IAM, every password is new, and the server rejects the user.
    """
    if isinstance(server, RedshiftConnection) and server.iam:
        server = structs.replace(server, password=None)
    return _key(server)
