"""Open the target that the configuration describes."""

import os
from collections.abc import Iterable
from contextlib import suppress

from floodmark.config.drivers import require_driver
from floodmark.config.models import (
    Connection,
    DuckdbConnection,
    LakeSettings,
    PostgresConnection,
    RedshiftConnection,
    TableSettings,
    too_long,
)
from floodmark.errors import ConfigError
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore
from floodmark.warehouse.parallel import ParallelRun
from floodmark.warehouse.target import Target

_NO_SETTINGS = TableSettings()

# System columns of every table; no other column can have these names.
_SYSTEM_COLUMNS = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}
_REDSHIFT_COLUMNS = _SYSTEM_COLUMNS | {"oid", "insertxid", "deletexid"}


def open_target(
    connection: Connection,
    objects: ObjectStore,
    lake: LakeSettings,
    settings: TableSettings = _NO_SETTINGS,
    *,
    read_only: bool = False,
    spread: ParallelRun | None = None,
    configured: Connection | None = None,
    copies: str | None = None,
) -> Target:
    """Open a target for a table, and import only the driver that it needs.

    With `read_only`, take no lock that would block other readers. With `spread`, run parts of large
    loads on workers. `configured` is the connection as configured, to fetch a password from AWS
    again. Files with a copy in the folder `copies` need not be fetched.
    """
    require_driver(connection)
    local_root = None if lake.is_s3 else lake.url
    if isinstance(connection, DuckdbConnection):
        from floodmark.warehouse.duckdb import DuckdbTarget

        return DuckdbTarget(
            connection.path,
            objects,
            local_root=local_root,
            read_only=read_only,
            memory_mb=connection.memory_mb,
            copies=copies,
        )
    if isinstance(connection, PostgresConnection):
        from floodmark.warehouse.lake_reader import LakeFiles
        from floodmark.warehouse.postgres.target import PostgresTarget

        files = LakeFiles(objects, local_root)
        if spread is None:
            return PostgresTarget(connection, files, settings)
        from floodmark.warehouse.postgres.parallel_copy import ParallelPostgresTarget

        return ParallelPostgresTarget(connection, files, lake, spread, settings)
    if isinstance(connection, RedshiftConnection):
        from floodmark.warehouse.redshift.target import RedshiftTarget

        known = configured if isinstance(configured, RedshiftConnection) else None
        return RedshiftTarget(connection, objects, lake, settings, configured=known)
    raise ConfigError(
        f"a {type(connection).__struct_config__.tag} connection cannot be a target",
        hint="use a duckdb, postgres or redshift connection as the target",
    )


def import_kind(connection: Connection) -> None:
    """Import the driver of a target early; `open_target` reports it if that fails."""
    with suppress(Exception):
        import floodmark.warehouse.quarantine  # loads files

        if isinstance(connection, DuckdbConnection):
            import floodmark.warehouse.duckdb
        elif isinstance(connection, PostgresConnection):
            import floodmark.warehouse.postgres.binary_copy
            import floodmark.warehouse.postgres.parallel_copy
        elif isinstance(connection, RedshiftConnection):
            import floodmark.warehouse.redshift.target  # noqa: F401


def system_columns(connection: Connection, names: Iterable[str]) -> list[str]:
    """Return those names that no column can have in a target."""
    kept: set[str] = set()
    if isinstance(connection, PostgresConnection):
        kept = _SYSTEM_COLUMNS
    if isinstance(connection, RedshiftConnection):
        names, kept = list(names), _REDSHIFT_COLUMNS
        kept = {name for name in names if name.lower() in kept}
    return [name for name in names if name in kept or too_long(connection, name)]


def surely_missing(connection: Connection) -> bool:
    """Whether a target is known to be missing without opening it."""
    return isinstance(connection, DuckdbConnection) and not os.path.exists(connection.path)


def open_reader(connection: Connection, lake: LakeSettings) -> Target:
    """Open a target for reading; the lake is opened only if many rows are read."""
    if isinstance(connection, RedshiftConnection):
        from floodmark.warehouse.redshift.target import RedshiftTarget

        return RedshiftTarget(connection, None, lake)
    return open_target(connection, MemoryObjectStore(), lake, read_only=True)
