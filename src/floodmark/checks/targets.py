"""Check warehouses: reachable, and allowed to create and fill tables."""

import os
from collections.abc import Callable, Iterator
from datetime import datetime

from floodmark.checks.check import Check, check_clock, failed
from floodmark.checks.encryption import check_encryption
from floodmark.config.models import Connection, DuckdbConnection, LakeSettings, RedshiftConnection
from floodmark.config.tls import Server
from floodmark.errors import BusyError, FloodmarkError
from floodmark.storage.objects import ObjectStore
from floodmark.tunnels.tunnel import open_tunnel
from floodmark.warehouse.factory import open_target


def check_target(
    name: str,
    connection: Connection,
    objects: ObjectStore,
    lake: LakeSettings,
    clock: Callable[[], datetime],
    folder: str,
) -> Iterator[Check]:
    """Create and fill a table, and roll it back; do not create a missing DuckDB file.

    `folder` is the base of relative paths of a tunnel.
    """
    subject = f"target {name}"
    if isinstance(connection, DuckdbConnection) and not os.path.exists(connection.path):
        yield _check_folder(subject, connection.path)
        return
    try:
        with (
            open_tunnel(connection, folder=folder) as local,
            open_target(local, objects, lake) as target,
        ):
            before = clock()
            facts = target.probe()
            after = clock()
            encryption = target.encryption()
    except BusyError as error:
        yield Check(subject=subject, state="note", finding=error.message, hint=error.hint)
    except FloodmarkError as error:
        yield failed(subject, error)
        endpoint = lake.outside_aws if isinstance(connection, RedshiftConnection) else None
        if endpoint and endpoint not in (error.hint or ""):
            yield Check(
                subject=subject,
                state="note",
                finding=f"Redshift can only read S3 on AWS, not the lake's {endpoint}",
                hint="move the lake to an S3 bucket in the region of the cluster",
            )
    else:
        yield Check(subject=subject, finding=f"{facts.version}; can create and fill tables")
        for remark, hint in facts.remarks:
            yield Check(subject=subject, state="note", finding=remark, hint=hint)
        if encryption and isinstance(connection, Server):
            yield check_encryption(subject, connection, encryption)
        if not isinstance(connection, DuckdbConnection):  # which uses this machine's clock
            yield check_clock(subject, facts.now, before, after)


def _check_folder(subject: str, path: str) -> Check:
    folder = os.path.dirname(path)
    if os.access(folder, os.W_OK | os.X_OK):
        return Check(subject=subject, finding=f"the first load will create {path}")
    return Check(
        subject=subject,
        state="failed",
        finding=f"{folder} is not a writable folder",
        hint="create it, or correct 'path' of the connection",
    )
