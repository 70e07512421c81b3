"""The identity of a source server, and its role in replication."""

from datetime import timedelta
from typing import Literal

from msgspec import Struct

Product = Literal["mysql", "mariadb"]


class Channel(Struct, frozen=True, kw_only=True):
    """A replication channel of a replica.

    `source` identifies the server that it replicates from: a `server_uuid`, or a `server_id` on
    MariaDB. `caught_up` is whether everything received is applied; `behind` is the delay that the
    server reports, None if it reports none. `silence` is the maximum time since the source last
    sent something. `chained` if the source itself replicates from another server.
    """

    name: str
    source: str
    receiving: bool
    applying: bool
    caught_up: bool
    behind: timedelta | None
    silence: timedelta
    chained: bool = False

    def __str__(self) -> str:
        return f"channel {self.name!r}" if self.name else "replication"


class Group(Struct, frozen=True, kw_only=True):
    """A server's role in a group (group replication) or cluster (Galera).

    `multi_primary` if other members accept writes too. `waiting` is the number of transactions of
    other members still to be applied here; `problem` is why that is unknown or cannot be read.
    """

    kind: Literal["group", "cluster"]
    name: str = ""
    primary: bool
    multi_primary: bool
    waiting: int = 0
    problem: str | None = None


class Server(Struct, frozen=True, kw_only=True):
    """A MySQL or MariaDB server.

    identity     unique, and stable across restarts
    read_only    the variables that make the server read-only, if any
    channels     its replication channels; None if the user may not see them
    unreplicated whether its GTIDs prove that it never applied another server's transactions
    max_connections       connections that it accepts from all users; None if unknown
    max_user_connections  connections that it accepts from our user; 0 if unlimited
    """

    identity: str
    uuid: str
    product: Product
    version: str
    read_only: tuple[str, ...] = ()
    channels: tuple[Channel, ...] | None = ()
    unreplicated: bool = False
    group: Group | None = None
    max_connections: int | None = None
    max_user_connections: int = 0

    @property
    def guard(self) -> str:
        """SQL that is true on this server, and an error on any other.

        As part of a statement it proves that the statement ran here, even behind a proxy: `~0` is
        the largest number, so adding 1 is out of range (error 1690).
        """
        here = identity_expression(self.product)
        return f"~0 + (CAST({here} AS BINARY) <> X'{self.identity.encode().hex()}') > 0"

    @property
    def replica_grant(self) -> str:
        """The privilege that shows replication channels."""
        return "REPLICA MONITOR" if self.product == "mariadb" else "REPLICATION CLIENT"


def identity_expression(product: Product) -> str:
    """Return SQL for a server's identity.

    It includes host and port, because clones of a machine may share the rest. MariaDB has no UUID;
    there the data directory distinguishes servers on one machine.
    """
    if product == "mariadb":
        return "CONCAT(@@server_id, '@', @@hostname, ':', @@port, @@datadir)"
    return "CONCAT(@@server_uuid, '@', @@hostname, ':', @@port)"
