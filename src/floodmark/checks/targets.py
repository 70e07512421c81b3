"""Warehouses: can they be reached, and may tables be made and filled there."""

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
    """Make and fill a table, and undo it; a database that is not there yet is not made.

    `folder` is where relative paths of a tunnel begin.
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
                finding=f"Redshift reads S3 of AWS, and nothing of the lake's {endpoint}",
                hint="put the lake into a bucket of S3, in the region of the cluster",
            )
    else:
        yield Check(subject=subject, finding=f"{facts.version}; tables can be made and filled")
        for remark, hint in facts.remarks:
            yield Check(subject=subject, state="note", finding=remark, hint=hint)
        if encryption and isinstance(connection, Server):
            yield check_encryption(subject, connection, encryption)
        if not isinstance(connection, DuckdbConnection):  # which goes by this machine's clock
            yield check_clock(subject, facts.now, before, after)


def _check_folder(subject: str, path: str) -> Check:
    folder = os.path.dirname(path)
    if os.access(folder, os.W_OK | os.X_OK):
        return Check(subject=subject, finding=f"{path} is made by the first load")
    return Check(
        subject=subject,
        state="failed",
        finding=f"{folder} is no folder that can be written to",
        hint="make it, or mend 'path' of the connection",
    )
