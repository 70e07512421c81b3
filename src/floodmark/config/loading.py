"""Find, read and check the configuration, and fill in environment variables."""

import os
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import quote

import msgspec

from floodmark.config.aws_login import check_login
from floodmark.config.drivers import require_driver
from floodmark.config.hosts import check_hosts
from floodmark.config.models import (
    Config,
    Connection,
    DuckdbConnection,
    LakeSettings,
    MirrorSettings,
    MysqlConnection,
    Pipeline,
    PostgresConnection,
    RedshiftConnection,
    SparkSettings,
    TableSettings,
    TunnelSettings,
    too_long,
)
from floodmark.config.places import check_s3, folder_path, located_mirror
from floodmark.config.reading import parse_yaml
from floodmark.config.reconcile import policy_of
from floodmark.config.strict import build
from floodmark.config.tables import tables_of
from floodmark.config.tls import located
from floodmark.errors import ConfigError, UsageError
from floodmark.model.reconcile_policy import Policy
from floodmark.model.table import TableName
from floodmark.model.timestamps import utc_now

FILE_NAME = "floodmark.yml"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_OURS = "floodmark_"
_MIRROR_SECRETS = ("access_key_id", "secret_access_key", "session_token")
LONGEST_KEEP_SECONDS = 86_400.0
_TITLES: dict[type, str] = {
    DuckdbConnection: "DuckDB",
    PostgresConnection: "PostgreSQL",
    RedshiftConnection: "Redshift",
}
_LOCAL = {"localhost", "127.0.0.1", "::1"}


