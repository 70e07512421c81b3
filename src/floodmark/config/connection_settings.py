"""How a connection is reached, encrypted and logged in to, and what it grants."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from floodmark.config.secret import Secret
from floodmark.config.value_types import Column, Port, Seconds, Text


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
