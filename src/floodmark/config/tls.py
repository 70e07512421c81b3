"""Decide whether a connection is encrypted and verified, for all clients alike.

| `tls:` | host | connection |
| --- | --- | --- |
| a block | any | encrypted and verified as configured, or refused |
| `off` | any | plain |
| none | this machine, or through a tunnel | plain |
| none | any other | encrypted, certificate verified for this host |

Redshift is encrypted by default: its certificate is verified, through a tunnel without the host
name.
"""

import os
import socket
from collections.abc import Callable, Iterable
from ipaddress import ip_address

from msgspec import structs

from floodmark.config.models import (
    MysqlConnection,
    PostgresConnection,
    RedshiftConnection,
    Tls,
    TlsSettings,
)
from floodmark.errors import ConfigError

Server = MysqlConnection | PostgresConnection | RedshiftConnection
Resolve = Callable[[str], Iterable[str]]


def addresses_of(name: str) -> list[str]:
    """Resolve a host name on this machine; empty if it is unknown."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None)]
    except (OSError, UnicodeError):
        return []


def is_local(host: str, resolve: Resolve = addresses_of) -> bool:
    """Return whether a host is certainly this machine: loopback, a socket, or `localhost`.

    Any other name counts as remote even if it now resolves to this machine. libpq accepts a list.
    """
    return all(_is_local(part, resolve) for part in host.split(","))


def _is_local(host: str, resolve: Resolve) -> bool:
    if host.startswith("/"):
        return True
    if host.lower().rstrip(".") == "localhost":
        found = list(resolve(host))
        return bool(found) and all(map(_is_loopback, found))
    return _is_loopback(host)


def _is_loopback(address: str) -> bool:
    try:
        found = ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def tls_for(connection: Server, resolve: Resolve = addresses_of) -> TlsSettings | None:
    """Return the TLS settings of a connection; None if it is not encrypted."""
    configured = configured_tls(connection)
    if configured is not None:
        return None if configured == "off" else configured
    tunnelled = not isinstance(connection, PostgresConnection) and connection.tunnel is not None
    if isinstance(connection, RedshiftConnection):
        return TlsSettings(verify="ca" if tunnelled else "identity")
    if tunnelled or is_local(connection.host, resolve):
        return None
    return TlsSettings()


def configured_tls(connection: Server) -> Tls | None:
    """Return the configured TLS settings; None for the default."""
    if connection.tls is not None or not isinstance(connection, RedshiftConnection):
        return connection.tls
    older: dict[object, Tls] = {False: "off", "verify-ca": TlsSettings(verify="ca")}
    return older.get(connection.ssl)


def may_send_cleartext(tls: TlsSettings | None) -> bool:
    """Return whether to send a password in clear text: only to a verified server."""
    return tls is not None and tls.verify != "none"


def located(connection: Server, name: str, folder: str) -> Server:
    """Make `ca` an absolute path, relative to `folder`; ConfigError if keys are contradictory."""
    tls, path = connection.tls, f"connections.{name}.tls"
    if tls is not None and getattr(connection, "ssl", None) is not None:
        raise ConfigError(
            f"connections.{name} has both 'tls' and 'ssl'", hint="remove 'ssl', the older one"
        )
    if not isinstance(tls, TlsSettings):
        return connection
    if getattr(connection, "tunnel", None) and tls.verify == "identity":
        raise ConfigError(
            f"{path}: the host name cannot be verified through a tunnel",
            hint="use 'verify: ca'; the tunnel verifies the SSH server by its host key",
        )
    if isinstance(connection, RedshiftConnection) and (tls.ca is not None or tls.verify == "none"):
        key = "ca" if tls.ca is not None else "verify"
        raise ConfigError(
            f"{path}.{key}: not supported; Redshift's driver always verifies with the certificates"
            " of Amazon and of the system",
            hint="add your own CA to the system's certificates, or set SSL_CERT_FILE to a file"
            " with all of them",
        )
    if tls.ca is None:
        return connection
    if tls.verify == "none":
        raise ConfigError(
            f"{path}: 'ca' has no effect with 'verify: none'", hint="remove one of them"
        )
    ca = os.path.join(folder, os.path.expanduser(tls.ca))
    return structs.replace(connection, tls=structs.replace(tls, ca=ca))
