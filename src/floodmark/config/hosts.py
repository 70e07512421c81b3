"""Check host names; a URL may contain a password, so messages never show the value."""

from collections.abc import Iterator

from floodmark.config.models import Connection, DuckdbConnection, PostgresConnection
from floodmark.errors import ConfigError


def check_hosts(path: str, connection: Connection) -> None:
    """Raise ConfigError unless every host of a connection is a host name or an address."""
    libpq = isinstance(connection, PostgresConnection)
    for key, host in _hosts(connection):
        socket = libpq and host.startswith("/")
        if "://" in host or host.startswith("//") or ("@" in host[1:] and not socket):
            raise ConfigError(
                f"{path}.{key}: expected a host name, got a URL or a login",
                hint="write the host name alone; port, user and password have their own keys",
            )
        if not all(map(_is_resolvable, _names(host) if libpq else [host])):
            raise ConfigError(
                f"{path}.{key}: not a valid host name",
                hint="each part between dots has 1 to 63 characters",
            )


def _hosts(connection: Connection) -> Iterator[tuple[str, str]]:
    if isinstance(connection, DuckdbConnection):
        return
    yield "host", connection.host
    for key in ("primary", "tunnel"):
        if (other := getattr(connection, key, None)) is not None:
            yield f"{key}.host", other.host


def _names(hosts: str) -> list[str]:
    """Return the host names that libpq resolves: of a list, and not the Unix sockets."""
    return [host for host in hosts.split(",") if not host.startswith(("/", "@"))]


def _is_resolvable(host: str) -> bool:
    """Return whether Python can encode a host name to resolve it."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True
