"""What `watermark set` does: whether it can be, which rows it skips, what the next sync reads."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from floodmark.api.context import RunContext
from floodmark.api.reset_preview import last_chunk
from floodmark.errors import FloodmarkError, StateError, UsageError, WrongClock
from floodmark.model.cursor_facts import CursorFacts, remembered
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
from floodmark.model.watermark import FURTHEST_ZONE
from floodmark.planning.next_position import first_position

if TYPE_CHECKING:
    from floodmark.mysql.connection import MysqlSession
    from floodmark.sync.source import Source


class Move(Struct, frozen=True, kw_only=True):
    """Where an operator wants a table to go on: what to ask first, and what will happen then."""

    question: str | None
    outlook: str


def foresee_move(
    run: RunContext, table: TableName, before: Position | None, wanted: Position, *, force: bool
) -> Move:
    """Say what a position set by hand would do; UsageError if it would do nothing, or harm."""
    last = last_chunk(run, table)
    facts = remembered(run.table_settings(table).cursor_columns, last, before)
    _refuse(run, table, facts, wanted)
    rows = None
    by_time = facts.kind == "timestamp"
    if facts.kind is None or by_time or (not force and _step(run, facts, before, wanted) != -1):
        try:
            facts, rows = _ask_source(run, table, before, wanted, force=force)
        except WrongClock:
            raise
        except FloodmarkError as error:
            facts = structs.replace(facts, problem=error.message)
        _refuse(run, table, facts, wanted)
    step, question = _step(run, facts, before, wanted), None
    if step in (1, None):
        question = _skipping(run, table, facts, before, wanted, rows, certain=step == 1)
    return Move(question=question, outlook=_outlook(facts, wanted))


def _refuse(run: RunContext, table: TableName, facts: CursorFacts, wanted: Position) -> None:
    """UsageError for a position that means nothing by this cursor, or lies in its future."""
    if facts.kind == "none":
        raise UsageError(
            f"{table} is read whole each time, so it has no position to set",
            hint="name a 'cursor' in the configuration, or leave it as it is",
        )
    if facts.kind == "id" and wanted.id is None:
        raise UsageError(
            f"the cursor of {table} is an id: a timestamp alone moves it nowhere",
            hint="add --id; the timestamp then says which files 'sync --redshift-only' loads",
        )
    if facts.kind == "timestamp" and wanted.timestamp is None:
        raise UsageError(
            f"the cursor of {table} begins with the time {facts.described}: an id alone is no"
            " position in it",
            hint="add --timestamp",
        )
    if facts.kind == "timestamp" and wanted.id is not None and facts.id_problem:
        raise UsageError(
            f"{table}: {facts.id_problem}, so --id {wanted.id} means nothing",
            hint="leave out --id: all rows of that moment then count as read",
        )
    zone = FURTHEST_ZONE if facts.offset is None else facts.offset
    wall = run.run.clock() + zone
    if wanted.timestamp is not None and wanted.timestamp > wall:
        by = (
            f": by the clock of {facts.described} it is {_show(wall)}"
            if facts.offset is not None
            else ""
        )
        raise UsageError(
            f"timestamp '{plain(wanted.timestamp)}' is in the future{by}",
            hint="rows in between would be skipped",
        )


def _ask_source(
    run: RunContext, table: TableName, before: Position | None, wanted: Position, *, force: bool
) -> tuple[CursorFacts, str | None]:
    """What the source says of the cursor, and unless forced how many rows would be skipped."""
    # Only now: to import MySQL's driver takes longer than most commands.
    from floodmark.sync.cursor_facts import count_between, read_facts
    from floodmark.sync.log_facts import known_of
    from floodmark.sync.machine_clock import check_against_source
    from floodmark.sync.plan import read_shape

    with _session(run, table) as (source, session):
        check_against_source(session, run.run.clock)
        known = known_of(run.store.log, table, run.store.known(table))
        shape, choice, _ = read_shape(session, table, run.table_settings(table), known)
        facts = read_facts(source, session, shape, choice.cursor, run.config.settings.extraction)
        if force or _step(run, facts, before, wanted) == -1:
            return facts, None
        try:
            start = _beginning(run, facts, before)
            return facts, count_between(session, shape, choice, start, wanted)
        except FloodmarkError as error:
            return facts, f"rows that cannot be counted ({error.message})"


@contextmanager
def _session(run: RunContext, table: TableName) -> "Iterator[tuple[Source, MysqlSession]]":
    from floodmark.sync.source import Sources
    from floodmark.sync.tunnels import open_tunnels

    connection = run.mysql(table.scope)
    ends = [end for end in (connection, connection.to_primary) if end is not None]
    spark, folder = run.config.settings.spark, run.folder
    with (
        open_tunnels((), ends, spark, folder=folder) as tunnels,
        Sources(tunnels) as sources,
        sources.of(connection) as source,
        source.session() as session,
    ):
        yield source, session


def _beginning(run: RunContext, facts: CursorFacts, before: Position | None) -> Position:
    """Where the next sync would begin if nothing was set."""
    if before is not None and not before.base.is_start:
        return Position(id=before.id) if facts.kind == "id" else before.base
    if facts.kind == "timestamp":
        with suppress(StateError):
            return first_position("timestamp", START, run.start_of_new_tables()[0])
    return START


def _step(
    run: RunContext, facts: CursorFacts, before: Position | None, wanted: Position
) -> int | None:
    """Whether a position lies before where the next sync would begin (-1), there, or behind it."""
    there = Position(id=wanted.id) if facts.kind == "id" else wanted
    return there.compare(_beginning(run, facts, before))


def _skipping(
    run: RunContext,
    table: TableName,
    facts: CursorFacts,
    before: Position | None,
    wanted: Position,
    rows: str | None,
    *,
    certain: bool,
) -> str:
    start = _beginning(run, facts, before)
    began = str(before.base) if before and not before.base.is_start else "the start"
    if began == "the start" and start.timestamp is not None:
        began += f" at {plain(start.timestamp + timedelta(microseconds=1))}"
    skipped = f"{rows or 'rows'} in between {'will' if certain else 'may'} be skipped"
    question = f"{table} would jump from {began} to {wanted}: {skipped}"
    if rows is None and facts.problem:
        question += f", and how many cannot be counted: {facts.problem}"
    return question


def _outlook(facts: CursorFacts, wanted: Position) -> str:
    """What the next sync does, by the clock of the cursor's column."""
    if facts.kind == "id":
        files = "; the timestamp says which files 'sync --redshift-only' loads"
        return f"the next sync reads rows after id {wanted.id}{files if wanted.timestamp else ''}"
    text = f"the next sync reads rows after {wanted}"
    if wanted.timestamp is not None:
        text += f" by the clock of {facts.described or 'its column'}"
        if wanted.id is None:
            text += "; rows of that very moment count as read"
    if facts.problem:
        text += f"; its cursor and clock could not be checked: {facts.problem}"
    return text


def _show(moment: datetime) -> str:
    return plain(moment.replace(microsecond=0))
