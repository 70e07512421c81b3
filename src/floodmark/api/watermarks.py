"""Inspect and change watermarks."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from floodmark.api.context import RunContext
from floodmark.errors import StateError, UsageError
from floodmark.model.cursor import CursorColumn
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest, Set
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
from floodmark.state.watermark_list import Overview as TableStatus
from floodmark.state.watermark_list import read_overview

__all__ = ["TableStatus", "Watermarks", "parse_head", "set_position"]


class Watermarks:
    """The watermarks of a project. Every call reads the current state; all are thread-safe.

    Tables are given as `schema.table` or `SCOPE:schema.table`.
    """

    def __init__(self, new_run: Callable[[], RunContext]) -> None:
        self._new_run = new_run

    def list(self) -> tuple[TableStatus, ...]:
        """Return the state of every table that is configured or in the lake."""
        run = self._new_run()
        remote = run.config.lake.is_s3
        return tuple(read_overview(run.store, run.config.tables, remote=remote))

    def get(self, table: str) -> Watermark | None:
        """Return a table's watermark; None if it was never synced."""
        run = self._new_run()
        return run.store.get(run.table(table))

    def history(self, table: str, most: int | None = None) -> tuple[Manifest, ...]:
        """Return the commits of a table, newest first."""
        run = self._new_run()
        return tuple(operator_changes.history(run.store, run.table(table), most))

    def set(
        self,
        table: str,
        *,
        timestamp: datetime | None = None,
        id: int | None = None,  # noqa: A002 - the name of the option
        skip_rows: bool = False,
    ) -> Watermark:
        """Set the position of a table: the next sync reads the rows after it.

        The timestamp is as stored in the cursor column, without a time zone. UsageError if this
        would skip rows, unless `skip_rows`, or if the position does not fit the cursor.
        """
        from floodmark.api.set_preview import preview_set

        run = self._new_run()
        name = run.table(table)
        position = Position(_moment(run, timestamp), _number(id))
        if position.is_start:
            raise UsageError("no position given", hint="pass timestamp, id, or both")
        before = known_position(run, name)
        preview = preview_set(run, name, before, position, force=skip_rows)
        operator_changes.refuse_repetition(run.store, name, Set(position=position))
        if preview.question and not skip_rows:
            raise UsageError(preview.question, hint="pass skip_rows=True to skip them")
        return set_position(run, name, position)

    def reset(self, table: str, *, stages: Sequence[Stage] = ("extract", "load")) -> Watermark:
        """Reset a table, or one of its stages, to the start: it is read or loaded again."""
        run = self._new_run()
        if not stages or not set(stages) <= {"extract", "load"}:
            raise UsageError(f"unknown stages {stages}: expected 'extract', 'load' or both")
        return operator_changes.reset(run.store, run.table(table), stages)

    def restore(self, table: str, state: str) -> Watermark:
        """Restore an earlier state, by an ID from the history (`str(manifest.head)`)."""
        run = self._new_run()
        name = run.table(table)
        return operator_changes.restore_manifest(run.store, name, parse_head(name, state))

    def can_move(self, table: TableName, to: TableName) -> bool:
        """Return whether there is anything to move; UsageError if the move is not possible."""
        from floodmark.sync.move import check_move

        run = self._new_run()
        if to not in run.config.tables:
            raise UsageError(f"{to} is in no pipeline", hint="list it under 'pipelines:'")
        return check_move(run.store, table, to)

    def move(self, table: str, to: str) -> bool:
        """Rename a table to another name of the configuration; False if that is already done.

        `table` is the old name, as `SCOPE:schema.table`.
        """
        from floodmark.api.loading import loading_of
        from floodmark.sync.move import move_table
        from floodmark.tunnels.tunnel import Tunnels

        run = self._new_run()
        old = TableName.parse(table) if ":" in table else run.table(table)
        new = run.table(to)
        if not self.can_move(old, new):
            return False
        with Tunnels(run.folder) as tunnels:
            return move_table(run.store, old, new, loading_of(run, new, tunnels))

    def break_lease(self, table: str) -> None:
        """Break the lease of a dead run; a run still alive notices, and commits nothing more."""
        from floodmark.state.lease import break_lease

        run = self._new_run()
        break_lease(run.store.objects, run.table(table))

    def get_system(self) -> SystemWatermark | None:
        """Return the system watermark, where new tables start; None if there is none."""
        run = self._new_run()
        return read_system_watermark(run.store.objects, now=run.run.clock())

    def set_system(self, preset: str) -> SystemWatermark:
        """Set where new tables start: `1day`, `1week`, or a preset of the configuration."""
        run = self._new_run()
        now = run.run.clock()
        moment = preset_moment(preset, run.config.settings.presets, now)
        if moment > now:
            raise UsageError(f"preset {preset!r} is in the future: {plain(moment)}")
        return write_system_watermark(run.store.objects, moment, preset, run.by)


def set_position(run: RunContext, table: TableName, position: Position) -> Watermark:
    """Commit a position set by an operator."""
    return operator_changes.set_position(
        run.store, table, position, partial(_keeps_cursor, run, table)
    )


def known_position(run: RunContext, table: TableName) -> Position | None:
    """Return a table's position; None if it has none, or it cannot be read."""
    with suppress(StateError):
        watermark = run.store.get(table)
        return watermark.position if watermark else None
    return None


def parse_head(table: TableName, text: str) -> ManifestId:
    """Parse an ID from the history."""
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


def _moment(run: RunContext, moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    if moment.utcoffset():
        raise UsageError(
            f"timestamp {moment.isoformat()} has a time zone",
            hint="pass it without one, as stored in the cursor column",
        )
    moment = moment.replace(tzinfo=UTC)  # positions are stored as UTC
    if moment > run.run.clock() + FURTHEST_ZONE:
        raise UsageError(
            f"timestamp {plain(moment)} is in the future", hint="rows in between would be skipped"
        )
    return moment


def _number(number: int | None) -> int | None:
    if number is not None and not 0 <= number <= LARGEST_NUMBER:
        raise UsageError(f"id {number} is negative, or larger than any id in MySQL")
    return number
