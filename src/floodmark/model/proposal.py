"""What `init` proposes for a table that it found."""

from msgspec import Struct


class Proposal(Struct, frozen=True, kw_only=True):
    """A table, the cursor that it would be read by (none: full reloads), and why.

    `reason` is what was found, `warnings` is what to know about it. A table that is not `included`
    is left for somebody to decide on, or cannot be read at all (`cursor` is None then): `left_out`
    says which, in a word or two.
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
