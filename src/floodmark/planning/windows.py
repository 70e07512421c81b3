"""Windows and chunks: a range of positions, cut at edges into pieces that tile it."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import ceil

from floodmark.errors import IllegalTransition
from floodmark.model.extraction import ChunkPlan, Edge, Window
from floodmark.model.position import Position

Predicate = Callable[[Position, Position], str]

_FEWEST_ROWS = 50_000  # below, a task costs more than it brings
_MARGIN = (
    9 / 8
)  # for estimates that fall short: a chunk of one window would keep all others waiting


def even_rows(expected: int, *, most_rows: int, windows_per_chunk: int) -> int:
    """How many rows a window gets, so that the windows of all chunks are alike.

    Those that read beside each other then end together, also where full windows would be few.
    """
    wanted = max(1, ceil(expected * _MARGIN))
    chunks = ceil(wanted / (most_rows * windows_per_chunk))
    return min(most_rows, max(_FEWEST_ROWS, ceil(wanted / (chunks * windows_per_chunk))))


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
