"""Proposals of `init` for the tables that it found."""

from msgspec import Struct


class Proposal(Struct, frozen=True, kw_only=True):
    """A table, its proposed cursor (empty: full reloads), and the reason.

    A table that is not `included` needs a decision, or cannot be read at all (then `cursor` is
    None): `left_out` is a short reason.
    """

    table: str
    schema: str
    rows: int
    cursor: tuple[str, ...] | None
    included: bool
    reason: str
    warnings: tuple[str, ...] = ()
    target_name: str | None = None
    left_out: str | None = None
