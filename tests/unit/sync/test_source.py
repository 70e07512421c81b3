"""A source that cannot be read: all tables share the first error."""

from contextlib import AbstractContextManager

import pytest

from floodmark.config.models import MysqlConnection
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