class LoadedConfig(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A checked configuration and its file.

    `unset` maps connections, hooks and the mirror to an environment variable they lack: commands
    that do not need them, such as `status` and `serve`, work without it.
    """

    path: str
    settings: Config
    lake: LakeSettings
    mirror: MirrorSettings | None = None
    tables: dict[TableName, tuple[str, TableSettings]]
    unset: dict[str, str]

    def check_run(self) -> None:
        """Raise ConfigError if the mirror or a hook lacks an environment variable."""
        for place in self.unset:
            if not place.startswith("connections."):
                self._refuse_unset(place)

    def check_mirror(self) -> None:
        """Raise ConfigError if the mirror lacks an environment variable."""
        self._refuse_unset("mirror")

    def _refuse_unset(self, place: str) -> None:
        if place in self.unset:
            raise ConfigError(f"{place}: environment variable {self.unset[place]} is not set")

    def connection(self, name: str) -> Connection:
        """Return a connection by name; ConfigError if it lacks an environment variable."""
        self._refuse_unset(f"connections.{name}")
        connection = self.settings.connections[name]
        if isinstance(connection, DuckdbConnection):
            folder = os.path.dirname(self.path)
            path = os.path.normpath(os.path.join(folder, os.path.expanduser(connection.path)))
            return msgspec.structs.replace(connection, path=path)
        return located(connection, name, os.path.dirname(self.path))

    def pipeline_of(self, table: TableName) -> Pipeline:
        """Return the pipeline of a table."""
        return self.settings.pipelines[self.tables[table][0]]

    def lake_title(self) -> str:
        """Return what messages call the lake."""
        return "S3" if self.lake.is_s3 else "Lake"

    def warehouse_title(self, table: TableName) -> str:
        """Return what messages call a table's warehouse, also if it cannot be used here."""
        target = self.pipeline_of(table).target if table in self.tables else None
        return _TITLES.get(type(self.settings.connections.get(target or "")), "Warehouse")

    def reconcile_policy(self, table: TableName) -> Policy:
        """Return how a table is reconciled with its source."""
        return policy_of(self.pipeline_of(table).reconcile, self.tables[table][1].reconcile)

    def warehouse_of(self, table: TableName) -> Connection:
        """Return the target connection of a table; ConfigError if it cannot be used here."""
        connection = self.connection(self.target_of(table)[0])
        require_driver(connection)
        if isinstance(connection, RedshiftConnection):
            self.lake.require_s3()
        return connection

    def target_of(self, table: TableName) -> tuple[str, str]:
        """Return the target connection and target name of a table; ConfigError if not unique."""
        mine, name = self._target(table)
        if name.lower().startswith(_OURS):
            raise ConfigError(
                f"{table} would be loaded into {name}, but names that start with {_OURS} are"
                " reserved for the ledger and staging tables",
                hint="give the table another 'target_name'",
            )
        if too_long(self.settings.connections[mine], name):
            raise ConfigError(
                f"{table} would be loaded into {name}, a name that is too long for {mine}",
                hint="give the table a shorter 'target_name'",
            )
        together = self._by_target[self._places[mine], name.lower()]
        if len(together) > 1:
            other = next(other for other in together if other != table)
            connection, other_name = self._target(other)
            alias = "" if connection == mine else f" ({mine} and {connection} are the same)"
            raise ConfigError(
                f"{table} and {other} would both be loaded into {connection}.{other_name}{alias}",
                hint="give one of them a 'target_name'",
            )
        return mine, name

    def _target(self, table: TableName) -> tuple[str, str]:
        pipeline, settings = self.tables[table]
        return self.settings.pipelines[pipeline].target, settings.target_name or table.table

    @cached_property  # used for each of thousands of tables
    def _places(self) -> dict[str, tuple[object, ...]]:
        """Locations of the warehouses, by connection."""
        used = {pipeline.target for pipeline in self.settings.pipelines.values()}
        return {connection: self._place(connection) for connection in used}

    @cached_property
    def _by_target(self) -> dict[tuple[tuple[object, ...], str], list[TableName]]:
        """Tables by their target; warehouse names are case-insensitive."""
        found = defaultdict[Any, list[TableName]](list)
        for table in self.tables:
            connection, name = self._target(table)
            found[self._places[connection], name.lower()].append(table)
        return found

    def tables_called(self, schema: str, name: str) -> list[TableName]:
        """Return the tables with this name, at most one per scope."""
        return self._by_name.get((schema, name), [])

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], list[TableName]]:
        found = defaultdict[tuple[str, str], list[TableName]](list)
        for table in self.tables:
            found[table.schema, table.table].append(table)
        return found

    def place_of(self, table: TableName) -> str:
        """Return a unique description of the target of a table, without secrets."""
        connection, name = self.target_of(table)
        kind = type(self.settings.connections[connection]).__struct_config__.tag
        parts = [
            part.host if isinstance(part, TunnelSettings) else str(part)
            for part in self._places[connection]
            if part is not None
        ]
        if len(parts) > 1:  # an address, and not the path of a file
            parts = [quote(part, safe="") for part in parts]
        return f"{kind}:{'/'.join([*parts, quote(name, safe='')])}"

    def _place(self, name: str) -> tuple[object, ...]:
        """Return the location of a warehouse, to find connections to the same one.

        Aliases of one server are not detected here, but by the ledger in the target.
        """
        if f"connections.{name}" in self.unset:
            return (name,)
        connection = self.connection(name)
        if isinstance(connection, DuckdbConnection):
            return (os.path.realpath(connection.path),)
        assert not isinstance(connection, MysqlConnection)
        host = connection.host.lower().rstrip(".")
        schema, tunnel = connection.schema, None
        if isinstance(connection, RedshiftConnection):
            schema, tunnel = schema.lower(), connection.tunnel
        local = "localhost" if host in _LOCAL else host
        return (local, connection.port, connection.database, schema, tunnel)


def load_config(path: str | None, environment: Mapping[str, str]) -> LoadedConfig:
    """Read the configuration from a path, FLOODMARK_CONFIG, or the working folder."""
    found = path or environment.get("FLOODMARK_CONFIG") or FILE_NAME
    try:
        with open(found, encoding="utf-8-sig") as file:
            text = file.read()
    except FileNotFoundError:
        raise ConfigError(
            f"no configuration: {found} does not exist",
            hint="create one with 'floodmark init', or set --config or FLOODMARK_CONFIG",
        ) from None
    except OSError as error:
        raise ConfigError(
            f"cannot read {found}: {error.strerror}", hint="name a file with --config"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"cannot read {found}: not UTF-8 text", hint="save it as UTF-8"
        ) from error
    raw = parse_yaml(text, found)
    if not isinstance(raw, dict):
        raise ConfigError(
            f"{found} is not a configuration: expected keys and values",
            hint="create one with 'floodmark init --force'",
        )
    for key in Config.__struct_fields__:
        variable = f"FLOODMARK_{key.upper()}"
        if given := environment.get(variable):
            parsed = parse_yaml(given, variable)
            raw[key] = parsed if isinstance(parsed, dict) else given
    unset: dict[str, str] = {}
    filled = _fill_in(raw, "", environment, unset)
    settings: Config = build(Config, filled, "configuration")
    for name, connection in settings.connections.items():
        check_hosts(f"connections.{name}", connection)
        if f"connections.{name}" not in unset:
            check_login(f"connections.{name}", connection)
    if settings.default_start != "all" and settings.default_start > utc_now():
        raise ConfigError(
            f"default_start: {settings.default_start.isoformat()} is in the future",
            hint="every row would be skipped",
        )
    _check_local_spark(settings.spark)
    folder = os.path.dirname(os.path.abspath(found))
    lake = _lake(settings, folder)
    return LoadedConfig(
        path=os.path.abspath(found),
        settings=settings,
        lake=lake,
        mirror=located_mirror(settings.mirror, lake, folder),
        tables=tables_of(settings),
        unset=unset,
    )


