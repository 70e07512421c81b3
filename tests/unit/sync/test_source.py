"""A source that cannot be read, or is closed: no session outlives it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import cast

import pytest

from floodmark.config.models import MysqlConnection
from floodmark.errors import FloodmarkError
from floodmark.model.server import Server
from floodmark.mysql.connection import MysqlSession
from floodmark.sync import source as sources
from floodmark.sync.source import Source


def test_every_table_gets_the_first_error_whatever_it_is() -> None:
    tries = []

    def connect(
        connection: MysqlConnection, *, server: Server | None = None
    ) -> AbstractContextManager[MysqlSession]:
        tries.append((connection, server))
        raise UnicodeError("label empty or too long")

    with Source(MysqlConnection(user="u"), connect=connect) as source:
        for _ in range(3):
            with pytest.raises(UnicodeError, match="label empty"):
                source.activity()
        with pytest.raises(UnicodeError, match="label empty"):
            source.ceiling(lambda _session: 1)
    assert len(tries) == 1


def test_a_session_that_is_opened_while_the_source_is_closed_is_closed_too() -> None:
    closed: list[bool] = []

    @contextmanager
    def connect(
        connection: MysqlConnection,
        *,
        server: Server | None = None,
    ) -> Iterator[MysqlSession]:
        source.close()  # as another thread does
        yield cast("MysqlSession", object())
        closed.append(True)

    connection = MysqlConnection(user="u")
    source = Source(connection, connect=connect)
    with pytest.raises(FloodmarkError, match="the run is over"):
        source.open(connection, None)
    assert closed == [True]


class Sessions:
    """Opens sessions that do nothing, and counts those that are open."""

    def __init__(self) -> None:
        self.open = 0

    @contextmanager
    def connect(
        self, connection: MysqlConnection, *, server: Server | None = None
    ) -> Iterator[MysqlSession]:
        self.open += 1
        try:
            yield cast("MysqlSession", FakeSession())
        finally:
            self.open -= 1


class FakeSession:
    """A session without a connection."""

    server: Server | None = None
    ended = False


SERVER = Server(identity="s", uuid="s", version="8.4.0", product="mysql", max_connections=151)


def test_tables_that_fail_leave_no_session_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "read_server", lambda _session: SERVER)
    sessions = Sessions()
    with Source(MysqlConnection(user="u"), connect=sessions.connect) as source:
        for _ in range(60):
            with pytest.raises(KeyError, match="t"), source.session():
                raise KeyError("t")
        assert sessions.open == 0
        assert source.readers_at_once(64) == 30
        with source.session() as first, source.session():
            assert sessions.open == 2
        with source.session() as again:
            assert (again is first, sessions.open) == (True, 2)
    assert sessions.open == 0


def test_a_server_that_cannot_be_identified_leaves_no_session_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_session: MysqlSession) -> Server:
        raise FloodmarkError("no such variable")

    monkeypatch.setattr(sources, "read_server", fail)
    sessions = Sessions()
    with Source(MysqlConnection(user="u"), connect=sessions.connect) as source:
        for _ in range(3):
            with pytest.raises(FloodmarkError, match="no such variable"), source.session():
                pass
        assert sessions.open == 0
