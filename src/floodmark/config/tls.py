"""Whether a connection is encrypted and what is verified: one decision for every client.

| `tls:` | host | connection |
| --- | --- | --- |
| a block | any | encrypted and verified as it says, or refused |
| `off` | any | plain |
| none | this machine, or through a tunnel | plain |
| none | any other | encrypted, certificate verified for this host |

Redshift has no plain default: its certificate is verified, through a tunnel without its host name.
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
    """The addresses that a name stands for on this machine; none if it is unknown."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None)]
    except (OSError, UnicodeError):
        return []


def is_local(host: str, resolve: Resolve = addresses_of) -> bool:
    """Whether a host is this machine for certain: an address of it, its socket, or `localhost`.

    Any other name counts as remote even if it stands for this machine now. libpq takes a list.
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
    """Decide how a connection is encrypted; None if it is not."""
    wanted = wanted_tls(connection)
    if wanted is not None:
        return None if wanted == "off" else wanted
    tunnelled = not isinstance(connection, PostgresConnection) and connection.tunnel is not None
    if isinstance(connection, RedshiftConnection):
        return TlsSettings(verify="ca" if tunnelled else "identity")
    if tunnelled or is_local(connection.host, resolve):
        return None
    return TlsSettings()


def wanted_tls(connection: Server) -> Tls | None:
    """What the configuration says; None if it leaves it to the default."""
    if connection.tls is not None or not isinstance(connection, RedshiftConnection):
        return connection.tls
    older: dict[object, Tls] = {False: "off", "verify-ca": TlsSettings(verify="ca")}
    return older.get(connection.ssl)


def may_send_cleartext(tls: TlsSettings | None) -> bool:
    """Whether a server may have the password as it is: only one whose certificate is verified."""
    return tls is not None and tls.verify != "none"


def located(connection: Server, name: str, folder: str) -> Server:
    """The same connection, `ca` with an absolute path; ConfigError if keys contradict each other.

    `folder` is where relative paths begin.
    """
    tls, path = connection.tls, f"connections.{name}.tls"
    if tls is not None and getattr(connection, "ssl", None) is not None:
        raise ConfigError(
            f"connections.{name} has both 'tls' and 'ssl'", hint="'ssl' is the older one: remove it"
        )
    if not isinstance(tls, TlsSettings):
        return connection
    if getattr(connection, "tunnel", None) and tls.verify == "identity":
        raise ConfigError(
            f"{path}: through a tunnel the server has another name",
            hint="use 'verify: ca'; the tunnel knows its own server by its host key",
        )
    if isinstance(connection, RedshiftConnection) and (tls.ca is not None or tls.verify == "none"):
        key = "ca" if tls.ca is not None else "verify"
        raise ConfigError(
            f"{path}.{key}: Redshift's driver verifies by Amazon's certificates and the system's,"
            " and cannot do otherwise",
            hint="add an authority of your own to the system's, or name a file of them all in"
            " SSL_CERT_FILE",
        )
    if tls.ca is None:
        return connection
    if tls.verify == "none":
        raise ConfigError(
            f"{path}: 'ca' is not looked at with 'verify: none'", hint="remove one of them"
        )
    ca = os.path.join(folder, os.path.expanduser(tls.ca))
    return structs.replace(connection, tls=structs.replace(tls, ca=ca))
