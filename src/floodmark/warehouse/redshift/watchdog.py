"""Ends the wait for an answer that Redshift will never send.

A device on the way may forget a connection and tell neither side. Keepalive finds that out, unless
a proxy or a tunnel on the way answers it. So if a statement has had no answer for long, another
session asks whether the first one is still there. Only if Redshift shows the session that asks, and
not the one that waits, is the connection given up: a COPY, or the wait for a lock, may take long.
"""

import threading
import time
from contextlib import closing
from typing import Self

from floodmark.config.models import RedshiftConnection
from floodmark.errors import FloodmarkError
from floodmark.model.notice import Notice, Report
from floodmark.warehouse.redshift.session import RedshiftSession

_LONGEST_ANSWER = 60.0  # of the session that asks


class Watchdog:
    """Watches a session while it is used; a context."""

    def __init__(
        self,
        session: RedshiftSession,
        connection: RedshiftConnection,
        report: Report,
        quiet_seconds: float,
    ) -> None:
        self._session = session
        self._connection = connection
        self._report = report
        self._quiet_seconds = quiet_seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        asked = time.monotonic()
        while not self._done.wait(self._quiet_seconds / 10):
            since = self._session.busy_since
            if since is None or time.monotonic() - max(since, asked) < self._quiet_seconds:
                continue
            if self._is_gone():
                self._session.give_up("Redshift no longer knows the session")
                return
            asked = time.monotonic()

    def _is_gone(self) -> bool:
        """Whether Redshift is known not to know the session."""
        mine = self._session.pid
        try:
            with closing(RedshiftSession(self._connection)) as asking:
                timer = threading.Timer(_LONGEST_ANSWER, asking.give_up, ["it did not answer"])
                timer.daemon = True
                timer.start()
                rows = asking.run(
                    f"SELECT process FROM stv_sessions WHERE process IN ({mine}, {asking.pid})"  # noqa: S608
                )
                timer.cancel()
        except FloodmarkError as error:
            message = f"there is no answer from Redshift, and no way to ask why: {error.message}"
            self._report(Notice("warning", message, "waiting"))
            return False
        known = {int(row[0]) for row in rows}
        return asking.pid in known and mine not in known
