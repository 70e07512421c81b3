"""A source server in one round: its sessions, its identity, and what is in flight there.

All sessions of a round reach the same server. What is in flight is read once for all tables, while
it is fresh; see `floodmark.planning.bounds` for why that is safe.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from threading import Lock, Timer
from typing import Protocol, Self

from floodmark.config.models import MysqlConnection
from floodmark.errors import FloodmarkError
from floodmark.model.bound import Activity, Ceiling
from floodmark.model.notice import Notice, Report
from floodmark.model.server import Server
from floodmark.mysql.connection import (
    MysqlSession,
    repeatable,
    translated,
)
from floodmark.mysql.connection import connect as connect_once
from floodmark.mysql.in_flight import (
    SnapshotLost,
    begin_snapshot,
    end_snapshot,
    in_snapshot,
    read_offset,
)
from floodmark.mysql.servers import read_server
from floodmark.planning.parallelism import connection_limit, readers
from floodmark.sync.activity import ActivityReader, PrimaryActivityReader
from floodmark.sync.reader_slots import Readers
from floodmark.tunnels.tunnel import Tunnels

KEEP_SECONDS = 60.0


class Connect(Protocol):
    """Opens sessions."""

    def __call__(
        self, connection: MysqlConnection, *, server: Server | None = None
    ) -> AbstractContextManager[MysqlSession]:
        """Open a session, which must reach `server` if one is given."""


class Source:
    """A server to read from, in one round. Thread-safe."""

    def __init__(
        self,
        connection: MysqlConnection,
        primary: MysqlConnection | None = None,
        *,
        connect: Connect = connect_once,
        keep_seconds: float = KEEP_SECONDS,
    ) -> None:
        self.connection = connection
        self.readings = 0
        self.readers = Readers()
        self._primary = primary
        self._connect = connect
        self._keep_seconds = keep_seconds
        self._closing = ExitStack()
        self._idle: list[MysqlSession] = []
        self._sessions: dict[MysqlSession, ExitStack] = {}
        self._closed = False
        self._lock = Lock()
        self._reading = Lock()
        self._server: Server | None = None
        self._activity_reader: ActivityReader | None = None
        self._snapshot: MysqlSession | None = None
        self._snapshot_at: datetime
        self._expiry: Timer | None = None
        self._began = float("-inf")
        self._outcome: Activity | Exception
        self._announced: set[str] = set()

    @property
    def server(self) -> Server:
        """The server, as it was when the round began."""
        if self._server is None:
            with self.session():
                pass
        assert self._server is not None
        return self._server

    @contextmanager
    def session(self) -> Iterator[MysqlSession]:
        """Borrow a session with the server, for exclusive use; it is closed after an error."""
        with self._lock:
            session = self._idle.pop() if self._idle else self.open(self.connection, self._server)
            if self._server is None:
                with self._closing_on_error(session), translated(self.connection):
                    self._server = session.server = read_server(session)
        with self._closing_on_error(session), translated(self.connection, session):
            yield session
        self._idle.append(session)

    @contextmanager
    def more_sessions(self, number: int) -> Iterator[list[MysqlSession]]:
        """Open sessions for exclusive use, and close them in the end."""
        opened: list[MysqlSession] = []
        try:
            while len(opened) < number:
                opened.append(self.open(self.connection, self.server))
            yield opened
        finally:
            for session in opened:
                self._end(session)

    def _end(self, session: MysqlSession) -> None:
        """Close a session; errors do not matter, nor whether another thread closed the source."""
        with suppress(KeyError, FloodmarkError):
            self._sessions.pop(session).close()

    @contextmanager
    def _closing_on_error(self, session: MysqlSession) -> Iterator[None]:
        """Close a session after an error: it may be dead, or in the middle of something."""
        try:
            yield
        except BaseException:
            self._end(session)
            raise

    def readers_at_once(self, slots: int | None) -> int:
        """Return how many windows are read at once, of `slots` in Spark if that cannot change."""
        connection = self.connection
        return readers(slots, self.limit, len(self._sessions), connection.max_rows_per_second)

    def sessions_at_once(self, wanted: int) -> int:
        """Return how many sessions a table may use at once, of those that it wants."""
        return max(1, min(wanted, self.limit - len(self._sessions) + len(self._idle)))

    @property
    def limit(self) -> int:
        """How many connections a run may have to the server."""
        server = self.server
        configured = self.connection.max_connections
        return connection_limit(configured, server.max_connections, server.max_user_connections)

    def activity(self, since: float = float("-inf")) -> Activity:
        """Return what is in flight, as of `since` (of `time.monotonic`) or later.

        All callers share one reading. A caller waits for one in progress, and uses it if it began
        late enough. A failed reading fails for all.
        """
        with self._reading:
            return self._current(since)

    def look(self) -> Activity:
        """Read what is in flight now."""
        return self.activity(time.monotonic())

    def ceiling(
        self,
        read: Callable[[MysqlSession], int | None],
        since: float = float("-inf"),
        *,
        in_shared_snapshot: bool = True,
    ) -> tuple[Activity, Ceiling | None]:
        """Return what is in flight, and the greatest id right before that was read.

        The id is read in a snapshot, so that all tables with an id cursor share one reading too.
        A storage engine without snapshots needs its own reading.
        """
        with self._reading, translated(self.connection):
            if not in_shared_snapshot:
                session = self._snapshot_session()
                found = repeatable(session, lambda: read(session))
                at = self._reader().clock()
                activity = self._current(time.monotonic())
                return activity, None if found is None else Ceiling(found, at)
            activity = self._current(since)
            try:
                found = in_snapshot(self._snapshot_session(), read)
            except SnapshotLost:
                activity = self._current(time.monotonic())
                try:
                    found = in_snapshot(self._snapshot_session(), read)
                except SnapshotLost as error:
                    lost = "the server ended the transaction in which ids are read, twice"
                    raise FloodmarkError(lost, hint="try again") from error
            return activity, None if found is None else Ceiling(found, self._snapshot_at)

    def offset_at(self, moment: datetime) -> timedelta:
        """Return the offset from UTC of the clock that stamps rows, by its present zone."""
        with self._reading:
            offset: timedelta = self._reader().repeated(
                lambda session: read_offset(session, moment)
            )
            return offset

    def announce(self, notice: Notice, report: Report) -> None:
        """Report a notice that concerns many tables only once."""
        if notice.message not in self._announced:
            self._announced.add(notice.message)
            report(notice)

    def close(self) -> None:
        """End all sessions."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._closed = True
        with suppress(KeyError):
            while True:
                self._closing.enter_context(self._sessions.popitem()[1])
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Errors while closing do not matter any more.
        with suppress(FloodmarkError):
            self.close()

    def _reader(self) -> ActivityReader:
        if self._activity_reader is None:
            if self._primary is None:
                session = self.open(self.connection, self.server)
                self._activity_reader = ActivityReader(session, self.connection, self.server)
            else:
                self._activity_reader = self._primary_reader(self._primary)
        return self._activity_reader

    def _primary_reader(self, primary: MysqlConnection) -> PrimaryActivityReader:
        replica, settings = self.server, self.connection.primary
        assert settings is not None
        try:
            session = self.open(primary, None)
            with translated(primary):
                server = session.server = read_server(session)
        except FloodmarkError as error:
            error.message = f"the primary: {error.message}"
            raise
        return PrimaryActivityReader(
            session,
            primary,
            server,
            replica=replica,
            replica_session=self.session,
            wait_seconds=settings.wait_seconds,
        )

    def _current(self, since: float) -> Activity:
        now = time.monotonic()
        if self._began < max(since, now - self._keep_seconds):
            try:
                self._outcome = self._read()
            except Exception as error:  # noqa: BLE001 - raised for every table
                self._outcome = error
            self._began = now
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def _read(self) -> Activity:
        self.readings += 1
        reader = self._reader()
        with translated(self.connection):
            begin_snapshot(self._snapshot_session())
        self._snapshot_at = reader.clock()
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = Timer(self._keep_seconds, self._end_snapshot)
        self._expiry.daemon = True
        self._expiry.start()
        return reader.read()

    def _snapshot_session(self) -> MysqlSession:
        if self._snapshot is None:
            self._snapshot = self.open(self.connection, self.server)
        return self._snapshot

    def _end_snapshot(self) -> None:
        """End the snapshot, for which the server keeps old row versions."""
        with self._reading:
            if self._snapshot is not None and time.monotonic() >= self._began + self._keep_seconds:
                end_snapshot(self._snapshot)

    def open(self, connection: MysqlConnection, server: Server | None) -> MysqlSession:
        """Open a session that lasts as long as the round."""
        closing = ExitStack()
        session = closing.enter_context(self._connect(connection, server=server))
        if connection == self.connection:
            self._sessions[session] = closing
        else:
            self._closing.push(closing)
        if self._closed:  # by another thread, while we connected
            self.close()
            raise FloodmarkError("the run is over")
        return session


class Sources:
    """The sources of a round, one for each connection. Thread-safe."""

    def __init__(self, tunnels: Tunnels, connect: Connect = connect_once) -> None:
        self._tunnels = tunnels
        self._connect = connect
        self._lock = Lock()
        self._open: dict[MysqlConnection, Source] = {}
        self._closing = ExitStack()

    @contextmanager
    def of(self, connection: MysqlConnection) -> Iterator[Source]:
        """Return the source of a connection; errors name the tunnel if it has failed."""
        with self._tunnels.through(connection) as local, ExitStack() as through:
            primary = connection.to_primary
            if primary is not None:
                primary = through.enter_context(self._tunnels.through(primary))
            with self._lock:
                if connection not in self._open:
                    source = Source(local, primary, connect=self._connect)
                    self._open[connection] = self._closing.enter_context(source)
            yield self._open[connection]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()
