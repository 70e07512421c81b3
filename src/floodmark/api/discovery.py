"""Discover the tables of a server, without a project."""

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
    """The tables that a user can see."""

    def __init__(self, connection: MysqlConnection, session: MysqlSession) -> None:
        self._connection = connection
        self._session = session

    def tables(self, scope: str) -> dict[TableName, str]:
        """Return the tables, with their names in a scope, and their kinds."""
        return list_tables(self._session, scope)

    def propose(self, tables: Mapping[TableName, str]) -> tuple[Proposal, ...]:
        """Propose how to read each table."""
        return tuple(discover(self._session, tables, self._connection))


@contextmanager
def open_catalog(connection: MysqlConnection) -> Iterator[Catalog]:
    """Connect to a server to read its catalog."""
    with connect(connection) as session:
        yield Catalog(connection, session)
