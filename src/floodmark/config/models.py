"""Models of the configuration: one field per key."""

import re
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct, structs

from floodmark.config.hook_settings import Hooks
from floodmark.config.secret import Secret
from floodmark.errors import ConfigError
from floodmark.model.extraction import ColumnChoices, NullCursors, ZeroDates
from floodmark.model.reconcile_policy import Deletes
from floodmark.model.schema_change import SchemaChanges

Rows = Annotated[int, Meta(ge=1, le=1_000_000_000_000)]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Few = Annotated[int, Meta(ge=1, le=10_000)]
Megabytes = Annotated[int, Meta(ge=1, le=1_000_000)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Tries = Annotated[int, Meta(ge=1, le=100)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Text = Annotated[str, Meta(min_length=1)]
Column = Annotated[str, Meta(min_length=1)]
Share = Annotated[str, Meta(pattern=r"^(100|[0-9]{1,2}(\.[0-9]{1,3})?)%$")]
Encoding = Literal[
    "raw", "az64", "bytedict", "delta", "delta32k", "lzo", "mostly8", "mostly16", "mostly32",
    "runlength", "text255", "text32k", "zstd",
]  # fmt: skip

DEFAULT_START = datetime(2025, 1, 1, tzinfo=UTC)


class LakeSettings(Struct, frozen=True, kw_only=True):
    """Location of the lake."""

    url: Text
    """`s3://bucket/prefix`, or a folder."""
    endpoint: str | None = None
    """Address of an object store other than AWS."""
    region: str | None = None
    """Region of the bucket."""
    codec: Literal["snappy", "zstd", "gzip"] | None = None
    """Compression of Parquet files. By default `snappy` if a connection is Redshift, whose
    documentation does not list `zstd` in Parquet; else `zstd`."""

    @property
    def is_s3(self) -> bool:
        """Whether the lake is in S3 rather than in a folder."""
        return self.url.startswith("s3://")

    @property
    def outside_aws(self) -> str | None:
        """The endpoint, if it is not one of AWS; Redshift can only read S3 on AWS."""
        host = urlsplit(self.endpoint).hostname if self.endpoint else None
        inside = host is None or re.search(r"(^|\.)amazonaws\.(com|com\.cn|eu)$", host)
        return None if inside else self.endpoint

    def require_s3(self) -> None:
        """Raise ConfigError unless Redshift can read the lake."""
        if not self.is_s3:
            raise ConfigError(
                f"Redshift cannot read the lake in {self.url!r}",
                hint="Redshift needs a lake in S3: lake: s3://bucket/prefix",
            )


class MirrorSettings(Struct, frozen=True, kw_only=True):
    """A second place for the state of all tables: manifests, watermarks and run records."""

    url: Text
    """`s3://bucket/prefix`, or a folder; not in the lake, nor around it."""
    endpoint: str | None = None
    """Address of an object store other than AWS."""
    region: str | None = None
    """Region of the bucket."""
    profile: Text | None = None
    """AWS profile to use, such as one that assumes a role in another account."""
    access_key_id: Secret | None = None
    """Access key, instead of a profile; preferably `${NAME}`."""
    secret_access_key: Secret | None = None
    """Secret of the access key."""
    session_token: Secret | None = None
    """Session token of a temporary access key."""
    wait_seconds: Seconds = 10.0
    """How long a run waits at its end for the last copies. The next run copies the rest."""

    @property
    def is_s3(self) -> bool:
        """Whether the mirror is in S3 rather than in a folder."""
        return self.url.startswith("s3://")


class GrantSettings(Struct, frozen=True, kw_only=True):
    """Grantees per privilege: `analyst`, `group bi`, `role reporting`, or `public`."""

    select: tuple[Text, ...] = ()
    """Grantees of SELECT."""
    insert: tuple[Text, ...] = ()
    """Grantees of INSERT."""
    update: tuple[Text, ...] = ()
    """Grantees of UPDATE."""
    delete: tuple[Text, ...] = ()
    """Grantees of DELETE."""


class TunnelSettings(Struct, frozen=True, kw_only=True):
    """An SSH server to connect through; its host key must be known."""

    host: Text
    """The SSH server."""
    port: Port = 22
    """Its port."""
    user: Text
    """User name on the SSH server."""
    key: Text
    """Private key file, without a passphrase."""
    known_hosts: Text | None = None
    """File of known host keys, instead of the user's and the system's."""
    keepalive_seconds: Annotated[int, Meta(ge=1, le=3600)] = 15
    """Interval of keep-alive messages, in seconds."""


class TlsSettings(Struct, frozen=True, kw_only=True):
    """How a connection is encrypted and verified; `off` instead of a block does not encrypt."""

    ca: Text | None = None
    """PEM file of CA certificates to trust, instead of the system's; workers need it at the same
    path. Not for Redshift, whose driver has Amazon's."""
    verify: Literal["identity", "ca", "none"] = "identity"
    """`identity` verifies the certificate and the host name, `ca` only the certificate, `none`
    nothing: it only encrypts (not for Redshift)."""


Tls = TlsSettings | Literal["off"]


class SecretSettings(Struct, frozen=True, kw_only=True):
    """A secret in AWS Secrets Manager, read on this machine when a connection is opened."""

    name: Text
    """Name or ARN of the secret. Its value is JSON with `username` and `password`, as in secrets
    managed by AWS, or only the password."""
    region: Text | None = None
    """Region, if neither the ARN nor the AWS configuration has it."""
    profile: Text | None = None
    """AWS profile to use."""


class IamSettings(Struct, frozen=True, kw_only=True):
    """Log in to Redshift as an AWS identity, with a password that is valid for an hour."""

    cluster: Text | None = None
    """Cluster identifier, if the endpoint does not contain it."""
    workgroup: Text | None = None
    """Serverless workgroup, if the endpoint does not contain it."""
    region: Text | None = None
    """Region, if the endpoint does not contain it."""
    profile: Text | None = None
    """AWS profile to use."""


class PrimarySettings(Struct, frozen=True, kw_only=True):
    """The primary of a replica. TLS and tunnel are those of the connection."""

    host: Text
    """Host of the primary; with a tunnel, as seen from the SSH server."""
    port: Port | None = None
    """Port, if not that of the connection."""
    user: Text | None = None
    """User name, if not that of the connection; needs PROCESS."""
    password: Secret | None = None
    """Password, if not that of the connection; preferably `${NAME}`."""
    wait_seconds: Seconds = 30.0
    """How long to wait until the replica has applied the transactions of the primary."""


class HeartbeatSettings(Struct, frozen=True, kw_only=True):
    """A heartbeat table that the primary updates every second, such as that of `pt-heartbeat`."""

    table: Annotated[str, Meta(pattern=r"^[^.:]+\.[^.:]+$")]
    """`schema.table` on the replica. If it has several rows, the oldest is used."""
    column: Column = "ts"
    """Column of type TIMESTAMP, or DATETIME or text in UTC (`pt-heartbeat --utc`)."""


class MysqlConnection(Struct, frozen=True, kw_only=True, tag_field="type", tag="mysql"):
    """A MySQL or MariaDB server to read from; its name is the scope of its tables."""

    host: Text = "127.0.0.1"
    """Host; with a tunnel, as seen from the SSH server."""
    port: Port = 3306
    """Port; with a tunnel, as seen from the SSH server."""
    user: Text = ""
    """User name, required unless a secret has it; needs SELECT on the tables, PROCESS to see
    open transactions, and REPLICATION CLIENT (REPLICA MONITOR on MariaDB) to see whether the
    server is a replica."""
    password: Secret | None = None
    """Password; preferably `${NAME}`, replaced from the environment."""
    secret: SecretSettings | Text | None = None
    """Instead of `password` and `user`: name or ARN of a secret in AWS Secrets Manager, or
    `{name, region, profile}`."""
    tls: Tls | None = None
    """TLS settings. By default, connections to this machine or through a tunnel are not encrypted
    (`off`), and all others are verified with the system's CA certificates (`{}`)."""
    tunnel: TunnelSettings | None = None
    """SSH tunnel to the server; only for local Spark."""
    primary: PrimarySettings | None = None
    """If the server is a replica: its primary, to see open transactions. Rows are then read from
    the replica, exactly up to the settled position of the primary. Needs GTIDs."""
    heartbeat: HeartbeatSettings | None = None
    """If the server is a replica without `primary`: a table that shows its replication lag."""
    max_connections: Few | None = None
    """Maximum connections to the server, for all tables together: a few plan, the others read, and
    at least one does. By default a fifth of the server's `max_connections`; never more than its
    `max_user_connections` allows."""
    max_rows_per_second: Rows | None = None
    """Maximum rows read per second by all tables together, averaged over a window; by default
    unlimited. Finding windows and comparing rows is not slowed down."""

    @property
    def to_primary(self) -> "MysqlConnection | None":
        """The connection to the primary, if there is one."""
        primary = self.primary
        if primary is None:
            return None
        return structs.replace(
            self,
            host=primary.host,
            port=primary.port or self.port,
            user=primary.user or self.user,
            password=primary.password or self.password,
            secret=None if primary.password else self.secret,
            primary=None,
            heartbeat=None,
        )


class DuckdbConnection(Struct, frozen=True, kw_only=True, tag_field="type", tag="duckdb"):
    """A DuckDB database file."""

    path: Text
    """Path of the file; created if it is missing."""


class PostgresConnection(Struct, frozen=True, kw_only=True, tag_field="type", tag="postgres"):
    """A PostgreSQL database."""

    host: Text = "127.0.0.1"
    """Host."""
    port: Port = 5432
    """Port."""
    database: Text
    """Database."""
    user: Text = ""
    """User name, required unless a secret has it; needs CREATE and USAGE on the schema."""
    password: Secret | None = None
    """Password; preferably `${NAME}`, replaced from the environment."""
    secret: SecretSettings | Text | None = None
    """Instead of `password` and `user`: name or ARN of a secret in AWS Secrets Manager, or
    `{name, region, profile}`."""
    tls: Tls | None = None
    """TLS settings, also for workers. By default, connections to this machine are not encrypted
    (`off`), and all others are verified with the system's CA certificates (`{}`)."""
    schema: Text = "public"
    """Schema of the tables and the ledger."""
    json: Literal["jsonb", "text"] = "jsonb"
    """Type of JSON columns in new tables: `text` keeps the value as written; `jsonb` can be indexed
    and searched, but drops duplicate keys, and rewrites numbers (`1.0e2`, `-0`) and spaces."""
    grant: GrantSettings = GrantSettings()
    """Privileges to grant on new tables, such as `{select: [analyst]}`."""


class RedshiftConnection(Struct, frozen=True, kw_only=True, tag_field="type", tag="redshift"):
    """An Amazon Redshift cluster or workgroup."""

    host: Text
    """Endpoint of the cluster or workgroup; with a tunnel, as seen from the SSH server."""
    port: Port = 5439
    """Port; with a tunnel, as seen from the SSH server."""
    database: Text
    """Database."""
    user: Text = ""
    """User name; needs CREATE and USAGE on the schema. Required unless a secret has it, or `iam` is
    set: then the AWS identity is the user of a workgroup, and of a cluster if `user` is not
    set."""
    password: Secret | None = None
    """Password; preferably `${NAME}`, replaced from the environment."""
    secret: SecretSettings | Text | None = None
    """Instead of `password` and `user`: name or ARN of a secret in AWS Secrets Manager, or
    `{name, region, profile}`."""
    iam: IamSettings | None = None
    """Instead of `password`: log in as the AWS identity of this machine, or of a profile. `{}` is
    enough if `host` is the endpoint of a cluster or workgroup."""
    schema: Text = "public"
    """Schema of the tables and the ledger."""
    iam_role: str | None = None
    """IAM role that Redshift reads the lake with: an ARN, or `default`."""
    access_key_id: Secret | None = None
    """Access key to read the lake with, instead of a role."""
    secret_access_key: Secret | None = None
    """Secret of the access key."""
    session_token: Secret | None = None
    """Session token of a temporary access key."""
    tls: Tls | None = None
    """TLS settings. By default the certificate is verified, through a tunnel without the host name
    (`{verify: ca}`)."""
    ssl: bool | Literal["verify-ca"] | None = None
    """Older form of `tls`: `true` is the default, `false` is `off`, `verify-ca` is
    `{verify: ca}`."""
    application_name: str = "floodmark"
    """Name shown in the list of sessions."""
    query_group: str | None = None
    """Query group, which selects a WLM queue."""
    statement_timeout: Seconds | None = None
    """Seconds after which Redshift cancels a statement; by default its own setting."""
    tunnel: TunnelSettings | None = None
    """SSH tunnel to the server."""
    json: Literal["varchar", "super"] = "varchar"
    """Type of JSON columns: `varchar` keeps the value as written, `super` can be queried."""
    analyze: bool = False
    """Run ANALYZE after each load; Redshift skips it if fewer than 10% of the rows changed. By
    default Redshift analyzes tables in the background."""
    grant: GrantSettings = GrantSettings()
    """Privileges to grant on new tables, such as `{select: [analyst, "group bi", "role
    reporting"]}`."""


Tunnelled = MysqlConnection | RedshiftConnection
Connection = MysqlConnection | DuckdbConnection | PostgresConnection | RedshiftConnection


def too_long(connection: Connection, name: str) -> bool:
    """Return whether a name is too long for a warehouse, which would truncate or reject it."""
    most = {PostgresConnection: 63, RedshiftConnection: 127}.get(type(connection))
    return most is not None and len(name.encode()) > most


class BudgetSettings(Struct, frozen=True, kw_only=True):
    """The most that one run spends on reconciling a table; the next run continues there."""

    seconds: Seconds | None = None
    """Seconds of comparing; the interval of the key that is being compared is finished."""
    segments: Rows | None = None
    """Intervals of the key to compare."""


class ReconcileSettings(Struct, frozen=True, kw_only=True):
    """How a table is reconciled with its source; a key of a table overrides the pipeline's."""

    every: Text | None = None
    """Reconcile with the first sync after this time (`12h`, `1d`, `1w`); `never` to override a
    pipeline. By default only when asked."""
    deletes: Deletes | None = None
    """Rows that were deleted in the source: `hard` removes them from the target, `soft` marks them,
    `report` only reports them, with exit code 5. By default `report`: nothing is removed unless you
    ask for it."""
    deleted_at: Column | None = None
    """With `soft`: the column that is set when a row is found deleted, and NULL again if it comes
    back; `_deleted_at` by default."""
    max_deletes: Share | Count | None = None
    """Most rows to delete in a pass: a number, or a share of the table (`5%`). With more, the table
    stops and nothing is changed. By default `10%` of the table or 1,000 rows, whichever is more,
    and none if the source has no rows left."""
    budget: BudgetSettings | None = None
    """The most that one run spends, see below; by default there is no limit."""


class TableSettings(Struct, frozen=True, kw_only=True):
    """How one table is read and loaded; defaults come from its schema."""

    cursor: Column | Annotated[list[Column], Meta(min_length=1)] | None = None
    """`[update_at, id]`, `id`, `update_at`, or `none` for full reloads; by default chosen from the
    schema at the first sync, and then kept."""
    exclude: list[Column] = []
    """Columns to leave out."""
    hash: list[Column] = []
    """Columns to replace with their SHA-256 in hexadecimal, computed by MySQL: of the UTF-8 text,
    or of the bytes of a binary column. Rows already read keep their values until `watermark
    reset`."""
    booleans: list[Column] = []
    """TINYINT columns to read as booleans; a value other than 0 and 1 fails the table."""
    target_name: Text | None = None
    """Name of the table in the warehouse, if different."""
    schema_changes: SchemaChanges | None = None
    """When columns change: `follow` adds and widens columns in the warehouse; `freeze` leaves new
    columns out, and never alters the table there; `stop` stops the table before rows are read. By
    default that of the pipeline."""
    distkey: Column | None = None
    """Redshift: distribution key of a new table."""
    diststyle: Literal["all", "even", "key", "auto"] | None = None
    """Redshift: distribution style of a new table; `key` needs a `distkey`, the others allow none.
    Redshift's default is `auto`."""
    sortkey: Column | Annotated[list[Column], Meta(min_length=1)] | None = None
    """Redshift: sort key of a new table, one column or a list."""
    encode: dict[Column, Encoding] = {}
    """Redshift: compression of columns in a new table, such as `{column: zstd}`. Redshift chooses
    if no column is listed."""
    grant: GrantSettings | None = None
    """Privileges to grant on the new table, instead of those of the connection: `{select: [analyst,
    "group bi"]}`, or `{}` for none."""
    reconcile: ReconcileSettings = ReconcileSettings()
    """How to find and apply deletes, and to repair rows; see below."""

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """The columns of `sortkey`; may be empty."""
        if self.sortkey is None:
            return ()
        return (self.sortkey,) if isinstance(self.sortkey, str) else tuple(self.sortkey)

    @property
    def choices(self) -> ColumnChoices:
        """Columns to exclude, to hash, or to read as booleans."""
        return ColumnChoices(
            exclude=tuple(self.exclude), hash=tuple(self.hash), booleans=tuple(self.booleans)
        )

    @property
    def cursor_columns(self) -> tuple[str, ...] | None:
        """The columns of the cursor; None to choose from the schema, empty for full reloads."""
        if self.cursor is None:
            return None
        if isinstance(self.cursor, str):
            return () if self.cursor == "none" else (self.cursor,)
        return tuple(self.cursor)


class Pipeline(Struct, frozen=True, kw_only=True):
    """Tables to sync from one source to one target."""

    source: str
    """Name of a MySQL connection."""
    target: str
    """Name of a connection to a warehouse."""
    schema_changes: SchemaChanges = "follow"
    """`schema_changes` of tables that do not have their own."""
    tables: dict[str, TableSettings]
    """`schema.table: {…}`, one line per table. Write a name that contains a dot or a colon in
    backticks, and the whole key in quotes."""
    behind_hours: Annotated[float, Meta(gt=0, le=8760)] | None = None
    """`status` reports a table as behind if its data is older than this. By default after three
    intervals of `sync --every`, and after 24 hours without."""
    reconcile: ReconcileSettings = ReconcileSettings()
    """How to find and apply deletes, and to repair rows; tables can override each key."""


class RetrySettings(Struct, frozen=True, kw_only=True):
    """Retries of requests to the lake."""

    tries: Tries = 3
    """Number of attempts."""
    first_seconds: Seconds = 0.1
    """First delay between attempts, with jitter; it doubles each time."""
    most_seconds: Seconds = 5.0
    """Longest delay."""


class SparkSettings(Struct, frozen=True, kw_only=True):
    """Where Spark runs: on this machine, on a cluster, or behind Spark Connect."""

    master: Text | None = None
    """Spark master: `spark://host:7077`, `yarn`, …; by default that of `spark-submit` or
    `spark-defaults.conf`, else `local[*,4]`."""
    remote: Text | None = None
    """Spark Connect server, `sc://host:15002`, instead of a master."""
    memory: Text = "1g"
    """Memory of the driver if local; on a cluster, of the Python workers of each executor
    (`spark.executor.memoryOverhead`)."""
    options: dict[str, str] = {}
    """Spark options, as `spark.name: value`."""
    fast_start: Literal["auto", "off"] = "auto"
    """`auto` starts a local Spark in half the time, using internals of PySpark and Java; `off`
    leaves the start to PySpark."""
    allow_insecure: bool = False
    """Allow a cluster without authentication and encryption, or a remote Spark Connect server
    without TLS: others on the network can read passwords and rows."""


class ExtractionSettings(Struct, frozen=True, kw_only=True):
    """How tables are split into windows, chunks and files, and how far they are read."""

    window_rows: Rows = 150_000
    """Maximum rows per window, which one Spark task reads."""
    window_mb: Megabytes = 64
    """Maximum size of a window by MySQL's estimate: a task may hold a whole window in memory."""
    windows_per_chunk: Few | None = None
    """Windows committed together with `--strategy intra-table`; by default 8, and on a larger Spark
    as many as it runs tasks at once."""
    file_mb: Megabytes = 192
    """Size at which a Parquet file is closed and the next one started."""
    lag_seconds: Annotated[float, Meta(ge=0, le=2_592_000)] | None = None
    """How long an unseen transaction may stay open: rows newer than this are not read yet. By
    default 0 on a primary, and 60 on a replica without `primary` and on a cluster. Required to read
    without the PROCESS privilege."""
    cursor_time_zone: str | None = None
    """Time zone of DATETIME cursors; by default the server's."""
    zero_dates: ZeroDates = "null"
    """`0000-00-00`: `null` reads and counts it as NULL, `quarantine` sets the row aside, `error`
    fails the table."""
    null_cursors: NullCursors = "skip"
    """Rows without a cursor value: `skip` skips and counts them, `error` fails the table."""
    walk_from_rows: Rows = 1_000_000
    """First loads of tables with at least this many rows read in primary key order."""
    tables_at_once: Few | None = None
    """Tables read in parallel with `--strategy inter-table`; by default as many as Spark runs tasks
    at once, from 4 to 16."""


class LoadingSettings(Struct, frozen=True, kw_only=True):
    """Size of load transactions, limits of the quarantine, and adoption of older files."""

    batch_mb: Megabytes = 1024
    """Maximum MB of Parquet per transaction."""
    spread_mb: Megabytes = 64
    """From this many MB of Parquet on, Spark workers copy files into PostgreSQL in parallel."""
    quarantine_limit: Count = 100
    """Maximum rows per transaction to quarantine; with more, the load fails."""
    adopt_hours: Annotated[float, Meta(gt=0, le=8760)] = 10.0
    """Without a manual watermark, `sync --adopt` takes files within this many hours of the last
    extraction."""
    adopt_mb: Megabytes = 4096
    """`sync --adopt` refuses files larger than this, compressed or uncompressed."""


class Config(Struct, frozen=True, kw_only=True):
    """A configuration file."""

    lake: LakeSettings | str
    """`s3://bucket/prefix` or a folder; or `{url, endpoint, region}`."""
    mirror: MirrorSettings | str | None = None
    """A second place for the state, to recover from if the lake is lost: `s3://bucket/prefix` or
    a folder; or `{url, endpoint, region, profile}`."""
    connections: dict[str, Connection] = {}
    """Sources and warehouses by name; the name of a source is the scope of its tables."""
    pipelines: dict[str, Pipeline] = {}
    """Which tables to sync from which source to which target."""
    default_start: datetime | Literal["all"] = DEFAULT_START
    """Where a table with a time cursor and no watermark starts. Earlier rows are only counted;
    `all` reads every row."""
    presets: dict[str, datetime] = {}
    """Named dates and times for `watermark set PRESET`."""
    retries: RetrySettings = RetrySettings()
    """See below."""
    spark: SparkSettings = SparkSettings()
    """See below."""
    extraction: ExtractionSettings = ExtractionSettings()
    """See below."""
    loading: LoadingSettings = LoadingSettings()
    """See below."""
    lease_seconds: Seconds = 60.0
    """How long the lease of a run that died on another machine blocks its tables."""
    hooks: Hooks = Hooks()
    """Commands and webhooks to call after runs."""
    keep_runs_days: Annotated[int, Meta(ge=1, le=3650)] = 30
    """Days after which the record of a run is removed."""
