"""Connections: one model for each kind of source and warehouse."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from floodmark.config.connection_settings import (
    GrantSettings,
    HeartbeatSettings,
    IamSettings,
    PrimarySettings,
    SecretSettings,
    Tls,
    TunnelSettings,
)
from floodmark.config.secret import Secret
from floodmark.config.value_types import Few, Port, Rows, Seconds, Text


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
    memory_mb: Annotated[int, Meta(ge=128, le=1_000_000)] = 512
    """Memory for DuckDB, which uses a temporary folder beside the file for what needs more. It runs
    a thread for each 128 MB, if there are as many processors."""


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
    max_connections: Few | None = None
    """Maximum connections of Spark's workers that copy large loads, for all tables together. By
    default a fifth of the server's `max_connections`; never more than the limits of the user and
    the database allow."""
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
