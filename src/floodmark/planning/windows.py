"""Split a range of positions into windows and chunks that tile it."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import ceil

from floodmark.errors import IllegalTransition
from floodmark.model.extraction import ChunkPlan, Edge, Window
from floodmark.model.position import Position

Predicate = Callable[[Position, Position], str]

_FEWEST_ROWS = 50_000  # below this, the overhead of a task dominates
_FEWEST_SCANS, _MOST_SCANS = 4, 16  # windows of a table without an index: each scans all of it
_SLACK = 1 / 16
_DENSE = 0.5  # rows per number; below this, splitting by numbers makes many small windows


def even_rows(rows: int, *, most_rows: int, windows_per_chunk: int) -> int:
    """Return the rows per window, so that the windows of all chunks are of equal size.

    Windows that are read in parallel then end together, even if there are few of them.
    """
    chunks = max(1, ceil(rows / (most_rows * windows_per_chunk)))
    return min(most_rows, max(_FEWEST_ROWS, ceil(rows / (chunks * windows_per_chunk))))


def scanned_rows(rows: int, *, table_rows: int, most_rows: int, most_ahead: int) -> int:
    """Return the rows per window if every window scans the whole table.

    As few windows as keep a few slots busy, or more if a worker can then hold each in memory. None
    has only a small part of the table, as the scan would cost more than it saves.
    """
    least = max(min(_FEWEST_ROWS, most_rows), ceil(max(rows, table_rows) / _MOST_SCANS))
    fitting = ceil(rows * (1 + 2 * _SLACK) / most_ahead)
    stride = max(least, ceil(rows / max(_FEWEST_SCANS, fitting)))
    if stride * (1 + _SLACK) > most_ahead:  # they are streamed in any case
        stride = max(least, ceil(rows / _FEWEST_SCANS))
    return stride


def merged_edges(
    cells: Iterable[tuple[Position, int]], bound: Position, rows: int, *, stride: int
) -> Iterator[Edge]:
    """Merge neighbouring cells into windows of about `stride` rows; the last one ends at `bound`.

    A cell is a position and the rows since the previous one. If there are more `rows` than in all
    cells, the others may be in any window.
    """
    most = stride * (1 + _SLACK)  # otherwise what cells cannot fill makes another window
    found = list(cells)
    unplaced = max(0, rows - sum(count for _, count in found))

    def edge(end: Position, count: int) -> Edge:
        return Edge(end, count, counted=not unplaced, most=count + unplaced)

    reached: Position | None = None
    total = 0
    for end, count in found:
        if reached is not None and total + count > most:
            yield edge(reached, total)
            total = 0
        reached, total = end, total + count
    yield edge(bound, total)


def is_dense(numbers: range, rows: int) -> bool:
    """Return whether integer keys have few gaps."""
    return rows >= _DENSE * (numbers.stop - numbers.start)  # len() is not for 2**63 and more


def even_edges(
    numbers: range,
    rows: int,
    position: Callable[[int], Position],
    bound: Position,
    *,
    stride: int,
    reached: int | None = None,
) -> Iterator[Edge]:
    """Split a scan along integer keys every `stride` numbers; it ends at its bound.

    `position` returns that of a number. No queries are needed: a window has at most one row per
    number, and its share of the table's `rows`. Resume where an earlier scan `reached`.
    """
    share = min(1, rows / len(numbers))
    first = numbers[0] - 1
    reached = first if reached is None else max(first, reached)  # the rest may begin much later
    for key in range(reached + stride, numbers[-1], stride):
        yield Edge(position(key), round(stride * share), counted=False, most=stride)
        reached = key
    left = max(0, numbers[-1] - reached)
    yield Edge(bound, round(left * share), counted=False, most=left)


def plan_chunks(
    start: Position,
    edges: Iterable[Edge],
    *,
    windows_per_chunk: Iterator[int] | None,
    most_rows: int,
    predicate: Predicate,
) -> Iterator[ChunkPlan]:
    """Split the range from `start` along the edges into chunks of windows, or into one chunk.

    `windows_per_chunk` is asked before each chunk. A window that may have more than `most_rows`,
    because of ties or an unknown count, is streamed.

    Edges are consumed lazily, one ahead of the chunks: the first chunk can be read before all edges
    are known. No edges, no chunks.
    """
    ahead = iter(edges)
    pending = next(ahead, None)
    while pending is not None:
        rest = next(windows_per_chunk) - 1 if windows_per_chunk else None
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
        # Only the database knows the order of text keys, so they cannot be checked here.
        if window.end.compare(window.start) in (-1, 0):
            raise IllegalTransition(
                f"window {window.part} ends at {window.end}, not after its start"
            )
        reached = window.end
    if reached != end:
        raise IllegalTransition(f"the windows end at {reached}, not at {end}")
