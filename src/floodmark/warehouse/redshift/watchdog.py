"""Abort statements whose Redshift session no longer exists.

A firewall or NAT may drop a connection without notifying either side. Keepalive detects that,
unless a proxy or a tunnel answers it. So if a statement runs for long, a second session looks for
the first one. The connection is given up only if Redshift lists the second session and not the
first: a COPY, or the wait for a lock, may take long.
"""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Self

from floodmark.config.models import RedshiftConnection
from floodmark.errors import FloodmarkError, LoginRefused
from floodmark.model.notice import Notice, Report
from floodmark.warehouse.redshift.session import RedshiftSession, open_session

_LONGEST_ANSWER = 60.0  # of the second session


class Watchdog:
    """Context manager that watches a session while it is used."""

    def __init__(
        self,
        session: RedshiftSession,
        log_in: Callable[[], RedshiftConnection],
        report: Report,
        quiet_seconds: float,
    ) -> None:
        self._session = session
        self._log_in = log_in
        self._refused = False
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
                self._session.give_up("Redshift no longer has the session")
                return
            if self._refused:
                return  # further attempts could lock the user
            asked = time.monotonic()

    def _is_gone(self) -> bool:
        """Whether Redshift certainly no longer has the session."""
        mine = self._session.pid
        try:
            # The load itself is logged in: a refusal here must not stop others.
            with closing(open_session(self._log_in, note_refusal=False)) as asking:
                timer = threading.Timer(_LONGEST_ANSWER, asking.give_up, ["it did not answer"])
                timer.daemon = True
                timer.start()
                rows = asking.run(
                    f"SELECT process FROM stv_sessions WHERE process IN ({mine}, {asking.pid})"  # noqa: S608
                )
                timer.cancel()
        except FloodmarkError as error:
            message = f"Redshift does not respond, and its sessions cannot be read: {error.message}"
            self._report(Notice("warning", message, "waiting"))
            self._refused = isinstance(error, LoginRefused)
            return False
        known = {int(row[0]) for row in rows}
        return asking.pid in known and mine not in known
