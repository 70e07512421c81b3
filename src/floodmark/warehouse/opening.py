"""From the configuration to a target."""

from floodmark.config.models import Connection, DuckdbConnection, LakeSettings
from floodmark.errors import ConfigError
from floodmark.storage.objects import ObjectStore
from floodmark.warehouse.target import Target


def open_target(connection: Connection, objects: ObjectStore, lake: LakeSettings) -> Target:
    """Open a target. Only the kind that is asked for is imported."""
    if isinstance(connection, DuckdbConnection):
        from floodmark.warehouse.duckdb import DuckdbTarget

        local_root = None if lake.is_s3 else lake.url
        return DuckdbTarget(connection.path, objects, local_root=local_root)
    raise ConfigError(
        f"loading into {type(connection).__struct_config__.tag} is not part of this version yet",
        hint="use a duckdb connection, or add --backup-only to stop at the lake",
    )