def _check_local_spark(spark: SparkSettings) -> None:
    """Raise ConfigError if a setting for a local Spark is used with another one."""
    try:
        seconds = spark.keep_seconds
    except UsageError as error:
        raise ConfigError(f"spark.keep_warm: {error.message}", hint=error.hint) from error
    if seconds is not None and seconds > LONGEST_KEEP_SECONDS:
        raise ConfigError(f"spark.keep_warm: {spark.keep_warm!r} is too long", hint="at most 1d")
    options = spark.options
    remote = options.get("spark.remote", spark.remote)
    master = options.get("spark.master", spark.master)
    if not remote and (not master or master.startswith("local")):
        return
    place = "Spark Connect" if remote else master  # the address may contain a token
    if seconds is not None:
        raise ConfigError(
            f"spark.keep_warm: only a local Spark can be kept, not {place}",
            hint="remove 'keep_warm'; a Spark Connect server is always warm",
        )
    if spark.from_rows:
        raise ConfigError(
            f"spark.from_rows: this machine would read fewer rows, not {place}",
            hint="remove 'from_rows'; it is for a local Spark",
        )


def _fill_in(raw: Any, path: str, environment: Mapping[str, str], unset: dict[str, str]) -> Any:
    """Replace every `${NAME}`; what `_place_of` knows may lack variables until it is used."""
    if isinstance(raw, dict):
        return {
            key: _fill_in(
                value, f"{path}.{_shown(key)}" if path else _shown(key), environment, unset
            )
            for key, value in raw.items()
        }
    if isinstance(raw, list):
        return [_fill_in(value, path, environment, unset) for value in raw]
    if not isinstance(raw, str):
        return raw
    for name in _VARIABLE.findall(raw):
        if name not in environment:
            place = _place_of(path)
            if place is None:
                raise ConfigError(f"{path}: environment variable {name} is not set")
            unset[place] = name
            # Valid for every type; nothing is used without its variable.
            return "http://localhost/" if path.endswith(".webhook") else "1"
    return _VARIABLE.sub(lambda match: environment[match[1]], raw)


def _place_of(path: str) -> str | None:
    """Return what a setting belongs to, if only some commands need it."""
    first, *rest = path.split(".")
    if first == "connections" and len(rest) > 1 and rest[1] != "type":
        return f"connections.{rest[0]}"
    if first == "mirror" and rest and rest[0] in _MIRROR_SECRETS:
        return "mirror"
    return f"hooks.{rest[0]}" if first == "hooks" and len(rest) > 1 else None


def _shown(key: object) -> str:
    """Return a key as printable text."""
    text = str(key)
    return text if text.isprintable() else ascii(text)


def _lake(settings: Config, folder: str) -> LakeSettings:
    lake = settings.lake
    if isinstance(lake, str):
        lake = LakeSettings(url=lake)
    if lake.is_s3:
        check_s3("lake", lake.url, lake.endpoint)
        kinds = map(type, settings.connections.values())
        if lake.codec is None and RedshiftConnection in kinds:
            return msgspec.structs.replace(lake, codec="snappy")
        return lake
    path = folder_path("lake", lake.url, folder)
    if lake.endpoint or lake.region:
        raise ConfigError("lake: 'endpoint' and 'region' are not allowed for a folder")
    return LakeSettings(url=path, codec=lake.codec)
