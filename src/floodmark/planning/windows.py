"""Windows and chunks: a range of positions, cut at edges into pieces that tile it."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from floodmark.errors import IllegalTransition
from floodmark.model.extraction import ChunkPlan, Edge, Window
from floodmark.model.position import Position

Predicate = Callable[[Position, Position], str]


def plan_chunks(
    start: Position,
    edges: Iterable[Edge],
    *,
    windows_per_chunk: int | None,
    most_rows: int,
    predicate: Predicate,
) -> Iterator[ChunkPlan]:
    """Cut the way from `start` along the edges into chunks of so many windows, or into one chunk.

    A window that was not counted, or has more than `most_rows` because they tie, is streamed.

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
            streamed=not edge.counted or edge.rows > most_rows,
        )
        for part, (begin, edge) in enumerate(zip(starts, edges, strict=False), start=1)
    )
    end = edges[-1].end
    check_tiling(start, end, windows)
    rows = sum(edge.rows for edge in edges)
    return ChunkPlan(start=start, end=end, windows=windows, rows=rows, final=final)


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
