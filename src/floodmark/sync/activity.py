"""Read what is in flight on a server, or on its primary, and judge whether all of it is visible."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from msgspec import structs

from floodmark.config.models import MysqlConnection
from floodmark.model.bound import Activity
from floodmark.model.server import Server
from floodmark.mysql.connection import MysqlSession, repeatable, translated
from floodmark.mysql.gtids import lacks_of_replica, read_gtids, wait_for_gtids
from floodmark.mysql.in_flight import read_activity, read_clock
from floodmark.mysql.servers import read_heartbeat, read_server
from floodmark.planning.replication import applied_moment, role_of, why_not_primary_of

_CATCH_UP_SECONDS = 5.0
_POLL_SECONDS = 0.25
_READ_SECONDS = 120.0  # no query takes longer, unless the server is gone


class ActivityReader:
    """Reads what is in flight on the server itself, in its own session."""

    def __init__(self, session: MysqlSession, connection: MysqlConnection, server: Server) -> None:
        self._connection = connection
        self._server = server
        self._session = session
        self._session.limit_reads(_READ_SECONDS)

    def clock(self) -> Any:
        """Read the clock that stamps rows."""
        return self.repeated(read_clock)

    def read(self) -> Activity:
        """Read what is in flight, and judge whether all of it is visible."""
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while True:
            activity: Activity = self.repeated(self._judged)
            # A replica or cluster node usually applies what it has received within a moment.
            if not activity.held or time.monotonic() > deadline or not self._is_catching_up():
                return activity
            time.sleep(_POLL_SECONDS)

    def _is_catching_up(self) -> bool:
        server = self._server
        running = all(c.applying and c.receiving for c in server.channels or ())
        waits = bool(server.group and server.group.waiting and not server.group.problem)
        return running and (waits or any(not c.caught_up for c in server.channels or ()))

    def _judged(self, session: MysqlSession) -> Activity:
        # The order matters: first the clock, then the replication delay, then the activity.
        now = read_clock(session)
        self._server = server = structs.replace(
            read_server(session), identity=self._server.identity
        )
        role = role_of(server)
        if role.kind == "primary":
            return read_activity(session, server)
        heartbeat = None
        if settings := self._connection.heartbeat:
            heartbeat = read_heartbeat(session, settings.table, settings.column)
            if heartbeat is None:
                return Activity(now=now, held=f"heartbeat table {settings.table} is empty")
        applied = applied_moment(server, role, now, heartbeat)
        activity = read_activity(session, server)
        return structs.replace(
            activity,
            undated=None,
            unseen=role.why,
            applied=applied.moment,
            held=applied.held or activity.held,
            hint=applied.hint,
        )

    def repeated(self, read: Callable[[MysqlSession], Any]) -> Any:
        """Read in this session; once more if the connection was lost."""
        with translated(self._connection):
            return repeatable(self._session, lambda: read(self._session))


class PrimaryActivityReader(ActivityReader):
    """Reads what is in flight on the primary, and waits for the replica to catch up."""

    def __init__(
        self,
        session: MysqlSession,
        primary: MysqlConnection,
        server: Server,
        *,
        replica: Server,
        replica_session: Callable[[], AbstractContextManager[MysqlSession]],
        wait_seconds: float,
    ) -> None:
        super().__init__(session, primary, server)
        self._replica = replica
        self._replica_session = replica_session
        self._wait_seconds = wait_seconds

    def _is_catching_up(self) -> bool:
        return False

    def _judged(self, session: MysqlSession) -> Activity:
        server, same = self._server, self._server.identity == self._replica.identity
        before, executed = self._read_replica()
        facts = read_server(session)
        role = role_of(facts)
        activity = read_activity(session, server)
        # A read-only server that is no replica may be configured as its own primary.
        if role.kind != "primary" and not (same and facts.channels == () and not facts.group):
            why = f"the configured primary is not a primary: {role.why}"
            return structs.replace(activity, held=why, hint=role.hint)
        if same or activity.held:
            return activity
        why_not = why_not_primary_of(facts, before)
        if why_not is None and lacks_of_replica(session, server, before, executed):
            why_not = (
                "the replica has executed transactions that the configured primary has not: it is"
                " not its primary, or no longer"
            )
        return structs.replace(activity, held=why_not or self._wait(before, activity.gtids))

    def _read_replica(self) -> tuple[Server, str | None]:
        """Read the replica's state and executed GTIDs, before those of the primary."""
        with self._replica_session() as session:
            server = read_server(session)
            return server, read_gtids(session, server)

    def _wait(self, replica: Server, gtids: str | None) -> str | None:
        """Wait until the replica has executed these GTIDs; return why if it has not."""
        if not gtids:
            return (
                "the primary has no GTIDs to wait for (MySQL: gtid_mode=ON; MariaDB: log_bin), so"
                " it is not known what the replica has executed"
            )
        with self._replica_session() as session:
            if wait_for_gtids(session, replica, gtids, self._wait_seconds):
                return None
        return f"the replica did not catch up with the primary within {self._wait_seconds:g} s"
