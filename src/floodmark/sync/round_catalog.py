"""The catalog of a round: the definitions of many tables, read with a few statements.

They serve only to find out that a table has nothing new. No row is read by them: the extraction
describes the table again, under its lease. A table that is altered between this reading and the
look at its rows is noticed if that matters to the look:

    the cursor's column or the index is gone        the look's statement fails
    the time column has another type                the look compares the type of its result
    the table is replaced by another one            the look is at the new one
    any other column is added, changed or dropped   does not matter: nothing is read

and then it is described again.
"""

import time
from collections.abc import Iterable
from itertools import islice
from threading import BoundedSemaphore, Lock

from floodmark.model.table import TableName
from floodmark.mysql.catalog import Definition, read_definitions
from floodmark.mysql.connection import MysqlSession

AT_ONCE = 500
KEEP_SECONDS = 60.0
SESSIONS = 2
"""How many sessions look at tables at once: more would be missing where rows are read."""


class RoundCatalog:
    """The definitions of a round's tables. Thread-safe.

    Hold the `gate` while a session is used.
    """

    def __init__(self, tables: Iterable[TableName]) -> None:
        self._waiting = dict.fromkeys(tables)
        self._found: dict[TableName, tuple[float, Definition]] = {}
        self._lock = Lock()
        self.gate = BoundedSemaphore(SESSIONS)

    def definition(self, session: MysqlSession, table: TableName) -> Definition | None:
        """Return the definition of a table, at most a minute old; None if it is not found."""
        with self._lock:
            oldest = time.monotonic() - KEEP_SECONDS
            if table in self._waiting or self._read_at(table) < oldest:
                self._read(session, table)
            return self._found[table][1] if table in self._found else None

    def _read_at(self, table: TableName) -> float:
        return self._found[table][0] if table in self._found else float("inf")

    def _read(self, session: MysqlSession, table: TableName) -> None:
        """Read a table and the next ones of its schema."""
        others = (
            other
            for other in self._waiting
            if (other.scope, other.schema) == (table.scope, table.schema) and other != table
        )
        tables = [table, *islice(others, AT_ONCE - 1)]
        for one in tables:
            self._waiting.pop(one, None)
            self._found.pop(one, None)
        now = time.monotonic()
        found = read_definitions(session, table.schema, [one.table for one in tables])
        self._found |= {one: (now, found[one.table]) for one in tables if one.table in found}
