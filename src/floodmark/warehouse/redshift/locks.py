"""Locks that serialize loads into Redshift.

Redshift does not enforce keys, so nothing else prevents duplicate rows. LOCK has only one mode,
which also blocks readers, so neither the target's table nor the ledger is locked, but empty tables
that nobody reads: one for each target table, and one for the ledger.

| step of the load's transaction | a crash right after it leaves |
| --- | --- |
| LOCK the target table's lock table, so that its last holder's commit is visible | nothing |
| another session: read the ledger's entries | nothing |
| COPY, merge | nothing |
| LOCK the ledger's lock table, `floodmark_lock` | nothing |
| another session: check that the entries have not changed, else start over | nothing |
| ledger, COMMIT | all of it |

A lock ends with its session. Loads of different tables wait for each other only in the last three
steps, which are short.

The transaction itself never reads the ledger: of two that both read and write a table, serializable
isolation rolls one back (error 1023), and a long load would starve among short ones. The other
session sees what is committed; it never waits for the load, which has not written to the ledger
yet.

Loads of the previous version hold `floodmark_lock` all the time. If one of them commits during a
load, the table's entries in the ledger change, and that load starts over; and it reads the ledger
only while it holds the lock, so it sees what a load has committed. If they deadlock, Redshift
cancels one of them, and that one is retried.
"""

import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from floodmark.config.aws_login import with_current_login
from floodmark.config.models import RedshiftConnection
from floodmark.errors import PassingConflict, StatementFailed
from floodmark.model.load import LoadBatch
from floodmark.warehouse.redshift.session import RedshiftSession, open_session
from floodmark.warehouse.redshift.watchdog import Watchdog
from floodmark.warehouse.sql_dialect import LEDGER
from floodmark.warehouse.sql_target import SqlTarget

_LOCK = "floodmark_lock"
_DIGITS = 16
_NO_TABLE = "42P01"
_FRESH_SECONDS = 60.0  # a session that was idle for longer may have been dropped silently


class LockingTarget(SqlTarget):
    """Locks tables for a load, and reads the ledger in a second session."""

    quiet_seconds = 600.0
    """How long a statement may run before another session checks that it is alive."""

    _session: RedshiftSession
    _connection: RedshiftConnection
    _configured: RedshiftConnection
    _beside: RedshiftSession | None = None
    _looked = 0.0
    _found: tuple[Any, ...] = ()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
        if self._beside is not None:
            self._beside.close()

    def _load_once(self, batch: LoadBatch) -> int:
        with Watchdog(self._session, self._log_in, self.report, self.quiet_seconds):
            return super()._load_once(batch)

    def _lock_table(self, batch: LoadBatch) -> None:
        self._lock(lock_name(batch.table.name), _LOCK)
        self._found = self._entries(batch)

    def _lock_entries(self, batch: LoadBatch) -> None:
        self._execute(f"LOCK TABLE {self._name(_LOCK)}")
        if self._entries(batch) != self._found:
            raise PassingConflict(
                f"{batch.table_name}: another load into {batch.table.name} was committed meanwhile",
                hint="run it again when no other load of this table is running",
            )

    def _lock_ledger(self) -> None:
        self._lock(_LOCK)

    def _lock(self, name: str, *others: str) -> None:
        """Lock a lock table; restart the transaction if one must be created first."""
        try:
            self._execute(f"LOCK TABLE {self._name(name)}")
            lacking = [other for other in others if not self._columns_of(other)]
        except StatementFailed as error:
            if error.code != _NO_TABLE:
                raise
            lacking = [name, *others]
        if lacking:
            self._rollback()
            for table in lacking:
                self._create(f"CREATE TABLE IF NOT EXISTS {self._name(table)} (locked INTEGER)")
            self._begin()
            self._execute(f"LOCK TABLE {self._name(name)}")

    def _entries(self, batch: LoadBatch) -> tuple[Any, ...]:
        """Return values that change if the source or target table is loaded or renamed."""
        return self._look(
            "SELECT COUNT(*), MAX(loaded_at), MIN(table_name), MAX(table_name)"  # noqa: S608
            f" FROM {self._name(LEDGER)} WHERE table_name = $1 OR target_table = $2",
            (batch.table_name, self._ledger_name(batch.table.name)),
        )[0]

    def _look(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        if not self._session.in_transaction:
            return self._query(statement, values)
        now = time.monotonic()
        if self._beside is not None and now - self._looked > _FRESH_SECONDS:
            self._beside.close()
            self._beside = None
        if self._beside is None:
            self._beside = open_session(self._log_in)
        self._looked = now
        return self._beside.run(statement, values)

    def _log_in(self) -> RedshiftConnection:
        """Return the connection with a password that is valid now: a load may outlast one."""
        return with_current_login(self._connection, self._configured)


def lock_name(table: str) -> str:
    """Return the name of a target table's lock table."""
    return f"{_LOCK}_{sha256(table.encode()).hexdigest()[:_DIGITS]}"
