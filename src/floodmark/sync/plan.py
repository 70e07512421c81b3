"""Plan one table's extraction: what to read, how far, and along which index."""

from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from math import ceil

from msgspec import Struct

from floodmark.config.models import ExtractionSettings, TableSettings
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model.bound import Bound
from floodmark.model.cursor import Cursor, CursorChoice, key_kind
from floodmark.model.extraction import ChunkPlan, ColumnPlan, Edge, Route
from floodmark.model.log_state import Clock
from floodmark.model.manifest import Column
from floodmark.model.position import START, KeyScan, Position
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName
from floodmark.mysql.catalog import Definition, read_table
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.in_flight import read_next_id
from floodmark.mysql.index_scan import Walk, strides
from floodmark.mysql.predicates import window_predicate
from floodmark.mysql.row_estimates import count_unusable, count_waiting, estimate_rows, has_rows
from floodmark.mysql.types import plan_columns
from floodmark.mysql.window_edges import (
    cursor_edges,
    key_edges,
    limited_bound,
    read_ids,
    read_numbers,
)
from floodmark.planning.access_path import choose_route
from floodmark.planning.bounds import HELD_AFTER, settled_before
from floodmark.planning.columns import check_choices, leave_out_new
from floodmark.planning.cursor import choose_cursor
from floodmark.planning.cursor_change import refuse_another_cursor
from floodmark.planning.next_position import first_position
from floodmark.planning.null_cursors import judge_unusable, judge_waiting
from floodmark.planning.window_sizes import WindowSize
from floodmark.planning.windows import even_edges, even_rows, is_dense, plan_chunks, scanned_rows
from floodmark.sync.bound import configured_lag, configured_zone, cursor_clock, find_bound
from floodmark.sync.log_facts import Known
from floodmark.sync.scanned_edges import scanned_edges
from floodmark.sync.source import Source

# Headroom for low estimates: a last chunk of one window would leave the other workers idle.
_MARGIN = 9 / 8
_MANY_WINDOWS = 32  # whose edges one connection finds fast enough


class TablePlan(Struct, frozen=True, kw_only=True):
    """What to read of a table.

    `bound` is None if there is nothing to read; its `position` is None if nothing may be read.
    `now` is the server's time and `gtids` are those executed before any row was read. Once the plan
    is carried out, rows are complete up to `fresh`.
    """

    source: SourceTable
    choice: CursorChoice
    columns: tuple[ColumnPlan, ...]
    route: Route
    start: Position
    bound: Bound | None
    expected_rows: int
    warnings: tuple[str, ...]
    now: datetime | None = None
    clock: Clock | None = None
    gtids: str | None = None
    fresh: datetime | None = None

    @property
    def end(self) -> Position | None:
        """Position up to which to read; None if nothing can or may be read."""
        return self.bound.position if self.bound else None

    @property
    def held_back(self) -> Bound | None:
        """The bound, if nothing may be read."""
        return self.bound if self.bound and self.bound.position is None else None

    @property
    def held_by(self) -> str | None:
        """Reason why newer rows are held back, if for longer than a moment."""
        bound = self.bound
        if bound is None or bound.held_by is None:
            return None
        late = bound.fresh and self.now and self.now - bound.fresh > HELD_AFTER
        return bound.held_by if late or bound.position is None else None

    @property
    def walked(self) -> bool:
        """Whether this is a first load along the primary key, which may take long."""
        return self.end is not None and self.route.by == "key" and self.route.chunked

    @property
    def follows_ids(self) -> bool:
        """Whether the rows are read along an id cursor that is the primary key, an integer."""
        key = self.choice.cursor.key
        return (
            self.choice.cursor.kind == "id"
            and key == self.source.primary_key
            and self.route.by == "cursor"
            and self.route.index is not None
            and key_kind(self.source.column(key[0])) == "integer"
        )


