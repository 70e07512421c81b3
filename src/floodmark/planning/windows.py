"""Split a range of positions into windows and chunks that tile it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from math import ceil

from floodmark.errors import IllegalTransition
from floodmark.model.extraction import ChunkPlan, Edge, Window
from floodmark.model.position import Position
from floodmark.planning.window_sizes import WindowSize

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
    window_size: Callable[[int], WindowSize] = lambda _planned: WindowSize(),
) -> Iterator[ChunkPlan]:
    """Split the range from `start` along the edges into chunks of windows, or into one chunk.

    `windows_per_chunk` is asked before each chunk. A slice that may have more than `most_rows`,
    because of ties or an unknown count, is streamed. `window_size` returns how many slices the next
    windows have, given the rows planned so far. In the first chunk a window is one slice: it is
    committed soon, and shows how large rows are.

    Edges are consumed lazily, one ahead of the chunks: the first chunk can be read before all edges
    are known. No edges, no chunks.
    """
    ahead = _EdgesAhead(edges, most_rows)
    sizes, size = _same_for_all_slots(lambda: window_size(ahead.taken_rows)), WindowSize()
    first = windows_per_chunk is not None
    while ahead.more:
        wanted = next(windows_per_chunk) if windows_per_chunk else None
        chunk: list[list[Edge]] = []
        slices = 0
        while ahead.more and (wanted is None or slices < wanted or len(chunk) < size.per_chunk):
            size = WindowSize() if first else next(sizes)
            most = size.most_slices
            if most is not None and wanted is not None:
                most = min(most, wanted - slices)
            chunk.append(ahead.take(size.rows, most))
            slices += len(chunk[-1])
        yield _plan_chunk(start, chunk, most_rows, predicate, final=not ahead.more)
        start, first = chunk[-1][-1].end, False


def _same_for_all_slots(decide: Callable[[], WindowSize]) -> Iterator[WindowSize]:
    """Windows that are read at once have the same size, and so end together."""
    while True:
        size = decide()
        yield from repeat(size, size.at_once)


class _EdgesAhead:
    """Takes edges for one window after another; looks one edge ahead.

    A slice counts as a third of `most_rows` or more: few rows may be found in a range that takes
    long. One that may have more than these is a window of its own.
    """

    def __init__(self, edges: Iterable[Edge], most_rows: int) -> None:
        self._edges = iter(edges)
        self._most_rows = most_rows
        self._pending = next(self._edges, None)
        self.taken_rows = 0

    @property
    def more(self) -> bool:
        """Whether there is another edge."""
        return self._pending is not None

    def take(self, rows: int, most: int | None) -> list[Edge]:
        """Take one edge, and as many more as fit into these rows, up to `most` in all."""
        taken: list[Edge] = []
        weight = 0
        while (edge := self._pending) is not None:
            weight += max(1, edge.rows, self._most_rows // 3)
            alone = edge.may_exceed(self._most_rows)
            if taken and (alone or weight > rows or len(taken) == most):
                break
            taken.append(edge)
            self.taken_rows += edge.rows
            self._pending = next(self._edges, None)
            if alone:
                break
        return taken


def _plan_chunk(
    start: Position,
    chunk: Sequence[Sequence[Edge]],
    most_rows: int,
    predicate: Predicate,
    *,
    final: bool,
) -> ChunkPlan:
    windows: list[Window] = []
    reached = start
    for part, edges in enumerate(chunk, start=1):
        windows.append(_plan_window(part, reached, edges, most_rows, predicate))
        reached = edges[-1].end
    check_tiling(start, reached, windows)
    edges_of_all = [edge for edges in chunk for edge in edges]
    return ChunkPlan(
        start=start,
        end=reached,
        windows=tuple(windows),
        rows=sum(edge.rows for edge in edges_of_all),
        counted=all(edge.counted for edge in edges_of_all),
        final=final,
    )


def _plan_window(
    part: int, start: Position, edges: Sequence[Edge], most_rows: int, predicate: Predicate
) -> Window:
    slices = tuple(
        Window(
            part=part,
            start=begin,
            end=edge.end,
            predicate=predicate(begin, edge.end),
            streamed=edge.may_exceed(most_rows),
        )
        for begin, edge in zip([start, *(edge.end for edge in edges)], edges, strict=False)
    )
    if len(slices) == 1:
        return slices[0]
    end = edges[-1].end
    check_tiling(start, end, slices)
    return Window(part=part, start=start, end=end, predicate=predicate(start, end), slices=slices)


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
