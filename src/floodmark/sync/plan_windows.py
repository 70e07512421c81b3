"""Divide a plan into chunks of windows."""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import chain
from math import ceil

from floodmark.config.models import ExtractionSettings
from floodmark.model.extraction import ChunkPlan, Edge
from floodmark.model.position import START, KeyScan, Position
from floodmark.model.schema import SourceTable
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.index_scan import Walk, strides
from floodmark.mysql.predicates import window_predicate
from floodmark.mysql.row_estimates import has_rows
from floodmark.mysql.window_edges import (
    cursor_edges,
    key_edges,
    limited_bound,
    read_ids,
    read_numbers,
)
from floodmark.planning.window_sizes import WindowSize
from floodmark.planning.windows import even_edges, even_rows, is_dense, plan_chunks, scanned_rows
from floodmark.sync.plan import TablePlan
from floodmark.sync.scanned_edges import scanned_edges

# Headroom for low estimates: a last chunk of one window would leave the other workers idle.
_MARGIN = 9 / 8
_MANY_WINDOWS = 32  # whose edges one connection finds fast enough


def chunks_of(
    session: MysqlSession,
    plan: TablePlan,
    settings: ExtractionSettings,
    *,
    windows_per_chunk: Iterator[int],
    limit: int | None,
    walk: Walk = strides,
    found: Callable[[], None] = lambda: None,
    window_size: Callable[[int], WindowSize] = lambda _planned: WindowSize(),
) -> Generator[ChunkPlan]:
    """Divide a plan into chunks of windows, found one after another as needed.

    `windows_per_chunk` is asked before each chunk, and `window_size` before windows of several
    slices. A range of many windows is scanned by `walk`. `found` is called as soon as there is a
    chunk.
    """
    if plan.end is None:
        return
    most_rows, most_ahead = window_rows(plan.source, settings), rows_ahead(plan.source, settings)
    first = next(windows_per_chunk)
    share = partial(even_rows, most_rows=most_rows, windows_per_chunk=first)
    if plan.route.scans:
        rows = plan.source.estimated_rows
        share = partial(scanned_rows, table_rows=rows, most_rows=most_rows, most_ahead=most_ahead)
        most_rows = most_ahead  # by size alone
    yield from plan_chunks(
        plan.start,
        _announced(_edges(session, plan, share, limit, walk), found),
        windows_per_chunk=chain([first], windows_per_chunk) if plan.route.chunked else None,
        most_rows=most_rows,
        predicate=partial(window_predicate, plan.source, plan.choice.cursor),
        window_size=window_size,
    )


def _announced(edges: Iterator[Edge], found: Callable[[], None]) -> Iterator[Edge]:
    for number, edge in enumerate(edges):
        if number == 0:
            found()
        yield edge


def window_rows(source: SourceTable, settings: ExtractionSettings) -> int:
    """Return the rows per window; fewer if they are wide."""
    return min(settings.window_rows, rows_ahead(source, settings))


def rows_ahead(source: SourceTable, settings: ExtractionSettings) -> int:
    """Return how many rows a task may hold in memory."""
    return max(1, settings.window_mb * 1_000_000 // max(1, source.average_row_bytes))


def _edges(
    session: MysqlSession,
    plan: TablePlan,
    share: Callable[[int], int],
    limit: int | None,
    walk: Walk,
) -> Iterator[Edge]:
    assert plan.end is not None
    cursor, bound = plan.choice.cursor, plan.end
    numbers = _numbers(session, plan, bound) if limit is None else None
    if numbers and plan.follows_ids:
        if is_dense(numbers, plan.expected_rows):
            rows, last = plan.expected_rows, Position(id=numbers[-1])
            at = partial(Position, None)
            yield from even_edges(numbers, rows, at, last, stride=share(len(numbers)))
            return
    elif numbers and is_dense(numbers, plan.source.estimated_rows):
        yield from even_key_edges(
            plan.start, bound, numbers, plan.expected_rows, share(len(numbers))
        )
        return
    stride = share(ceil(plan.expected_rows * _MARGIN))
    if plan.expected_rows < _MANY_WINDOWS * stride:
        walk = strides
    if cursor.kind == "none":
        yield from _reload_edges(session, plan, bound, stride, walk)
        return
    if plan.route.scans:
        yield from scanned_edges(session, plan.source, cursor, plan.start, bound, share, limit)
        return
    stride = min(stride, limit or stride)
    along: Callable[..., Iterator[Edge]] = key_edges
    if plan.route.by == "cursor":
        along = partial(cursor_edges, index=plan.route.index)
    elif limit is not None and not plan.route.chunked:
        bound = limited_bound(session, plan.source, cursor, plan.start, bound, limit=limit)
        limit = None
    yield from along(
        session, plan.source, cursor, plan.start, bound, stride=stride, limit=limit, walk=walk
    )


def even_key_edges(
    start: Position, bound: Position, numbers: range, rows: int, stride: int
) -> Iterator[Edge]:
    """Split a scan along the primary key, from where that of its start stopped."""
    reached = start.walk.key if start.walk else None
    assert reached is None or isinstance(reached, int)

    def at(key: int) -> Position:
        return Position(start.timestamp, start.id, KeyScan(key, bound))

    return even_edges(numbers, rows, at, bound, stride=stride, reached=reached)


def _numbers(session: MysqlSession, plan: TablePlan, bound: Position) -> range | None:
    """Return the range of integer keys to scan, if there is something to read."""
    source, start, choice = plan.source, plan.start, plan.choice
    if choice.cursor.kind == "none":
        return read_numbers(session, source)
    if plan.follows_ids:
        return read_ids(session, source, choice.cursor, start, bound)
    if not plan.walked or (start.walk and not isinstance(start.walk.key, int)):
        return None
    if start.walk or has_rows(session, source, choice.cursor, start, bound, index=choice.index):
        return read_numbers(session, source)
    return None


def _reload_edges(
    session: MysqlSession, plan: TablePlan, bound: Position, stride: int, walk: Walk
) -> Iterator[Edge]:
    """Divide a whole table along its key; one window if it has no key or no rows."""
    if plan.route.scans:
        rows = plan.source.estimated_rows  # if far too low, the worker streams after all
        yield Edge(bound, rows, counted=False, most=rows or None)
        return
    edges = key_edges(
        session, plan.source, plan.choice.cursor, START, bound, stride=stride, walk=walk
    )
    yield next(edges, Edge(bound, 0))
    yield from edges
