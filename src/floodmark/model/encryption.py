"""What protects a connection, as the connection itself says."""

from typing import Literal

from msgspec import Struct


class Encryption(Struct, frozen=True, kw_only=True):
    """The protocol of an open connection, and what its client checked; no protocol if plain."""

    protocol: str | None = None
    verified: Literal["identity", "ca", "none"] = "none"
