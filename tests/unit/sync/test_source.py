"""A source that cannot be read, or is closed: no session outlives it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import cast

import pytest

from floodmark.config.models import MysqlConnection
from floodmark.errors import FloodmarkError
from floodmark.model.server import Server
from floodmark.mysql.connection import MysqlSession
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
