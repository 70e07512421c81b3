"""What a source server says of itself: which one it is, and its place in a replication set-up."""

from datetime import timedelta
from typing import Literal

from msgspec import Struct

Product = Literal["mysql", "mariadb"]


class Channel(Struct, frozen=True, kw_only=True):
    """A replication channel of a replica.

    `source` identifies the server that it replicates from: a `server_uuid`, or a `server_id` on
    MariaDB. `caught_up` says whether everything received is applied; `behind` is the delay that the
    server reports, None if it reports none. `silence` is how long ago the source was last heard at
    most. `chained` if what it sends comes from yet another server.
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
    """A server's place in a group (group replication) or cluster (Galera).

    `multi_primary` if other members accept writes too. `waiting` is how many transactions of other
    members wait to be applied here; `problem` why that is not known, or why it may not be read.
    """

    kind: Literal["group", "cluster"]
    name: str = ""
    primary: bool
    multi_primary: bool
    waiting: int = 0
    problem: str | None = None


class Server(Struct, frozen=True, kw_only=True):
    """A MySQL or MariaDB server.

    identity     no two servers share it, and it survives restarts
    read_only    the variables that make the server read-only, if any
    channels     its replication channels; None if the user may not see them
    unreplicated whether its GTIDs show that it never applied another server's transactions
    """

    identity: str
    uuid: str
    product: Product
    version: str
    read_only: tuple[str, ...] = ()
    channels: tuple[Channel, ...] | None = ()
    unreplicated: bool = False
    group: Group | None = None

    @property
    def guard(self) -> str:
        """SQL that is true on this server, and an error on any other.

        As part of a statement it proves that the statement ran here, whatever a proxy does: only
        one number fits above `~0 - 1`, so adding 1 is out of range (error 1690).
        """
        here = identity_expression(self.product)
        return f"~0 + (CAST({here} AS BINARY) <> X'{self.identity.encode().hex()}') > 0"

    @property
    def replica_grant(self) -> str:
        """The privilege that shows replication channels."""
        return "REPLICA MONITOR" if self.product == "mariadb" else "REPLICATION CLIENT"


def identity_expression(product: Product) -> str:
    """SQL for a server's identity.

    Host and port are part of it, because clones of a machine may share the rest. MariaDB has no
    UUID; there the data folder tells servers on one machine apart.
    """
    if product == "mariadb":
        return "CONCAT(@@server_id, '@', @@hostname, ':', @@port, @@datadir)"
    return "CONCAT(@@server_uuid, '@', @@hostname, ':', @@port)"
