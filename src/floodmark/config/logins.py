"""Logins that a server refused: none is repeated within a run, and in later runs only seldom.

A user may be locked after a few wrong passwords, and a run has many tables.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Lock

from msgspec import Struct

from floodmark.config.aws_login import AWS_LOGINS
from floodmark.config.models import MysqlConnection, PostgresConnection, RedshiftConnection
from floodmark.errors import FloodmarkError
from floodmark.model.timestamps import stamped, utc_now

Server = MysqlConnection | PostgresConnection | RedshiftConnection

# 10 minutes, an hour, 6 hours, then a day: a user that five wrong passwords lock has more than a
# day in which somebody can see the errors.
FIRST_PAUSE = timedelta(minutes=10)
LONGEST_PAUSE = timedelta(days=1)


class Refusal(Struct, frozen=True):
    """A login that was refused: in which run and when, and when it may be tried again."""

    error: Exception
    run: int
    at: datetime
    again: datetime


class Logins:
    """What is known of logins; of those about which nothing is known, one is tried at a time."""

    def __init__(self, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock = clock
        self._lock = Lock()
        self._gates: dict[bytes, Lock] = defaultdict(Lock)
        self._accepted: set[bytes] = set()
        self._refused: dict[bytes, Refusal] = {}
        self._run = 0

    def forget(self) -> None:
        """Begin a new command: somebody has asked for it, and may have changed something."""
        with self._lock:
            self._accepted.clear()
            self._refused.clear()
        AWS_LOGINS.forget()

    def begin_run(self) -> None:
        """Begin the next run of the same command; what was refused waits for its time."""
        self._run += 1

    @contextmanager
    def once(self, server: Server, is_refusal: Callable[[Exception], bool]) -> Iterator[None]:
        """Log in within this; raises what the server said if it refused the same login before."""
        key = _key(server)
        with self._lock:
            gate = self._gates[key]
        if key in self._accepted:
            with self._noted(key, is_refusal):
                yield
            return
        with gate:
            if key in self._refused:
                self._refuse_again(server, self._refused[key])
            with self._noted(key, is_refusal):
                yield
            self._accepted.add(key)
            self._refused.pop(key, None)

    def _refuse_again(self, server: Server, refusal: Refusal) -> None:
        """Raise unless the pause has passed."""
        if refusal.run == self._run:
            raise refusal.error
        if self._clock() < refusal.again:
            AWS_LOGINS.forget()  # the next round looks whether the password is still the same
            raise FloodmarkError(
                f"{server.host}:{server.port} refused user {server.user!r} at"
                f" {stamped(refusal.at)}; this login is not tried again before"
                f" {stamped(refusal.again)}, so that the user is not locked",
                hint="correct 'user' or 'password' of the connection and start the command again;"
                " a new password in Secrets Manager is tried in the next round",
            )

    @contextmanager
    def _noted(self, key: bytes, is_refusal: Callable[[Exception], bool]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if is_refusal(error):
                at, before = self._clock().replace(microsecond=0), self._refused.get(key)
                pause = min((before.again - before.at) * 6, LONGEST_PAUSE) if before else None
                # The error itself would keep the driver's connection open.
                kept = type(error)(*error.args)
                self._refused[key] = Refusal(kept, self._run, at, at + (pause or FIRST_PAUSE))
                self._accepted.discard(key)
                AWS_LOGINS.forget()
            raise


LOGINS = Logins()


def _key(server: Server) -> bytes:
    password = server.password.reveal() if server.password else ""
    if isinstance(server, RedshiftConnection) and server.iam:
        password = ""  # it is another one each time
    parts = (type(server).__name__, server.host, server.port, server.user, password)
    return hashlib.sha256(repr(parts).encode()).digest()
