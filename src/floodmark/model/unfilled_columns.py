"""New columns whose values in earlier rows are not in the target yet.

A row that gets a new column is not stamped, so no sync reads it again. If these rows have different
values in it, they keep NULL until a backfill has read all of them. Manifests record the rows that
are left, so that the program reports them until then.
"""

from collections.abc import Iterable, Sequence

from msgspec import structs

from floodmark.model.log_state import UnfilledColumn
from floodmark.model.manifest import Chunk
from floodmark.model.position import Position
from floodmark.model.table import TableName

Unfilled = tuple[UnfilledColumn, ...]


def unfilled_after(before: Unfilled, chunk: Chunk) -> Unfilled:
    """Return what is not filled after a chunk, which may begin a column or read rows again."""
    if chunk.reload:
        return ()
    if chunk.adopted or not chunk.columns:
        return before
    names = {column.name.lower() for column in chunk.columns}
    names -= {name.lower() for name in (*chunk.fills, *(new.column for new in chunk.unfilled))}
    left = (*(one for one in before if one.column.lower() in names), *chunk.unfilled)
    if chunk.start.walk and not chunk.end.walk:  # a key scan ends at the newest row it has read
        return tuple(_earlier_end(one, chunk.end) for one in left)
    read = _range_read(chunk)
    if read is None:
        return left
    # What is beyond the table's position is still to be read by a sync.
    whole = chunk.reconciled is not None and read[1] == chunk.end.base
    return tuple(rest for one in left if (rest := _rest(one, *read, whole=whole)))


def _range_read(chunk: Chunk) -> tuple[Position, Position] | None:
    """Return the positions between which a chunk has read every row."""
    if chunk.reconciled:
        part = chunk.reconciled.backfill
        return (part.start, part.reached) if part else None
    if chunk.inherited or chunk.start.walk or chunk.end.walk:
        return None
    return chunk.start, chunk.end


def _rest(
    one: UnfilledColumn, start: Position, end: Position, *, whole: bool
) -> UnfilledColumn | None:
    """Return what is left once all rows in `(start, end]` are read; a hole in it stays open.

    With `whole`, nothing is left after the end, even if only the database can order the positions.
    """
    from_start = start.compare(one.start) in (-1, 0) and end.compare(one.start) == 1
    to_end = whole or end.compare(one.up_to) in (0, 1)
    if from_start and to_end:
        return None
    if from_start:
        return structs.replace(one, start=end)
    return structs.replace(one, up_to=start) if to_end and start.compare(one.up_to) == -1 else one


def _earlier_end(one: UnfilledColumn, end: Position) -> UnfilledColumn:
    return structs.replace(one, up_to=end) if end.compare(one.up_to) == -1 else one


def describe_unfilled(unfilled: Sequence[UnfilledColumn]) -> str:
    """Describe the rows that lack values, in one line; empty if there are none."""
    return "; ".join(
        f"rows up to {up_to} do not have their values of {', '.join(names)} in the target"
        for (_, up_to), names in _by_rows(unfilled).items()
    )


def backfill_hint(table: TableName | str, unfilled: Sequence[UnfilledColumn]) -> str | None:
    """Return the commands that read these rows again; None if there are none."""
    hints = [
        f"'floodmark backfill -t {table} {_values(start, up_to)}' fills {', '.join(names)}"
        for (start, up_to), names in _by_rows(unfilled).items()
    ]
    return "; ".join(hints) or None


def _by_rows(
    unfilled: Iterable[UnfilledColumn],
) -> dict[tuple[Position, Position], list[str]]:
    rows: dict[tuple[Position, Position], list[str]] = {}
    for one in unfilled:
        rows.setdefault((one.start, one.up_to), []).append(one.column)
    return rows


def _values(start: Position, end: Position) -> str:
    """Return the options of a range of the cursor; it may begin a bit earlier."""
    if end.timestamp is None:
        return (
            f"--from {start.id + 1} --to {end.id}"
            if isinstance(start.id, int)
            else f"--to {end.id}"
        )
    moment = start.opening.timestamp
    first = f"--from {moment.replace(tzinfo=None).isoformat()} " if moment else ""
    return f"{first}--to {end.timestamp.replace(tzinfo=None).isoformat()}"