def plan_table(
    server: Source,
    session: MysqlSession,
    table: TableName,
    table_settings: TableSettings,
    settings: ExtractionSettings,
    *,
    position: Position,
    known: Known,
    default_start: Position,
    limit: int | None,
    since: float = float("-inf"),
) -> TablePlan:
    """Read a table's facts and decide how to read what is new after its position.

    The position belongs to the `known` cursor; AnotherCursor if the table has another one now. A
    table with a time cursor and no position begins at `default_start`, inclusive, or with all rows.
    What is in flight must have been read after `since`.
    """
    source, choice, columns = read_shape(session, table, table_settings, known)
    cursor = choice.cursor
    refuse_another_cursor(known.cursor, source, cursor, position)
    if position.walk:
        _refuse_other_key(source, known.key())
    if cursor.kind == "none":
        _refuse_limit(table, limit)
    start = first_position(cursor.kind, position, default_start)
    unusable = judge_unusable(
        table, cursor, count_unusable(session, source, cursor), settings.null_cursors
    )
    bound, activity = find_bound(server, session, source, choice, settings, start, since)
    end = bound.position if bound else None
    expected = None
    if choice.index is not None and end is not None and not start.walk:
        expected = estimate_rows(session, source, cursor, start, end, index=choice.index)
    route = choose_route(
        source,
        cursor,
        start,
        rows_in_range=expected,
        limit=limit,
        large=settings.walk_from_rows,
    )
    return TablePlan(
        source=source,
        choice=choice,
        columns=columns,
        route=route,
        start=start,
        bound=bound,
        expected_rows=source.estimated_rows if expected is None else expected,
        warnings=(
            *choice.warnings,
            *filter(
                None,
                (
                    unusable,
                    left_out(source, columns, table_settings),
                    judge_waiting(
                        table, cursor, count_waiting(session, source, cursor, start, end, route)
                    ),
                    _beyond(session, source, cursor, start, bound),
                ),
            ),
        ),
        now=activity.now,
        clock=cursor_clock(source, cursor, activity, configured_zone(settings.cursor_time_zone)),
        gtids=activity.gtids,
        fresh=bound.fresh if bound else settled_before(activity, configured_lag(settings)),
    )


def read_shape(
    session: MysqlSession,
    table: TableName,
    table_settings: TableSettings,
    known: Known,
    definition: Definition | None = None,
) -> tuple[SourceTable, CursorChoice, tuple[ColumnPlan, ...]]:
    """Describe a table: its schema, its cursor, and how to read its columns.

    With a `definition`, the catalog is not read.
    """
    choices = table_settings.choices
    changed = (*choices.exclude, *choices.hash, *choices.booleans)
    source = read_table(session, table, changed=changed, known_key=known.key, definition=definition)
    choice = choose_cursor(source, table_settings.cursor_columns, known.cursor)
    if table_settings.schema_changes == "freeze" and (before := known.columns()):
        choices = leave_out_new(source, choice.cursor, choices, before)
    choices = check_choices(source, choice.cursor, choices)
    return source, choice, plan_columns(source, choices)


def left_out(
    source: SourceTable, columns: Sequence[ColumnPlan], table_settings: TableSettings
) -> str | None:
    """Return a warning if new columns are left out."""
    known = {column.name.lower() for column in columns}
    known |= {name.lower() for name in table_settings.exclude}
    new = [column.name for column in source.columns if column.name.lower() not in known]
    if not new:
        return None
    return (
        f"{source.name}: new columns are left out, as 'schema_changes' is 'freeze':"
        f" {', '.join(new)}"
    )


def _refuse_other_key(source: SourceTable, before: tuple[str, ...] | None) -> None:
    """Raise FloodmarkError if the key has changed since a key scan began."""
    if before and before != source.primary_key:
        raise FloodmarkError(
            f"{source.name}: a first load along its key ({', '.join(before)}) is in progress, and"
            f" the key is now ({', '.join(source.primary_key)})",
            hint=f"'floodmark watermark reset -t {source.name}', then sync, reads it again",
        )


def _beyond(
    session: MysqlSession, source: SourceTable, cursor: Cursor, start: Position, bound: Bound | None
) -> str | None:
    """Return a warning if new rows will get ids up to the position, and so never be read."""
    if cursor.kind != "id" or bound is not None or not isinstance(start.id, int):
        return None
    coming = read_next_id(session, source, cursor.key[0])
    if coming > start.id:
        return None
    return (
        f"{source.name}: its position is {start}, but new rows get ids from {coming} on and are not"
        " seen: was the table emptied, or restored from a backup? Then 'floodmark watermark reset"
        f" -t {source.name}' reads it again, and 'watermark set -t {source.name} --id"
        f" {coming - 1}' continues from there"
    )


def lake_columns(source: SourceTable, planned: Sequence[ColumnPlan]) -> tuple[Column, ...]:
    """Return a table's columns with their types in the lake."""
    found = ((plan, source.column(plan.name)) for plan in planned)
    return tuple(
        Column(
            plan.name,
            plan.type,
            column.nullable,
            plan.arrow,
            column.column_type if plan.hashed else None,
        )
        for plan, column in found
    )


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
        yield from _even_key_edges(plan, bound, numbers, share(len(numbers)))
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


def _even_key_edges(
    plan: TablePlan, bound: Position, numbers: range, stride: int
) -> Iterator[Edge]:
    """Split a scan along the primary key, from where that of the plan's start stopped."""
    start = plan.start
    reached = start.walk.key if start.walk else None
    assert reached is None or isinstance(reached, int)

    def at(key: int) -> Position:
        return Position(start.timestamp, start.id, KeyScan(key, bound))

    return even_edges(numbers, plan.expected_rows, at, bound, stride=stride, reached=reached)


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


def _refuse_limit(table: TableName, limit: int | None) -> None:
    if limit is not None:
        raise UsageError(
            f"every sync reads {table} in full: with --limit {limit} the other rows would be lost",
            hint="leave out --limit, or configure a cursor for the table",
        )
