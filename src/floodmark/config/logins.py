"""Logins that a server refused: nothing tries them again within a run.

A user may be locked after a few wrong passwords, and a run has many tables.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from floodmark.config.models import MysqlConnection, PostgresConnection, RedshiftConnection

Server = MysqlConnection | PostgresConnection | RedshiftConnection


class Logins:
    """What is known of logins; of those about which nothing is known, one is tried at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._gates: dict[bytes, Lock] = defaultdict(Lock)
        self._accepted: set[bytes] = set()
        self._refused: dict[bytes, Exception] = {}

    def forget(self) -> None:
        """Begin a new run."""
        with self._lock:
            self._accepted.clear()
            self._refused.clear()

    @contextmanager
    def once(self, server: Server, is_refusal: Callable[[Exception], bool]) -> Iterator[None]:
        """Log in within this; raises what the server said if it refused the same login before."""
        key = _key(server)
        with self._lock:
            gate = self._gates[key]
        if key in self._accepted:
            yield
            return
        with gate:
            if key in self._refused:
                raise self._refused[key]
            try:
                yield
            except Exception as error:
                if is_refusal(error):
                    # The error itself would keep the driver's connection open.
                    self._refused[key] = type(error)(*error.args)
                raise
            self._accepted.add(key)


LOGINS = Logins()


def _key(server: Server) -> bytes:
    password = server.password.reveal() if server.password else ""
    parts = (type(server).__name__, server.host, server.port, server.user, password)
    return hashlib.sha256(repr(parts).encode()).digest()
