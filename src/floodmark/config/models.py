"""What a configuration holds. Every key that may be written is a field here."""

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta, Struct

from floodmark.config.secret import Secret
from floodmark.model.extraction import NullCursors, ZeroDates
from floodmark.model.run import Strategy

Rows = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Tries = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Column = Annotated[str, Meta(min_length=1)]

DEFAULT_START = datetime(2025, 1, 1, tzinfo=UTC)


class LakeSettings(Struct, frozen=True, kw_only=True):
    """Where the lake is: `s3://bucket/prefix` or a folder."""

    url: str
    endpoint: str | None = None
    region: str | None = None

    @property
    def is_s3(self) -> bool:
        """Whether the lake is in an object store rather than in a folder."""
        return self.url.startswith("s3://")


class TunnelSettings(Struct, frozen=True, kw_only=True):
    """An SSH server through which a MySQL server is reached; its host key must be known.

    `key` is the path of a private key without a passphrase, `known_hosts` that of a file to use
    instead of the user's and the system's. Relative paths begin at the configuration's folder.
    """

    host: str
    port: Port = 22
    user: str
    key: str
    known_hosts: str | None = None
    keepalive_seconds: Annotated[int, Meta(ge=1, le=3600)] = 15


class MysqlConnection(Struct, frozen=True, kw_only=True, tag_field="type", tag="mysql"):
    """A MySQL or MariaDB server to read from; its name is the scope of its tables.

    With a tunnel, `host` and `port` are as its SSH server sees them.
    """

    host: str = "127.0.0.1"
    port: Port = 3306
    user: str
    password: Secret | None = None
    tunnel: TunnelSettings | None = None


class DuckdbConnection(Struct, frozen=True, kw_only=True, tag_field="type", tag="duckdb"):
    """A DuckDB database file."""

    path: str


class PostgresConnection(Struct, frozen=True, kw_only=True, tag_field="type", tag="postgres"):
    """A PostgreSQL database."""

    host: str = "127.0.0.1"
    port: Port = 5432
    database: str
    user: str
    password: Secret | None = None
    schema: str = "public"


class RedshiftConnection(Struct, frozen=True, kw_only=True, tag_field="type", tag="redshift"):
    """An Amazon Redshift cluster or workgroup.

    It reads the lake as `iam_role` (an ARN, or `default`), or else with a key of its own. Without
    `ssl` the connection is not encrypted.
    """

    host: str
    port: Port = 5439
    database: str
    user: str
    password: Secret | None = None
    schema: str = "public"
    iam_role: str | None = None
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    ssl: bool = True


Connection = MysqlConnection | DuckdbConnection | PostgresConnection | RedshiftConnection


class TableSettings(Struct, frozen=True, kw_only=True):
    """How one table is read and loaded; what is not said is found from its schema.

    `distkey` and `sortkey` are for Redshift, which takes them when the table is created.
    """

    cursor: Column | Annotated[list[Column], Meta(min_length=1)] | None = None
    target_name: str | None = None
    distkey: Column | None = None
    sortkey: Column | Annotated[list[Column], Meta(min_length=1)] | None = None

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """The columns by which Redshift sorts the table, when it is created; may be none."""
        if self.sortkey is None:
            return ()
        return (self.sortkey,) if isinstance(self.sortkey, str) else tuple(self.sortkey)

    @property
    def cursor_columns(self) -> tuple[str, ...] | None:
        """The cursor's columns; None if the schema decides, empty for full reloads."""
        if self.cursor is None:
            return None
        if isinstance(self.cursor, str):
            return () if self.cursor == "none" else (self.cursor,)
        return tuple(self.cursor)


class Pipeline(Struct, frozen=True, kw_only=True):
    """Tables that go from one source to one target."""

    source: str
    target: str
    tables: dict[str, TableSettings]


class RetrySettings(Struct, frozen=True, kw_only=True):
    """How often a request to the lake is tried, and how long the waits in between are."""

    tries: Tries = 3
    first_seconds: Seconds = 0.1
    most_seconds: Seconds = 5.0


class SparkSettings(Struct, frozen=True, kw_only=True):
    """Where Spark runs: in this process's machine, on a cluster, or behind Spark Connect."""

    master: str = "local[*,4]"
    remote: str | None = None
    memory: str = "1g"
    options: dict[str, str] = {}


class ExtractionSettings(Struct, frozen=True, kw_only=True):
    """How tables are cut into windows, chunks and files, and how far they are read."""

    window_rows: Rows = 250_000
    window_mb: Rows = 64
    windows_per_chunk: Rows = 8
    file_mb: Rows = 192
    lag_seconds: Annotated[float, Meta(ge=0)] | None = None
    cursor_time_zone: str | None = None
    zero_dates: ZeroDates = "null"
    null_cursors: NullCursors = "skip"
    walk_from_rows: Rows = 1_000_000
    tables_at_once: Rows = 4

    def windows_at_once(self, strategy: Strategy) -> int:
        """How many windows of a table make a chunk: more than one only within a table."""
        return self.windows_per_chunk if strategy == "intra-table" else 1


class LoadingSettings(Struct, frozen=True, kw_only=True):
    """How much is loaded in one transaction."""

    batch_mb: Rows = 1024


class Config(Struct, frozen=True, kw_only=True):
    """A whole configuration file."""

    lake: LakeSettings | str
    connections: dict[str, Connection] = {}
    pipelines: dict[str, Pipeline] = {}
    default_start: datetime = DEFAULT_START
    presets: dict[str, datetime] = {}
    retries: RetrySettings = RetrySettings()
    spark: SparkSettings = SparkSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    loading: LoadingSettings = LoadingSettings()
    lease_seconds: Seconds = 60.0
