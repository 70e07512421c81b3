"""Prepare changes of watermarks: check them, say what to confirm, and commit them later."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct

from floodmark.api.context import RunContext
from floodmark.api.reset_preview import preview_reset, preview_restore
from floodmark.errors import StateError, UsageError
from floodmark.model.cursor import CursorColumn
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Reset, Set
from floodmark.model.position import LARGEST_NUMBER, Position
from floodmark.model.presets import preset_moment
from floodmark.model.run import Stage
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
from floodmark.model.watermark import FURTHEST_ZONE, Watermark
from floodmark.planning.cursor_change import keeps
from floodmark.state import operator_changes
from floodmark.state.system_watermark import (
    SystemWatermark,
    read_system_watermark,
    write_system_watermark,
)


class PreparedChange(Struct, frozen=True, kw_only=True):
    """A checked change of a watermark. Nothing is changed before `commit()`.

    before     the position now; None if there is no watermark, or it cannot be read
    question   what to confirm before the commit; None if there is nothing to confirm
    outlook    what the next sync reads, if a position is set
    commit     makes the change, and returns the new watermark
    """

    table: TableName
    before: Position | None
    question: str | None
    outlook: str | None = None
    commit: Callable[[], Watermark]


class PreparedSystemChange(Struct, frozen=True, kw_only=True):
    """A checked change of the system watermark. Nothing is changed before `commit()`."""

    before: SystemWatermark | None
    timestamp: datetime
    commit: Callable[[], SystemWatermark]


def prepare_set(
    run: RunContext, table: TableName, position: Position, *, force: bool
) -> PreparedChange:
    """Prepare to set a position; with `force`, without a question."""
    from floodmark.api.set_preview import preview_set

    before = _position(readable(run, table))
    preview = preview_set(run, table, before, position, force=force)
    operator_changes.refuse_repetition(run.store, table, Set(position=position))
    kept = partial(_keeps_cursor, run, table)
    return PreparedChange(
        table=table,
        before=before,
        question=None if force else preview.question,
        outlook=preview.outlook,
        commit=partial(operator_changes.set_position, run.store, table, position, kept),
    )


def prepare_reset(
    run: RunContext, table: TableName, stages: tuple[Stage, ...], *, force: bool
) -> PreparedChange:
    """Prepare to reset stages; with `force`, without a question."""
    if not stages:
        raise UsageError("no stage given", hint="pass 'extract', 'load' or both")
    watermark, question = readable(run, table), None
    if not force:
        operator_changes.refuse_repetition(run.store, table, Reset(stages=stages))
        question = preview_reset(run, table, watermark, extract="extract" in stages)
    return PreparedChange(
        table=table,
        before=_position(watermark),
        question=question,
        commit=partial(operator_changes.reset, run.store, table, stages),
    )


def prepare_restore(
    run: RunContext, table: TableName, state: str | bytes, *, name: str
) -> PreparedChange:
    """Prepare to restore a state, by an ID from the history or from a saved document."""
    before = _position(readable(run, table))
    if isinstance(state, bytes):
        restore = operator_changes.prepare_restore_document(run.store, table, state, name=name)
    else:
        restore = operator_changes.prepare_restore(run.store, table, _head(table, state))
    return PreparedChange(
        table=table,
        before=before,
        question=preview_restore(table, before, restore.position, name),
        commit=restore.commit,
    )


def prepare_system(run: RunContext, preset: str) -> PreparedSystemChange:
    """Prepare to set the system watermark."""
    now, before = run.now(), None
    moment = preset_moment(preset, run.config.settings.presets, now)
    if moment > now:
        raise UsageError(f"preset {preset!r} is in the future: {plain(moment)}")
    with suppress(StateError):  # a damaged one is replaced
        before = read_system_watermark(run.store.objects, now=now)
    return PreparedSystemChange(
        before=before,
        timestamp=moment,
        commit=lambda: write_system_watermark(run.store.objects, moment, preset, run.by),
    )


def position_of(run: RunContext, timestamp: datetime | None, number: int | None) -> Position:
    """Return the position of the arguments; UsageError if no table can have it."""
    if timestamp is None and number is None:
        raise UsageError("no position given", hint="pass timestamp, id, or both")
    if timestamp is not None:
        timestamp = _moment(run, timestamp)
    if number is not None and number < 0:
        raise UsageError(f"id '{number}' is negative")
    if number is not None and number > LARGEST_NUMBER:
        raise UsageError(f"id '{number}' is larger than any id in MySQL")
    return Position(timestamp, number)


def readable(run: RunContext, table: TableName) -> Watermark | None:
    """Return a table's watermark; None if there is none, or it cannot be read."""
    with suppress(StateError):
        return run.store.get(table)
    return None


def _position(watermark: Watermark | None) -> Position | None:
    return watermark.position if watermark else None


def _head(table: TableName, text: str) -> ManifestId:
    try:
        return ManifestId.parse(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a valid ID",
            hint=f"an ID looks like 1-7; see floodmark watermark history -t {table}",
        ) from None


def _keeps_cursor(run: RunContext, table: TableName, known: Sequence[CursorColumn]) -> bool:
    entry = run.config.tables.get(table)
    return entry is None or keeps(known, entry[1].cursor_columns)


def _moment(run: RunContext, moment: datetime) -> datetime:
    if moment.utcoffset():
        raise UsageError(
            f"timestamp {moment.isoformat()} has a time zone",
            hint="pass it without one, as stored in the cursor column",
        )
    moment = moment.replace(tzinfo=UTC)  # positions are stored as UTC
    if moment > run.now() + FURTHEST_ZONE:
        raise UsageError(
            f"timestamp {plain(moment)} is in the future", hint="rows in between would be skipped"
        )
    return moment
