"""Changes of a source table's columns, and how they differ from the target's."""

from typing import Literal

from msgspec import Struct

SchemaChanges = Literal["follow", "freeze", "stop"]
"""What to do when a source table's columns change."""

STOPS = "the table stops"
KEY = "PRIMARY KEY"
"""Stands for the name of a column if the whole key differs."""
RELATION = "RELATION"
"""Stands for the name of a column if the target has something else than a table."""


class Mismatch(Struct, frozen=True, kw_only=True):
    """A column whose rows do not fit the target's table as it is.

    `source` is the type that they need and `target` the one that it has. A `change` of the table
    makes them fit, and `will` is what a load does. With `stops`, it loads nothing until `hint` is
    followed. `cure` is what to do while no rows are in the lake.
    """

    column: str
    source: str
    target: str
    change: Literal["add", "widen", "allow NULL"] | None = None
    will: str = STOPS
    stops: bool = True
    hint: str | None = None
    cure: str | None = None


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
