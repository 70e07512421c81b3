"""Encryption of an open connection."""

from typing import Literal

from msgspec import Struct


class Encryption(Struct, frozen=True, kw_only=True):
    """The TLS protocol of a connection (None if plain), and what the client verified."""

    protocol: str | None = None
    verified: Literal["identity", "ca", "none"] = "none"
