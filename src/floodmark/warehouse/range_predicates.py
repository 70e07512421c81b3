"""SQL conditions for ranges of rows that are read back from a target."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.model.timestamps import plain
from floodmark.model.verification import Extent

if TYPE_CHECKING:
    import pyarrow as pa


def within(extents: Sequence[Extent], quote: Callable[[str], str]) -> str:
    """Return the condition for rows that are in all of these extents."""
    conditions = []
    for extent in extents:
        names = [quote(name) for name in extent.columns]
        if extent.start:
            conditions.append(_beyond(names, extent.start, ">", ">"))
        if extent.end:
            conditions.append(_beyond(names, extent.end, "<", "<="))
    return " AND ".join(conditions) or "TRUE"


def up_to(extent: Extent, quote: Callable[[str], str]) -> str:
    """Return the condition for rows up to the end of an extent."""
    return _beyond([quote(name) for name in extent.columns], extent.end, "<", "<=")


def _beyond(names: Sequence[str], values: Sequence[datetime | int], strict: str, last: str) -> str:
    name, value = names[0], _literal(values[0])
    if len(values) == 1:
        return f"{name} {last} {value}"
    rest = _beyond(names[1:], values[1:], strict, last)
    return f"({name} {strict} {value} OR ({name} = {value} AND {rest}))"


def _literal(value: datetime | int) -> str:
    """Format a value for comparison with a column; sessions use UTC."""
    return f"'{plain(value)}'" if isinstance(value, datetime) else str(int(value))


def bytes_of(texts: "pa.Array") -> "pa.Array":
    """Decode hexadecimal texts: all at once, then split at half the offsets."""
    import pyarrow as pa
    import pyarrow.compute as pc

    _, offsets, data = texts.buffers()
    ends = pa.Array.from_buffers(pa.int32(), len(texts) + 1, [None, offsets], offset=texts.offset)
    first, last = ends[0].as_py(), ends[-1].as_py()
    digits = data[first:last].to_pybytes().decode() if last > first else ""
    halves = pc.divide(pc.subtract(ends, first), 2).cast(pa.int32())
    found = pa.Array.from_buffers(
        pa.binary(), len(texts), [None, halves.buffers()[1], pa.py_buffer(bytes.fromhex(digits))]
    )
    return pc.if_else(texts.is_valid(), found, None)
