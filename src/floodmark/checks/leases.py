"""Check leases: which tables are held."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from floodmark.checks.check import Check, failed
from floodmark.errors import FloodmarkError
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped
from floodmark.state.lease import read_lease
from floodmark.storage.objects import ObjectStore


def check_leases(
    objects: ObjectStore, tables: Iterable[TableName], now: datetime
) -> Iterator[Check]:
    """Report each lease that is held, and how to break it."""
    held = 0
    try:
        for table in tables:
            lease = read_lease(objects, table)
            if lease is not None and lease.held(now):
                held += 1
                yield Check(
                    subject=str(table),
                    state="note",
                    finding=f"held by {lease.owner}, session {lease.session_id},"
                    f" until {stamped(lease.expires_at)}",
                    hint=f"if that run is dead: floodmark doctor -t '{table}' --break-lease",
                )
    except FloodmarkError as error:
        yield failed("leases", error)
        return
    if not held:
        yield Check(subject="leases", finding="none held")
