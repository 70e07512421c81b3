"""The result of taking over a table that another tool has filled."""

from msgspec import Struct

from floodmark.model.position import Position


class TakeoverResult(Struct, frozen=True, kw_only=True):
    """Where syncs of a table go on from.

    `changes` are what the next load changes in the target's table. `skipped` is why there is
    nothing to take over. It was `taken` by this run, or by an earlier one that did not finish.
    """

    position: Position | None = None
    changes: tuple[str, ...] = ()
    skipped: str | None = None
    taken: bool = False

    def __str__(self) -> str:
        if self.skipped:
            return f"left alone: {self.skipped}"
        done = "taken over" if self.taken else "can be taken over"
        changes = f" ({', '.join(self.changes)})" if self.changes else ""
        return f"{done}; syncs go on after {self.position}{changes}"
