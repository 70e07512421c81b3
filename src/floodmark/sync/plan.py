"""Plan one table's extraction: what to read, how far, and along which index."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from floodmark.config.models import ExtractionSettings, TableSettings
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model.bound import Bound
from floodmark.model.cursor import Cursor, CursorChoice, key_kind
from floodmark.model.extraction import ColumnPlan, Route
from floodmark.model.log_state import Clock
from floodmark.model.manifest import Column
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName
from floodmark.mysql.catalog import Definition, read_table
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.in_flight import read_next_id
from floodmark.mysql.row_estimates import count_unusable, count_waiting, estimate_rows
from floodmark.mysql.types import plan_columns
from floodmark.planning.access_path import choose_route
from floodmark.planning.bounds import HELD_AFTER, settled_before
from floodmark.planning.columns import check_choices, leave_out_new
from floodmark.planning.cursor import choose_cursor
from floodmark.planning.cursor_change import refuse_another_cursor
from floodmark.planning.next_position import first_position
from floodmark.planning.null_cursors import judge_unusable, judge_waiting
from floodmark.sync.bound import configured_lag, configured_zone, cursor_clock, find_bound
from floodmark.sync.log_facts import Known
from floodmark.sync.source import Source


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


def _refuse_limit(table: TableName, limit: int | None) -> None:
    if limit is not None:
        raise UsageError(
            f"every sync reads {table} in full: with --limit {limit} the other rows would be lost",
            hint="leave out --limit, or configure a cursor for the table",
        )
