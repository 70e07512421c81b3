"""Preview `watermark set`: is it allowed, which rows it skips, what the next sync reads."""

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


class SetPreview(Struct, frozen=True, kw_only=True):
    """The effect of setting a position: a question to confirm, and what the next sync reads."""

    question: str | None
    outlook: str


def preview_set(
    run: RunContext, table: TableName, before: Position | None, position: Position, *, force: bool
) -> SetPreview:
    """Describe the effect of setting a position; UsageError if the position is not valid."""
    last = last_chunk(run, table)
    facts = remembered(run.table_settings(table).cursor_columns, last, before)
    _refuse(run, table, facts, position)
    rows = None
    by_time = facts.kind == "timestamp"
    if facts.kind is None or by_time or (not force and _step(run, facts, before, position) != -1):
        try:
            facts, rows = _read_source(run, table, before, position, force=force)
        except WrongClock:
            raise
        except FloodmarkError as error:
            facts = structs.replace(facts, problem=error.message)
        _refuse(run, table, facts, position)
    step, question = _step(run, facts, before, position), None
    if step in (1, None):
        question = _skipping(run, table, facts, before, position, rows, certain=step == 1)
    return SetPreview(question=question, outlook=_outlook(facts, position))


def _refuse(run: RunContext, table: TableName, facts: CursorFacts, position: Position) -> None:
    """Raise UsageError if a position does not fit the cursor, or is in the future."""
    if facts.kind == "none":
        raise UsageError(
            f"{table} has no position to set: the whole table is read every time",
            hint="set a 'cursor' in the configuration to read it incrementally",
        )
    if facts.kind == "id" and position.id is None:
        raise UsageError(
            f"the cursor of {table} is an id: a timestamp alone is not a position",
            hint="add --id; the timestamp then selects the files that 'sync --redshift-only' loads",
        )
    if facts.kind == "timestamp" and position.timestamp is None:
        raise UsageError(
            f"the cursor of {table} starts with the time {facts.described}: an id alone is not a"
            " position",
            hint="add --timestamp",
        )
    if facts.kind == "timestamp" and position.id is not None and facts.id_problem:
        raise UsageError(
            f"{table}: {facts.id_problem}, so --id {position.id} has no meaning",
            hint="remove --id: all rows with that timestamp then count as read",
        )
    zone = FURTHEST_ZONE if facts.offset is None else facts.offset
    wall = run.run.clock() + zone
    if position.timestamp is not None and position.timestamp > wall:
        by = (
            f": it is {_show(wall)} by the clock of {facts.described}"
            if facts.offset is not None
            else ""
        )
        raise UsageError(
            f"timestamp '{plain(position.timestamp)}' is in the future{by}",
            hint="rows in between would be skipped",
        )


def _read_source(
    run: RunContext, table: TableName, before: Position | None, position: Position, *, force: bool
) -> tuple[CursorFacts, str | None]:
    """Read the cursor's facts from the source and, unless forced, count the rows to be skipped."""
    # Imported here: importing the MySQL driver takes longer than most commands.
    from floodmark.sync.cursor_facts import count_between, read_facts
    from floodmark.sync.log_facts import known_of
    from floodmark.sync.machine_clock import check_against_source
    from floodmark.sync.plan import read_shape

    with _session(run, table) as (source, session):
        check_against_source(session, run.run.clock)
        known = known_of(run.store.log, table, run.store.known(table))
        shape, choice, _ = read_shape(session, table, run.table_settings(table), known)
        facts = read_facts(source, session, shape, choice.cursor, run.config.settings.extraction)
        if force or _step(run, facts, before, position) == -1:
            return facts, None
        try:
            start = _beginning(run, facts, before)
            return facts, count_between(session, shape, choice, start, position)
        except FloodmarkError as error:
            return facts, f"an unknown number of rows ({error.message})"


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
    """Return where the next sync would start without the change."""
    if before is not None and not before.base.is_start:
        return Position(id=before.id) if facts.kind == "id" else before.base
    if facts.kind == "timestamp":
        with suppress(StateError):
            return first_position("timestamp", START, run.start_of_new_tables()[0])
    return START


def _step(
    run: RunContext, facts: CursorFacts, before: Position | None, position: Position
) -> int | None:
    """Compare a position with where the next sync would start: -1 is before it, 1 after it."""
    there = Position(id=position.id) if facts.kind == "id" else position
    return there.compare(_beginning(run, facts, before))


def _skipping(
    run: RunContext,
    table: TableName,
    facts: CursorFacts,
    before: Position | None,
    position: Position,
    rows: str | None,
    *,
    certain: bool,
) -> str:
    start = _beginning(run, facts, before)
    began = str(before.base) if before and not before.base.is_start else "the start"
    if began == "the start" and start.timestamp is not None:
        began += f" at {plain(start.timestamp + timedelta(microseconds=1))}"
    skipped = f"{rows or 'rows'} in between {'will' if certain else 'may'} be skipped"
    question = f"{table} would jump from {began} to {position}: {skipped}"
    if rows is None and facts.problem:
        question += f"; they could not be counted: {facts.problem}"
    return question


def _outlook(facts: CursorFacts, position: Position) -> str:
    """Describe what the next sync reads, by the clock of the cursor column."""
    if facts.kind == "id":
        files = "; the timestamp selects the files that 'sync --redshift-only' loads"
        return (
            f"the next sync reads rows after id {position.id}{files if position.timestamp else ''}"
        )
    text = f"the next sync reads rows after {position}"
    if position.timestamp is not None:
        text += f" by the clock of {facts.described or 'its column'}"
        if position.id is None:
            text += "; rows with exactly that timestamp count as read"
    if facts.problem:
        text += f"; cursor and clock could not be checked: {facts.problem}"
    return text


def _show(moment: datetime) -> str:
    return plain(moment.replace(microsecond=0))
