"""Inspect and change watermarks."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from floodmark.api.arguments import Table, as_stages, expect, expect_flags
from floodmark.api.changes import (
    PreparedChange,
    PreparedSystemChange,
    position_of,
    prepare_reset,
    prepare_restore,
    prepare_set,
    prepare_system,
)
from floodmark.api.context import RunContext
from floodmark.api.tracked_files import TrackedFile, quarantine_files, tracked_files
from floodmark.errors import UsageError
from floodmark.model import lake_layout
from floodmark.model.history import StartedBy
from floodmark.model.manifest import Manifest
from floodmark.model.position import Position
from floodmark.model.run import Stage
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state.lease import LeaseDocument, break_lease, read_lease
from floodmark.state.operator_changes import history
from floodmark.state.recovery_records import Recovery
from floodmark.state.removable_files import PATIENCE
from floodmark.state.system_watermark import SystemWatermark, read_system_watermark
from floodmark.state.watermark_copies import Copy as WatermarkCopy
from floodmark.state.watermark_list import Overview as WatermarkOverview
from floodmark.state.watermark_list import read_overview

__all__ = [
    "LeaseDocument",
    "NextStart",
    "PruneResult",
    "Recovery",
    "SystemWatermark",
    "WatermarkCopy",
    "WatermarkOverview",
    "Watermarks",
]

BOTH: tuple[Stage, ...] = ("extract", "load")
_MOST_DAYS = 99_999


class NextStart(Struct, frozen=True, kw_only=True):
    """Where the next sync of a table starts, and what decides it.

    `START` with "whole table" is a table without a cursor, which is read as a whole every time.
    """

    position: Position
    by: Literal["watermark", "whole table"] | StartedBy


class PruneResult(Struct, frozen=True, kw_only=True):
    """The keys of the copies and of the half-written files that were removed."""

    dry_run: bool
    removed: tuple[str, ...]
    unfinished: tuple[str, ...]


class Watermarks:
    """The watermarks of a project. Every call reads the current state; all are thread-safe.

    Tables are given as `schema.table`, as `SCOPE:schema.table`, or as a TableName.
    """

    def __init__(self, new_run: Callable[[], RunContext]) -> None:
        self._new_run = new_run

    def list(self) -> tuple[WatermarkOverview, ...]:
        """Return the state of every table that is configured or in the lake."""
        run = self._new_run()
        remote = run.config.lake.is_s3
        return tuple(read_overview(run.store, run.config.tables, remote=remote))

    def get(self, table: Table) -> Watermark | None:
        """Return a table's watermark; None if it was never synced."""
        run = self._new_run()
        return run.store.get(run.table(table))

    def next_start(self, table: Table) -> NextStart:
        """Return where the next sync of a table starts."""
        from floodmark.api.reset_preview import is_by_id

        run = self._new_run()
        name = run.table(table)
        watermark = run.store.get(name)
        if watermark is not None and not watermark.position.is_start:
            position = watermark.position
            if watermark.metadata.manual_watermark and is_by_id(run, name, position):
                position = Position(id=position.id)  # the timestamp only selects files to load
            return NextStart(position=position, by="watermark")
        if watermark is not None and watermark.mysql_state.chunk_count:
            return NextStart(position=watermark.position, by="whole table")
        position, source = run.start_of_new_tables()
        return NextStart(position=position, by=source)

    def how_to_read_rest(self, table: Table) -> str:
        """Return how to read the rows before the start of a table; empty if none are left out."""
        from floodmark.api.reset_preview import how_to_read_rest

        run = self._new_run()
        name = run.table(table)
        watermark = run.store.get(name)
        return how_to_read_rest(run, name, watermark) if watermark else ""

    def history(self, table: Table, most: int | None = None) -> tuple[Manifest, ...]:
        """Return the commits of a table, newest first."""
        expect("most", most, int, optional=True)
        if most is not None and most < 1:
            raise UsageError(f"most must be a positive number, not {most}")
        run = self._new_run()
        return tuple(history(run.store, run.table(table), most))

    def files(self, table: Table) -> tuple[TrackedFile, ...]:
        """Return the data files that a table's manifests name, since its last reset."""
        run = self._new_run()
        return tuple(tracked_files(run.store, run.table(table)))

    def quarantine(self, table: Table) -> tuple[str, ...]:
        """Return the keys of the files with a table's quarantined rows."""
        run = self._new_run()
        return tuple(quarantine_files(run.store, run.table(table)))

    def copies(self, table: Table) -> tuple[WatermarkCopy, ...]:
        """Return the copies of a table's watermark: the primary one, daily ones, and by session."""
        run = self._new_run()
        name, copies = run.table(table), run.store.copies
        primary = copies.read(name, lake_layout.primary(name), "primary")
        return (*([primary] if primary else []), *copies.daily(name), *copies.sessions(name))

    def recoveries(self, table: Table) -> tuple[Recovery, ...]:
        """Return the past recoveries of a table's watermark, oldest first."""
        run = self._new_run()
        return tuple(run.store.recoveries.of(run.table(table)))

    def prune(self, *, keep_days: int = 7, dry_run: bool = False) -> PruneResult:
        """Remove old copies of watermarks, and half-written files that killed runs left.

        The newest copy of each table is always kept; half-written files are removed after a day.
        """
        expect("keep_days", keep_days, int)
        expect_flags(dry_run=dry_run)
        if not 0 <= keep_days <= _MOST_DAYS:
            raise UsageError(f"keep_days {keep_days} is not a number of days")
        run = self._new_run()
        removed = run.store.copies.prune(keep_days=keep_days, dry_run=dry_run)
        unfinished = run.store.objects.remove_unfinished(
            lake_layout.DATA, run.now() - PATIENCE, dry_run=dry_run
        )
        return PruneResult(dry_run=dry_run, removed=tuple(removed), unfinished=tuple(unfinished))

    def set(
        self,
        table: Table,
        *,
        timestamp: datetime | None = None,
        id: int | None = None,  # noqa: A002 - the name of the option
        skip_rows: bool = False,
    ) -> Watermark:
        """Set the position of a table: the next sync reads the rows after it.

        The timestamp is as stored in the cursor column, without a time zone. UsageError if this
        would skip rows, unless `skip_rows`, or if the position does not fit the cursor.
        """
        expect_flags(skip_rows=skip_rows)
        change = self.prepare_set(table, timestamp=timestamp, id=id, force=skip_rows)
        if change.question:
            raise UsageError(change.question, hint="pass skip_rows=True to skip them")
        return change.commit()

    def prepare_set(
        self,
        table: Table,
        *,
        timestamp: datetime | None = None,
        id: int | None = None,  # noqa: A002 - the name of the option
        force: bool = False,
    ) -> PreparedChange:
        """Prepare to set a position. It asks before rows are skipped, unless `force`."""
        expect("timestamp", timestamp, datetime, optional=True)
        expect("id", id, int, optional=True)
        expect_flags(force=force)
        run = self._new_run()
        name = run.table(table)
        return prepare_set(run, name, position_of(run, timestamp, id), force=force)

    def reset(self, table: Table, *, stages: Stage | Sequence[Stage] = BOTH) -> Watermark:
        """Reset a table, or one of its stages, to the start: it is read or loaded again."""
        return self.prepare_reset(table, stages=stages, force=True).commit()

    def prepare_reset(
        self, table: Table, *, stages: Stage | Sequence[Stage] = BOTH, force: bool = False
    ) -> PreparedChange:
        """Prepare a reset. Its question is what is read or loaded again; none with `force`."""
        expect_flags(force=force)
        run = self._new_run()
        return prepare_reset(run, run.table(table), as_stages(stages), force=force)

    def restore(self, table: Table, state: str | bytes) -> Watermark:
        """Restore an earlier state, by an ID from the history (`str(manifest.head)`).

        `state` can also be the bytes of a saved `floodmark watermark get -t TABLE --json`.
        """
        return self.prepare_restore(table, state).commit()

    def prepare_restore(
        self, table: Table, state: str | bytes, *, name: str | None = None
    ) -> PreparedChange:
        """Prepare a restore; messages call the bytes of a file `name`."""
        expect("state", state, str, bytes)
        expect("name", name, str, optional=True)
        run = self._new_run()
        shown = name or ("the document" if isinstance(state, bytes) else state)
        return prepare_restore(run, run.table(table), state, name=shown)

    def can_move(self, table: TableName, to: TableName) -> bool:
        """Return whether there is anything to move; UsageError if the move is not possible."""
        from floodmark.sync.move import check_move

        expect("table", table, TableName)
        expect("to", to, TableName)
        run = self._new_run()
        if to not in run.config.tables:
            raise UsageError(f"{to} is in no pipeline", hint="list it under 'pipelines:'")
        return check_move(run.store, table, to)

    def move(self, table: Table, to: Table) -> bool:
        """Rename a table to another name of the configuration; False if that is already done.

        `table` is the old name, as `SCOPE:schema.table`.
        """
        from floodmark.api.loading import loading_of
        from floodmark.sync.move import move_table
        from floodmark.tunnels.tunnel import Tunnels

        expect("table", table, str, TableName)
        expect("to", to, str, TableName)
        run = self._new_run()
        old = TableName.parse(str(table)) if ":" in str(table) else run.table(table)
        new = run.table(to)
        if not self.can_move(old, new):
            return False
        with Tunnels(run.folder) as tunnels:
            return move_table(run.store, old, new, loading_of(run, new, tunnels))

    def lease(self, table: Table) -> LeaseDocument | None:
        """Return the lease of a table: which run holds it; None if there never was one."""
        run = self._new_run()
        return read_lease(run.store.objects, run.table(table))

    def break_lease(self, table: Table) -> None:
        """Break the lease of a dead run; a run still alive notices, and commits nothing more."""
        run = self._new_run()
        break_lease(run.store.objects, run.table(table))

    def get_system(self) -> SystemWatermark | None:
        """Return the system watermark, where new tables start; None if there is none."""
        run = self._new_run()
        return read_system_watermark(run.store.objects, now=run.now())

    def set_system(self, preset: str) -> SystemWatermark:
        """Set where new tables start: `1day`, `1week`, or a preset of the configuration."""
        return self.prepare_system(preset).commit()

    def prepare_system(self, preset: str) -> PreparedSystemChange:
        """Prepare to set where new tables start."""
        expect("preset", preset, str)
        return prepare_system(self._new_run(), preset)
