"""Changes of a source table's columns, and how they differ from the target's."""

from typing import Literal

from msgspec import Struct

SchemaChanges = Literal["follow", "freeze", "stop"]
"""What to do when a source table's columns change."""

STOPS = "the table stops"


class Mismatch(Struct, frozen=True, kw_only=True):
    """A column whose rows do not fit the target's table as it is.

    `source` is the type that they need and `target` the one that it has. `will` is what a load does
    about it. With `stops`, nothing is loaded until `hint` is followed.
    """

    column: str
    source: str
    target: str
    will: str
    stops: bool = False
    hint: str | None = None


class SchemaDifference(Struct, frozen=True, kw_only=True):
    """A column that differs between the source, its last reading, and the target.

    None for a side that lacks it, or is not known to differ. `will` is what the next sync does.
    """

    column: str
    source: str | None = None
    last_read: str | None = None
    target: str | None = None
    will: str
    stops: bool = False
    hint: str | None = None

    def __str__(self) -> str:
        sides = [f"{self.source or 'not'} in the source"]
        if self.last_read:
            sides.append(f"{self.last_read} when last read")
        if self.target:
            sides.append(f"{self.target} in the target")
        return f"{self.column} is {', '.join(sides)}: {self.will}"
