"""Windows and chunks: a range of positions, cut at edges into pieces that tile it."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import ceil

from floodmark.errors import IllegalTransition
from floodmark.model.extraction import ChunkPlan, Edge, Window
from floodmark.model.position import KeyScan, Position

Predicate = Callable[[Position, Position], str]

_FEWEST_ROWS = 50_000  # below, a task costs more than it brings
_DENSE = 0.5  # rows a number: below, cutting by numbers would make many small windows


def even_rows(rows: int, *, most_rows: int, windows_per_chunk: int) -> int:
    """How many rows a window gets, so that the windows of all chunks are alike.

    Those that read beside each other then end together, also where full windows would be few.
    """
    chunks = max(1, ceil(rows / (most_rows * windows_per_chunk)))
    return min(most_rows, max(_FEWEST_ROWS, ceil(rows / (chunks * windows_per_chunk))))


def is_dense(numbers: range, rows: int) -> bool:
    """Whether keys that are whole numbers leave few of them out."""
    return rows >= _DENSE * (numbers.stop - numbers.start)  # len() is not for 2**63 and more


def even_edges(
    numbers: range, rows: int, start: Position, bound: Position, *, stride: int
) -> Iterator[Edge]:
    """Cut a walk along keys that are whole numbers every `stride` of them; it ends at its bound.

    Nothing is looked for: a window has at most as many rows as numbers, and shares the `rows` of
    the table by them. Goes on where the walk of `start` stopped.
    """
    share = min(1, rows / len(numbers))
    reached = numbers[0] - 1
    if start.walk:
        assert isinstance(start.walk.key, int)
        reached = max(reached, start.walk.key)  # what it has yet to read may have moved far away
    for key in range(reached + stride, numbers[-1], stride):
        end = Position(start.timestamp, start.id, KeyScan(key, bound))
        yield Edge(end, round(stride * share), counted=False, most=stride)
        reached = key
    left = max(0, numbers[-1] - reached)
    yield Edge(bound, round(left * share), counted=False, most=left)


def plan_chunks(
    start: Position,
    edges: Iterable[Edge],
    *,
    windows_per_chunk: int | None,
    most_rows: int,
    predicate: Predicate,
) -> Iterator[ChunkPlan]:
    """Cut the way from `start` along the edges into chunks of so many windows, or into one chunk.

    A window that may have more than `most_rows`, because they tie or nobody knows, is streamed.

    Edges are asked for as chunks are, and one more: a long way is not walked to its end before
    the first chunk can be read. No edges, no chunks.
    """
    ahead = iter(edges)
    pending = next(ahead, None)
    while pending is not None:
        rest = windows_per_chunk - 1 if windows_per_chunk else None
        chunk = [pending, *islice(ahead, rest)]
        pending = next(ahead, None)
        yield _plan_chunk(start, chunk, most_rows, predicate, final=pending is None)
        start = chunk[-1].end


def _plan_chunk(
    start: Position, edges: list[Edge], most_rows: int, predicate: Predicate, *, final: bool
) -> ChunkPlan:
    starts = [start, *(edge.end for edge in edges)]
    windows = tuple(
        Window(
            part=part,
            start=begin,
            end=edge.end,
            predicate=predicate(begin, edge.end),
            streamed=edge.may_exceed(most_rows),
        )
        for part, (begin, edge) in enumerate(zip(starts, edges, strict=False), start=1)
    )
    end = edges[-1].end
    check_tiling(start, end, windows)
    return ChunkPlan(
        start=start,
        end=end,
        windows=windows,
        rows=sum(edge.rows for edge in edges),
        counted=all(edge.counted for edge in edges),
        final=final,
    )


def check_tiling(start: Position, end: Position, windows: Iterable[Window]) -> None:
    """Raise IllegalTransition unless the windows cover `(start, end]` without gap or overlap."""
    reached = start
    for window in windows:
        if window.start != reached:
            raise IllegalTransition(
                f"window {window.part} begins at {window.start}, but {reached} was reached"
            )
        # Text keys have an order that only the database knows: then nothing can be said here.
        if window.end.compare(window.start) in (-1, 0):
            raise IllegalTransition(f"window {window.part} ends at {window.end}, where it began")
        reached = window.end
    if reached != end:
        raise IllegalTransition(f"the windows end at {reached}, not at {end}")
