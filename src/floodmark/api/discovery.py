"""Find the tables of a server, before there is a project."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from floodmark.config.models import MysqlConnection
from floodmark.model.proposal import Proposal
from floodmark.model.table import TableName
from floodmark.mysql.catalog import list_tables
from floodmark.mysql.connection import MysqlSession, connect
from floodmark.mysql.offer import find_offer
from floodmark.sync.discovery import discover

__all__ = ["Catalog", "find_offer", "open_catalog"]


class Catalog:
    """The tables that a user may see."""

    def __init__(self, connection: MysqlConnection, session: MysqlSession) -> None:
        self._connection = connection
        self._session = session

    def tables(self, scope: str) -> dict[TableName, str]:
        """Each table, named under a scope, and its kind."""
        return list_tables(self._session, scope)

    def propose(self, tables: Mapping[TableName, str]) -> tuple[Proposal, ...]:
        """How each table could be read."""
        return tuple(discover(self._session, tables, self._connection))


@contextmanager
def open_catalog(connection: MysqlConnection) -> Iterator[Catalog]:
    """Connect to a server to look at its tables."""
    with connect(connection) as session:
        yield Catalog(connection, session)
