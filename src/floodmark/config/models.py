"""What a configuration holds. Every key that may be written is a field here."""

import re
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct, structs

from floodmark.config.secret import Secret
from floodmark.errors import ConfigError
from floodmark.model.extraction import ColumnChoices, NullCursors, ZeroDates
from floodmark.model.run import Strategy

Rows = Annotated[int, Meta(ge=1, le=1_000_000_000_000)]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Few = Annotated[int, Meta(ge=1, le=10_000)]
Megabytes = Annotated[int, Meta(ge=1, le=1_000_000)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Tries = Annotated[int, Meta(ge=1, le=100)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Text = Annotated[str, Meta(min_length=1)]
Column = Annotated[str, Meta(min_length=1)]
Encoding = Literal[
    "raw", "az64", "bytedict", "delta", "delta32k", "lzo", "mostly8", "mostly16", "mostly32",
    "runlength", "text255", "text32k", "zstd",
]  # fmt: skip

DEFAULT_START = datetime(2025, 1, 1, tzinfo=UTC)


class LakeSettings(Struct, frozen=True, kw_only=True):
    """Where the lake is."""

    url: Text
    """`s3://bucket/prefix`, or a folder."""
    endpoint: str | None = None
    """Address of an object store other than AWS."""
    region: str | None = None
    """Region of the bucket."""
    codec: Literal["snappy", "zstd", "gzip"] | None = None
    """How Parquet files are compressed. If not given, `snappy` where a connection is a Redshift,
    whose documentation names no `zstd` inside Parquet; else `zstd`."""

    @property
    def is_s3(self) -> bool:
        """Whether the lake is in an object store rather than in a folder."""
        return self.url.startswith("s3://")

    @property
    def outside_aws(self) -> str | None:
        """The endpoint, if it is none of AWS's own; Redshift reads S3 of AWS alone."""
        host = urlsplit(self.endpoint).hostname if self.endpoint else None
        inside = host is None or re.search(r"(^|\.)amazonaws\.(com|com\.cn|eu)$", host)
        return None if inside else self.endpoint

    def require_s3(self) -> None:
        """ConfigError unless Redshift can read the lake."""
        if not self.is_s3:
            raise ConfigError(
                f"Redshift cannot read the lake in {self.url}",
                hint="Redshift needs a lake in S3: lake: s3://bucket/prefix",
            )


class GrantSettings(Struct, frozen=True, kw_only=True):
    """Who gets a privilege: `analyst`, `group bi`, `role reporting`, or `public`."""

    select: tuple[Text, ...] = ()
    """Who may read."""
    insert: tuple[Text, ...] = ()
    """Who may insert rows."""
    update: tuple[Text, ...] = ()
    """Who may update rows."""
    delete: tuple[Text, ...] = ()
    """Who may delete rows."""


class TunnelSettings(Struct, frozen=True, kw_only=True):
    """An SSH server through which another server is reached; its host key must be known."""

    host: Text
    """The SSH server."""
    port: Port = 22
    """Its port."""
    user: Text
    """Who to be there."""
    key: Text
    """File of a private key without a passphrase."""
    known_hosts: Text | None = None
    """File of known host keys, instead of the user's and the system's."""
    keepalive_seconds: Annotated[int, Meta(ge=1, le=3600)] = 15
    """How often to look whether the server is still there."""


class TlsSettings(Struct, frozen=True, kw_only=True):
    """How a connection is encrypted and verified, or refused. `off` instead does not encrypt."""

    ca: Text | None = None
    """File of the certificates to trust, in PEM, instead of those of the system; workers need it in
    the same place. Not for Redshift, which has Amazon's."""
    verify: Literal["identity", "ca", "none"] = "identity"
    """`identity` checks the server's certificate and that it is for this host, `ca` the certificate
    alone, `none` only encrypts (not for Redshift)."""


Tls = TlsSettings | Literal["off"]


class SecretSettings(Struct, frozen=True, kw_only=True):
    """A secret of AWS Secrets Manager, read by this machine when a connection is opened."""

    name: Text
    """Its name or ARN. It holds JSON with `username` and `password`, as secrets that AWS manages
    do, or the password alone."""
    region: Text | None = None
    """Its region, if neither its ARN nor the AWS configuration says."""
    profile: Text | None = None
    """The AWS profile to read it with."""


class IamSettings(Struct, frozen=True, kw_only=True):
    """Log in to Redshift as an AWS identity, with a password that is valid for an hour."""

    cluster: Text | None = None
    """The cluster, if its endpoint does not begin with its name."""
    workgroup: Text | None = None
    """Or the Serverless workgroup, likewise."""
    region: Text | None = None
    """Its region, if the endpoint does not say."""
    profile: Text | None = None
    """The AWS profile to ask with."""


class PrimarySettings(Struct, frozen=True, kw_only=True):
    """The primary of a replica that is read from. TLS and tunnel are those of the connection."""

    host: Text
    """The primary; with a tunnel, as the SSH server sees it."""
    port: Port | None = None
    """Its port, if not that of the connection."""
    user: Text | None = None
    """User name there, if not that of the connection; needs PROCESS."""
    password: Secret | None = None
    """Password there, if not that of the connection; best written as `${NAME}`."""
    wait_seconds: Seconds = 30.0
    """How long to wait until the replica has executed what the primary had committed."""


class HeartbeatSettings(Struct, frozen=True, kw_only=True):
    """A table whose rows are stamped on the primary every second, such as `pt-heartbeat` makes."""

    table: Annotated[str, Meta(pattern=r"^[^.:]+\.[^.:]+$")]
    """`schema.table` on the replica. If it has several rows, the oldest counts."""
    column: Column = "ts"
    """A TIMESTAMP, or a DATETIME or text in UTC (`pt-heartbeat --utc`)."""


class MysqlConnection(Struct, frozen=True, kw_only=True, tag_field="type", tag="mysql"):
    """A MySQL or MariaDB server to read from; its name is the scope of its tables."""

    host: Text = "127.0.0.1"
    """The server; with a tunnel, as the SSH server sees it."""
    port: Port = 3306
    """Its port, likewise."""
    user: Text = ""
    """User name, required unless a secret has it; needs SELECT on the tables, PROCESS to see
    transactions in flight, and REPLICATION CLIENT (REPLICA MONITOR on MariaDB) to see whether the
    server is a replica."""
    password: Secret | None = None
    """Best written as `${NAME}`, filled in from the environment."""
    secret: SecretSettings | Text | None = None
    """In place of `password` and `user`: the name or ARN of a secret of AWS Secrets Manager, or
    `{name, region, profile}`."""
    tls: Tls | None = None
    """How connections are encrypted. If not given, the certificate must be valid for the host by
    the system's authorities, as with `{}`; a host on this machine or behind a tunnel is not
    encrypted, as with `off`."""
    tunnel: TunnelSettings | None = None
    """An SSH server in between; only for local Spark."""
    primary: PrimarySettings | None = None
    """If the server is a replica: its primary, which is asked what is in flight. Rows are then read
    from the replica, exactly up to where the primary is settled. Needs GTIDs."""
    heartbeat: HeartbeatSettings | None = None
    """If the server is a replica without `primary`: a table that shows how far it has come."""

    @property
    def to_primary(self) -> "MysqlConnection | None":
        """The connection to the primary, if one is named."""
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
    """The file; it is created when it is missing."""


class PostgresConnection(Struct, frozen=True, kw_only=True, tag_field="type", tag="postgres"):
    """A PostgreSQL database."""

    host: Text = "127.0.0.1"
    """The server."""
    port: Port = 5432
    """Its port."""
    database: Text
    """The database."""
    user: Text = ""
    """Who to be there, required unless a secret has it: CREATE and USAGE on the schema."""
    password: Secret | None = None
    """Best written as `${NAME}`, filled in from the environment."""
    secret: SecretSettings | Text | None = None
    """In place of `password` and `user`: the name or ARN of a secret of AWS Secrets Manager, or
    `{name, region, profile}`."""
    tls: Tls | None = None
    """How connections are encrypted, workers' too. If not given, the certificate must be valid for
    the host by the system's authorities, as with `{}`; a host on this machine is not encrypted, as
    with `off`."""
    schema: Text = "public"
    """Where the tables and the ledger are."""
    json: Literal["jsonb", "text"] = "jsonb"
    """What JSON becomes in tables made from then on: `text` keeps it as it was written; `jsonb` can
    be indexed and searched, but keeps one of duplicate keys, and rewrites numbers (`1.0e2`, `-0`)
    and blanks."""
    grant: GrantSettings = GrantSettings()
    """Who gets which privilege on tables when they are created, such as `{select: [analyst]}`."""


class RedshiftConnection(Struct, frozen=True, kw_only=True, tag_field="type", tag="redshift"):
    """An Amazon Redshift cluster or workgroup."""

    host: Text
    """The cluster's or workgroup's endpoint; with a tunnel, as the SSH server sees it."""
    port: Port = 5439
    """Its port, likewise."""
    database: Text
    """The database."""
    user: Text = ""
    """Who to be there: CREATE and USAGE on the schema. Required unless a secret has it, or `iam`
    is given: then the AWS identity itself is the user of a workgroup, and of a cluster if none is
    named."""
    password: Secret | None = None
    """Best written as `${NAME}`, filled in from the environment."""
    secret: SecretSettings | Text | None = None
    """In place of `password` and `user`: the name or ARN of a secret of AWS Secrets Manager, or
    `{name, region, profile}`."""
    iam: IamSettings | None = None
    """In place of `password`: log in as the AWS identity of this machine, or of a profile. `{}` is
    enough where `host` is the endpoint of a cluster or workgroup."""
    schema: Text = "public"
    """Where the tables and the ledger are."""
    iam_role: str | None = None
    """The role as which it reads the lake: an ARN, or `default`."""
    access_key_id: Secret | None = None
    """A key to read the lake with, where there is no role."""
    secret_access_key: Secret | None = None
    """The key's secret."""
    session_token: Secret | None = None
    """The token of a key that is valid for a time."""
    tls: Tls | None = None
    """How the connection is encrypted. If not given, the certificate must be valid for the host;
    through a tunnel, as with `{verify: ca}`."""
    ssl: bool | Literal["verify-ca"] | None = None
    """The older way to say `tls`: `true` is the default, `false` is `off`, `verify-ca` is
    `{verify: ca}`."""
    application_name: str = "floodmark"
    """What its lists of sessions show."""
    query_group: str | None = None
    """The query group, by which it chooses a queue."""
    statement_timeout: Seconds | None = None
    """Seconds after which it cancels a statement; its own setting if not given."""
    tunnel: TunnelSettings | None = None
    """An SSH server in between."""
    json: Literal["varchar", "super"] = "varchar"
    """What JSON becomes: `varchar` keeps it as it was written, `super` can be navigated."""
    analyze: bool = False
    """Whether each load is followed by an ANALYZE of its table; Redshift skips it where fewer than
    10% of the rows are new, and otherwise does it by itself when it finds the time."""
    grant: GrantSettings = GrantSettings()
    """Who gets which privilege on tables when they are created, such as `{select: [analyst, "group
    bi", "role reporting"]}`."""


Tunnelled = MysqlConnection | RedshiftConnection
Connection = MysqlConnection | DuckdbConnection | PostgresConnection | RedshiftConnection


def too_long(connection: Connection, name: str) -> bool:
    """Whether a warehouse would cut or refuse the name of a table or column."""
    most = {PostgresConnection: 63, RedshiftConnection: 127}.get(type(connection))
    return most is not None and len(name.encode()) > most


class TableSettings(Struct, frozen=True, kw_only=True):
    """How one table is read and loaded; what is not said is found from its schema."""

    cursor: Column | Annotated[list[Column], Meta(min_length=1)] | None = None
    """`[update_at, id]`, `id`, `update_at`, or `none` for full reloads; found from the schema if
    not given, and then kept from the first sync on."""
    exclude: list[Column] = []
    """Columns to leave out."""
    hash: list[Column] = []
    """Columns of which only the SHA-256 leaves the server, in hexadecimal: of the UTF-8 text, or of
    the bytes of a binary column. Rows read before keep what they have until `watermark reset`."""
    booleans: list[Column] = []
    """TINYINT columns to read as booleans; a value other than 0 and 1 stops the table."""
    target_name: Text | None = None
    """The table's name in the warehouse, if not its own."""
    distkey: Column | None = None
    """The column by which Redshift distributes the table, when it is created."""
    diststyle: Literal["all", "even", "key", "auto"] | None = None
    """How Redshift distributes the table, when it is created: `key` needs a `distkey`, which goes
    with nothing else. Redshift's default is `auto`."""
    sortkey: Column | Annotated[list[Column], Meta(min_length=1)] | None = None
    """The column or columns by which Redshift sorts the table, when it is created."""
    encode: dict[Column, Encoding] = {}
    """How Redshift compresses columns, when the table is created: `{column: zstd}`. It decides by
    itself for a table of which none is named."""
    grant: GrantSettings | None = None
    """Who gets which privilege on the table when it is created, in place of what the connection
    says: `{select: [analyst, "group bi"]}`, or `{}` for nobody."""

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """The columns by which Redshift sorts the table, when it is created; may be none."""
        if self.sortkey is None:
            return ()
        return (self.sortkey,) if isinstance(self.sortkey, str) else tuple(self.sortkey)

    @property
    def choices(self) -> ColumnChoices:
        """What is done to columns on the way."""
        return ColumnChoices(
            exclude=tuple(self.exclude), hash=tuple(self.hash), booleans=tuple(self.booleans)
        )

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
    """Name of a MySQL connection."""
    target: str
    """Name of a connection to a warehouse."""
    tables: dict[str, TableSettings]
    """`schema.table: {…}`, one line a table. A name with a dot or a colon in it is written in
    backticks, and the whole key in quotes."""


class RetrySettings(Struct, frozen=True, kw_only=True):
    """How often a request to the lake is tried, and how long the waits in between are."""

    tries: Tries = 3
    """How often a request to the lake is tried."""
    first_seconds: Seconds = 0.1
    """How long the first wait in between is, with jitter; each is twice as long as the last."""
    most_seconds: Seconds = 5.0
    """How long a wait is at most."""


class SparkSettings(Struct, frozen=True, kw_only=True):
    """Where Spark runs: in this process's machine, on a cluster, or behind Spark Connect."""

    master: Text = "local[*,4]"
    """`local[*,4]`, `spark://host:7077`, …"""
    remote: Text | None = None
    """A Spark Connect server, `sc://host:15002`, instead of a master."""
    memory: Text = "1g"
    """Of the driver if local, of each executor elsewhere."""
    options: dict[str, str] = {}
    """Any options of Spark, as `spark.name: value`."""
    fast_start: Literal["auto", "off"] = "auto"
    """`auto` starts a local Spark in half the time, by relying on details of PySpark and Java;
    `off` leaves the start to PySpark."""
    allow_insecure: bool = False
    """Use a cluster whose processes do not authenticate and encrypt, or a Spark Connect server
    elsewhere without TLS: others in that network can read passwords and rows."""


class ExtractionSettings(Struct, frozen=True, kw_only=True):
    """How tables are cut into windows, chunks and files, and how far they are read."""

    window_rows: Rows = 150_000
    """Rows that one Spark task reads, at most."""
    window_mb: Megabytes = 64
    """And what they take in MySQL, at most, by its own estimate: a task may hold a whole window in
    memory."""
    windows_per_chunk: Few = 8
    """Windows committed together with `--strategy intra-table`."""
    file_mb: Megabytes = 192
    """Size at which a Parquet file is closed and the next begun."""
    lag_seconds: Annotated[float, Meta(ge=0, le=2_592_000)] | None = None
    """How much longer than what can be seen a transaction may last. If not given, 0 on a primary,
    and 60 on a replica without `primary` and on a cluster. Without the PROCESS privilege nothing is
    read unless it is given."""
    cursor_time_zone: str | None = None
    """Zone of DATETIME cursors; the server's if not given."""
    zero_dates: ZeroDates = "null"
    """`null` counts and reports `0000-00-00`, `quarantine` sets its row aside, `error` stops."""
    null_cursors: NullCursors = "skip"
    """`skip` counts and reports rows without a cursor value, `error` stops."""
    walk_from_rows: Rows = 1_000_000
    """A first load of a table this large walks its primary key."""
    tables_at_once: Few = 4
    """Tables read beside each other with `--strategy inter-table`."""

    def windows_at_once(self, strategy: Strategy) -> int:
        """How many windows of a table make a chunk: more than one only within a table."""
        return self.windows_per_chunk if strategy == "intra-table" else 1


class LoadingSettings(Struct, frozen=True, kw_only=True):
    """How much is loaded in one transaction, what may be left out, and which older files come."""

    batch_mb: Megabytes = 1024
    """How much is loaded in one transaction, in MB of Parquet."""
    spread_mb: Megabytes = 64
    """From so many MB of Parquet on, Spark's workers copy files into PostgreSQL's staging."""
    quarantine_limit: Count = 100
    """Rows of one transaction that may go to quarantine; with more, nothing of it is loaded."""
    adopt_hours: Annotated[float, Meta(gt=0, le=8760)] = 10.0
    """Without a manual watermark, `sync --adopt` takes files this close to the last extraction."""
    adopt_mb: Megabytes = 4096
    """`sync --adopt` refuses a file that takes more MB than this, as it is or unpacked."""


class Config(Struct, frozen=True, kw_only=True):
    """A whole configuration file."""

    lake: LakeSettings | str
    """`s3://bucket/prefix` or a folder; or `{url, endpoint, region}`."""
    connections: dict[str, Connection] = {}
    """Sources and warehouses by name; the name of a source is the scope of its tables."""
    pipelines: dict[str, Pipeline] = {}
    """Which tables go from where to where."""
    default_start: datetime | Literal["all"] = DEFAULT_START
    """Where a table with a time cursor and no watermark begins. Earlier rows are not read, only
    counted; `all` reads every row."""
    presets: dict[str, datetime] = {}
    """Names for points in time, for `watermark set PRESET`."""
    retries: RetrySettings = RetrySettings()
    """See below."""
    spark: SparkSettings = SparkSettings()
    """See below."""
    extraction: ExtractionSettings = ExtractionSettings()
    """See below."""
    loading: LoadingSettings = LoadingSettings()
    """See below."""
    lease_seconds: Seconds = 60.0
    """How long a run that died elsewhere keeps its table."""
