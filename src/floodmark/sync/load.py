"""Load one table: from the lake into the target, exactly once.

    lease → compare log and ledger → for each batch: load in one transaction → watermark

A crash before the target's commit leaves nothing. A crash after it leaves the watermark behind the
ledger; the next run reads the ledger and catches up.

With `--redshift-only`, a manual watermark leaves out files created before it. They stay pending,
and the next sync without the flag loads them.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from floodmark.errors import (
    FloodmarkError,
    LeaseLost,
    NameTooLong,
    SchemaConflict,
    TargetTaken,
    UnknownGrantee,
)
from floodmark.model import lake_layout
from floodmark.model.load import (
    LedgerEntry,
    LedgerTotals,
    LoadBatch,
    TargetTable,
    deleted_rows,
    loaded_rows,
    quarantined_rows,
)
from floodmark.model.load_transitions import load_failed, loaded, unloaded
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Column, Manifest, chunks_in
from floodmark.model.notice import Notice, Report
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
from floodmark.model.watermark import Watermark
from floodmark.planning.joined_types import joined_table
from floodmark.planning.ledger_diff import keep_existing_rows, why_not_loaded
from floodmark.planning.load_batches import (
    batches_of,
    check_lake,
    deletes_of,
    fills_of,
    loaded_through,
    pending_manifests,
    split_by_creation,
    wins,
)
from floodmark.state.lease import Lease
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.load_checks import (
    load_again_hint,
    refuse_all_left_out,
    refuse_late_rows,
    refuse_loading_twice,
    refuse_lost_columns,
    refuse_lost_inheritance,
    refuse_lost_table,
    refuse_other_keys,
)
from floodmark.sync.log_facts import columns_in
from floodmark.sync.machine_clock import check_machine_clock
from floodmark.sync.result import TableResult, attach, done_before, keeping
from floodmark.warehouse.target import Target, refuse_stopping

if TYPE_CHECKING:
    from floodmark.warehouse.quarantine import Quarantine


class Loading(Struct, frozen=True, kw_only=True):
    """How to load tables in this run.

    With `load_only`, a manual watermark limits the files to load, and the ledger is read even if
    nothing seems new. `place` identifies the target table: if the watermark has another one, the
    ledger is read as well. `target_missing` returns whether the target is gone, if that can be
    known without opening it. `check` raises once the run was stopped. Messages call the target
    `warehouse`.
    """

    store: WatermarkStore
    open_target: Callable[[], AbstractContextManager[Target]]
    target_name: str
    session_id: str
    batch_bytes: int
    warehouse: str = "warehouse"
    place: str | None = None
    load_only: bool = False
    target_missing: Callable[[], bool] = lambda: False
    report: Report = lambda _notice: None
    quarantine_limit: int = 0
    check: Callable[[], None] = lambda: None


class LoadResult(Struct, frozen=True, kw_only=True):
    """Result of loading one table; `left_out` counts what a manual watermark excluded.

    If it is `complete`, everything in the lake is loaded: all that was in the source at `fresh`.
    """

    rows: int = 0
    quarantined_rows: int = 0
    deleted_rows: int = 0
    manifests: int = 0
    seconds: float = 0.0
    changes: tuple[str, ...] = ()
    left_out_manifests: int = 0
    left_out_rows: int = 0
    began: datetime | None = None
    complete: bool = False
    fresh: datetime | None = None

    def plus(self, later: "LoadResult") -> "LoadResult":
        """Add the result of a later load in the same run."""
        return LoadResult(
            rows=self.rows + later.rows,
            quarantined_rows=self.quarantined_rows + later.quarantined_rows,
            deleted_rows=self.deleted_rows + later.deleted_rows,
            manifests=self.manifests + later.manifests,
            seconds=self.seconds + later.seconds,
            changes=(*self.changes, *later.changes),
            left_out_manifests=later.left_out_manifests,
            left_out_rows=later.left_out_rows,
            began=self.began or later.began,
            complete=later.complete,
            fresh=later.fresh,
        )

    def added_to(self, result: TableResult) -> TableResult:
        """Add these figures to the result of a table."""
        if self.began is not None and "load" not in result.began_at:
            result = result.beginning("load", self.began)
        return structs.replace(
            result,
            loaded_fresh=(result.fresh or self.fresh) if self.complete else result.loaded_fresh,
            loaded_rows=result.loaded_rows + self.rows,
            quarantined_rows=result.quarantined_rows + self.quarantined_rows,
            deleted_rows=result.deleted_rows + self.deleted_rows,
            loaded_manifests=result.loaded_manifests + self.manifests,
            load_seconds=result.load_seconds + self.seconds,
            target_changes=(*result.target_changes, *self.changes),
            left_out_manifests=self.left_out_manifests,
            left_out_rows=self.left_out_rows,
        )


class _Selection(Struct, frozen=True, kw_only=True):
    """The `pending` ones of all `manifests`, and those that a manual watermark leaves out."""

    manifests: list[Manifest]
    pending: list[Manifest]
    left_out: list[Manifest] = []


def load_after(extracted: TableResult, loading: Loading, table: TableName) -> TableResult:
    """Load a table after its extraction; a failure keeps what was done before it."""
    try:
        result = load_table(loading, table, rows_before=extracted.loaded_rows)
    except Exception as error:
        done = done_before(error, LoadResult()).added_to(extracted)
        if isinstance(error, FloodmarkError):
            return done.with_failure(error, "load")
        attach(error, done)
        raise
    return result.added_to(extracted)


def load_committed(
    loading: Loading, table: TableName, lease: Lease, target: Target, *, rows_before: int
) -> LoadResult:
    """Load what is committed so far, under the lease of a stage that goes on."""
    watermark = loading.store.get(table)
    if watermark is None:  # lost since something was committed
        return LoadResult()
    behind = manifests_behind(loading.store, table, watermark)
    part = _TableLoad(
        loading, table, lease, target, watermark, behind, rows_before=rows_before, goes_on=True
    )
    return part.run()


def load_table(loading: Loading, table: TableName, *, rows_before: int = 0) -> LoadResult:
    """Load all data of a table that its target does not have yet.

    `rows_before` were loaded earlier in this run.
    """
    store = loading.store
    with store.lease(table, "load") as lease:
        watermark = store.get(table)
        if watermark is not None:
            watermark.refuse_moved()
        if watermark is None or watermark.mysql_state.last_manifest is None:
            return LoadResult()
        try:
            behind = manifests_behind(store, table, watermark)
            if not behind and surely_loaded(loading, watermark):
                return LoadResult(complete=True, fresh=lease.note_loaded())
            with loading.open_target() as target:
                if loading.load_only:  # else the clock was compared with MySQL's
                    check_machine_clock("the target's", target.clock, store.now)
                return _TableLoad(
                    loading, table, lease, target, watermark, behind, rows_before=rows_before
                ).run()
        except FloodmarkError as error:
            if isinstance(error, NameTooLong):  # the column is in the lake under that name
                error.hint = (
                    f"leave it out with 'exclude: [{error.column}]' for the table, or rename it in"
                    f" the source; then 'floodmark watermark reset -t {table} --force' and sync"
                    " read the table again"
                )
            if store.takes_failure(table, error):
                message = error.message
                store.update(table, lambda current: load_failed(current, message))
            raise


def check_target(loading: Loading, table: TableName) -> None:
    """Raise TargetTaken or UnknownGrantee before rows are read that could not be loaded.

    A target that cannot be reached now does not keep us from reading; the load reports it. One that
    took the last load is not asked: whatever has changed in it since, the load finds.
    """
    if loading.target_missing():
        return
    watermark = loading.store.known(table)
    if watermark is not None and surely_loaded(loading, watermark):
        return
    load_epoch = watermark.redshift_state.load_epoch if watermark else 1
    try:
        with loading.open_target() as target:
            target.check_owner(str(table), load_epoch, loading.target_name)
            target.check_grants(loading.target_name)
    except (TargetTaken, UnknownGrantee):
        raise
    except FloodmarkError:
        return


def check_frozen(
    loading: Loading, table: TableName, columns: tuple[Column, ...], key: tuple[str, ...]
) -> None:
    """Raise SchemaConflict before rows are read that a table could not hold without a change.

    A target that cannot be reached now does not keep us from reading; the load reports it.
    """
    if loading.target_missing():
        return
    expected = TargetTable(name=loading.target_name, columns=columns, primary_key=key, version=None)
    try:
        with loading.open_target() as target:
            found = target.compare(expected, partial(columns_in, loading.store.log, table))
    except FloodmarkError:
        return
    try:
        refuse_stopping(expected.name, found)
    except SchemaConflict as error:
        error.hint = error.hint or load_again_hint(table, expected.name)
        raise


def surely_loaded(loading: Loading, watermark: Watermark) -> bool:
    """Whether we can skip opening the target: importing its driver doubles a short run's time."""
    state = watermark.redshift_state
    if state.status != "success" or state.target != loading.place or loading.load_only:
        return False
    return not loading.target_missing()


def manifests_behind(
    store: WatermarkStore, table: TableName, watermark: Watermark
) -> list[Manifest]:
    """Return the manifests after the watermark's loaded one; the ledger may have some of them."""
    first = ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    since = max(first, watermark.loaded_head)
    return list(store.log.manifests(table, after=since))


def foresee(
    loading: Loading, table: TableName, watermark: Watermark
) -> tuple[list[Chunk], list[Chunk]]:
    """Return the chunks that a load would take and leave out, by the watermark alone."""
    behind = manifests_behind(loading.store, table, watermark)
    after = watermark.manual_start if loading.load_only else None
    if after is None:
        return chunks_in(pending_manifests(behind, {})), []
    since = watermark.redshift_state.eligible_from_epoch
    before = [m for m in loading.store.log.manifests(table) if m.epoch < since]
    pending = pending_manifests([*before, *behind], {})
    chosen, left_out = split_by_creation(pending, after, eligible_from=since)
    return chunks_in(chosen), chunks_in(left_out)


def carry_back(
    store: WatermarkStore,
    table: TableName,
    watermark: Watermark,
    ledger: Mapping[ManifestId, LedgerEntry],
) -> Watermark:
    """Move the watermark back over manifests that the target has lost, so they are loaded again.

    It is saved before anything is loaded, so they stay pending after a crash.
    """
    first = ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    manifests = list(store.log.manifests(table, since=first))
    through = loaded_through(manifests, pending_manifests(manifests, ledger), first)
    through, rows = min(through, watermark.loaded_head), loaded_rows(ledger.values())
    aside, gone = quarantined_rows(ledger.values()), deleted_rows(ledger.values())
    return store.update(
        table,
        lambda current: unloaded(
            current,
            through=through,
            total_rows=rows,
            quarantined_rows=aside,
            deleted_rows=gone,
        ),
    )


class _TableLoad:
    """Load one table: read the ledger, decide what is pending, load it batch by batch.

    Of the ledger, only the entries after the watermark are read, and sums of all; the whole of it
    only if the target has lost rows, or a manual watermark selects from all manifests. If the
    extraction `goes_on`, further manifests may follow those that are loaded.
    """

    def __init__(
        self,
        loading: Loading,
        table: TableName,
        lease: Lease,
        target: Target,
        watermark: Watermark,
        behind: list[Manifest],
        *,
        rows_before: int = 0,
        goes_on: bool = False,
    ) -> None:
        self._rows_before = rows_before
        self._goes_on = goes_on
        self._loading = loading
        self._table = table
        self._lease = lease
        self._target = target
        self._watermark = watermark
        self._behind = behind
        self._load_epoch = watermark.redshift_state.load_epoch
        self._began = time.monotonic()
        self._ledger: dict[ManifestId, LedgerEntry]
        self._totals = self._loaded = LedgerTotals()
        self._known_epochs: tuple[int, ...]
        self._selection = _Selection(manifests=[], pending=[])
        self._changes: list[str] = []
        self._rows = self._manifests = 0
        self._began_at = loading.store.now()
        self._complete = False
        self._fresh: datetime | None = None

    def run(self) -> LoadResult:
        """Load everything that is pending; an error has what was loaded before it."""
        with keeping(self._result):
            return self._run()

    def _run(self) -> LoadResult:
        from floodmark.warehouse.quarantine import load_what_fits

        self._read_ledger()
        self._undo_lost_loads()
        self._selection = self._select()
        self._changes = self._prepare_table()
        quarantine = self._quarantine()
        for batch in self._batches():
            self._loading.check()
            self._lease.check()
            self._rows += load_what_fits(self._target, batch, quarantine)
            self._manifests += len(batch.chunks)
            self._save_progress(batch.chunks[-1].head)
        self._save_progress(None)
        self._manifests = len(self._selection.pending)
        if not self._selection.left_out and not self._goes_on:
            self._complete, self._fresh = True, self._lease.note_loaded()
        return self._result()

    def _read_ledger(self) -> None:
        name, epoch = str(self._table), self._load_epoch
        self._known_epochs = self._target.load_epochs(name)
        self._totals = self._loaded = self._target.ledger_totals(name, epoch)
        self._ledger = self._entries(None if self._manual else self._watermark.loaded_head)
        self._lease.check()
        check_lake(name, self._behind, self._ledger, self._watermark.loaded_head)
        self._target.check_owner(name, epoch, self._loading.target_name)

    def _entries(self, after: ManifestId | None) -> dict[ManifestId, LedgerEntry]:
        entries = self._target.ledger(str(self._table), self._load_epoch, after=after)
        return {entry.head: entry for entry in entries}

    @property
    def _manual(self) -> datetime | None:
        """The manual watermark, if it limits what is loaded."""
        return self._watermark.manual_start if self._loading.load_only else None

    def _undo_lost_loads(self) -> None:
        """Move the watermark back if the target lacks rows that it calls loaded."""
        loading, table = self._loading, self._table
        totals = self._totals
        reason = why_not_loaded(loading.place, self._watermark.redshift_state, totals)
        if reason is None and not totals.entries and not self._behind and self._has_chunks():
            reason = "the target has lost its ledger, or is a different one; loading missing rows"
        if reason is None:
            return
        loading.report(Notice("warning", f"{table}: {reason}"))
        refuse_loading_twice(
            loading.store.log, table, self._target, loading.target_name, totals.rows
        )
        self._ledger = self._entries(None)
        self._watermark = carry_back(loading.store, table, self._watermark, self._ledger)
        self._behind = manifests_behind(loading.store, table, self._watermark)

    def _has_chunks(self) -> bool:
        """Whether the watermark calls a chunk loaded, if only one without rows."""
        first = ManifestId(self._watermark.redshift_state.eligible_from_epoch, 0)
        return any(True for _ in self._loading.store.log.chunks(self._table, since=first))

    def _select(self) -> _Selection:
        """Choose what to load: everything pending, or what a manual watermark allows."""
        loading, table, watermark = self._loading, self._table, self._watermark
        after = self._manual
        if after is None:
            pending = pending_manifests(self._behind, self._ledger)
            return _Selection(manifests=self._behind, pending=pending)
        loading.report(
            Notice(
                "info",
                f"{table}: Using manual watermark-based incremental {loading.warehouse} loading:"
                f" files after {plain(after)}",
            )
        )
        # Manifests from before a reset count again if they are newer than the manual timestamp.
        manifests = list(loading.store.log.manifests(table))
        pending, left_out = split_by_creation(
            pending_manifests(manifests, self._ledger),
            after,
            eligible_from=watermark.redshift_state.eligible_from_epoch,
        )
        refuse_all_left_out(table, after, manifests, left_out)
        return _Selection(manifests=manifests, pending=pending, left_out=left_out)

    def _prepare_table(self) -> list[str]:
        """Create or alter the target table, unless rows would be lost or duplicated."""
        table, pending = self._table, self._selection.pending
        latest = chunks_in(pending or self._newest_loaded())
        if not latest:
            return []
        expected = joined_table(self._loading.target_name, latest)
        rows = self._totals.rows
        refuse_lost_table(table, self._target, expected, pending, rows)
        if self._watermark.mysql_state.inherited:
            refuse_lost_inheritance(table, self._target, expected)
        if not pending and (rows or self._target.columns_held(expected)):
            return []
        before = [] if latest[0].reload else self._newest_loaded()
        if rows:
            inherited = self._watermark.mysql_state.inherited
            refuse_lost_columns(table, self._target, expected, before, inherited=inherited)
        refuse_other_keys(table, expected.name, [*pending, *before])
        if pending:
            refuse_late_rows(table, pending, self._selection.manifests, self._ledger)
        try:
            return self._target.prepare(
                structs.replace(expected, deleted_at=self._deleted_at()),
                partial(columns_in, self._loading.store.log, table),
            )
        except SchemaConflict as error:
            error.hint = error.hint or load_again_hint(table, expected.name)
            raise

    def _deleted_at(self) -> str | None:
        """Return the target's column for deleted rows, if one is needed by now."""
        deletes = map(deletes_of, self._selection.pending)
        return next((found.deleted_at for found in deletes if found and found.deleted_at), None)

    def _newest_loaded(self) -> list[Manifest]:
        """Read the newest manifest in the ledger, if there is one."""
        log, newest = self._loading.store.log, self._totals.newest
        return [log.read(self._table, newest)] if newest else []

    def _quarantine(self) -> "Quarantine":
        from floodmark.warehouse.quarantine import Quarantine

        return Quarantine(
            objects=self._loading.store.objects,
            folder=lake_layout.quarantine(self._table, self._load_epoch),
            copies=lake_layout.copies(self._table, self._load_epoch),
            most_rows=self._loading.quarantine_limit,
        )

    def _batches(self) -> Iterator[LoadBatch]:
        """Group the pending manifests into transactions."""
        selection, pending = self._selection, self._selection.pending
        if not pending:
            return
        epoch = self._load_epoch
        expected = joined_table(self._loading.target_name, chunks_in(pending))
        winning = {m.head for m in pending if wins(m, expected)}
        changes = (m.head for m in selection.manifests if not isinstance(m.change, Chunk))
        before = self._loading.store.log.heads(self._table, since=ManifestId(max(1, epoch - 1), 0))
        kept = keep_existing_rows(before, epoch)
        deletes = [found for found in map(deletes_of, selection.manifests) if found]
        for batch in batches_of(
            pending,
            [*self._ledger, *changes],
            target_name=self._loading.target_name,
            load_epoch=epoch,
            session_id=self._loading.session_id,
            most_bytes=self._loading.batch_bytes,
            manifest_key={m.head: lake_layout.manifest(self._table, m.head) for m in pending},
            fills=fills_of(selection.manifests, selection.left_out),
            first_unlimited=self._target.takes_any_size(expected),
        ):
            yield structs.replace(
                batch,
                keep_existing_rows=kept,
                wins=batch.chunks[0].head in winning,
                known_epochs=self._known_epochs,
                deleted_later=tuple(d for d in deletes if d.head > batch.chunks[-1].head),
            )

    def _save_progress(self, last: ManifestId | None) -> None:
        """Update the watermark from the ledger: up to `last`, or to the end of the selection."""
        store, start = self._loading.store, self._watermark.loaded_head
        self._loaded = totals = self._target.ledger_totals(str(self._table), self._load_epoch)
        eligible_from = self._watermark.redshift_state.eligible_from_epoch
        skipped = [m for m in self._selection.left_out if m.epoch >= eligible_from]
        done = [m for m in self._selection.manifests if last is None or m.head <= last]
        through = max(loaded_through(done, skipped, start), start)
        now = store.now()

        def record(current: Watermark) -> Watermark:
            self._refuse_overtaken(current)
            return loaded(
                current,
                through=through,
                total_rows=totals.rows,
                quarantined_rows=totals.quarantined_rows,
                deleted_rows=totals.deleted_rows,
                session_rows=self._rows_before + self._rows,
                now=now,
                complete=not skipped and not self._goes_on,
                target=self._loading.place,
            )

        self._lease.check()
        store.update(self._table, record)

    def _refuse_overtaken(self, current: Watermark) -> None:
        """Raise LeaseLost if an operator reset or restored the load while this run loaded."""
        if current.redshift_state.load_epoch != self._load_epoch:
            raise LeaseLost(
                f"{self._table}: the load was reset or restored while this run loaded",
                hint="run the command again",
            )

    def _result(self) -> LoadResult:
        left_out = self._selection.left_out
        before, totals = self._totals, self._loaded
        return LoadResult(
            rows=self._rows,
            quarantined_rows=totals.quarantined_rows - before.quarantined_rows,
            deleted_rows=totals.deleted_rows - before.deleted_rows,
            manifests=self._manifests,
            seconds=time.monotonic() - self._began,
            changes=tuple(self._changes),
            left_out_manifests=len(left_out),
            left_out_rows=sum(chunk.rows for chunk in chunks_in(left_out)),
            began=self._began_at,
            complete=self._complete,
            fresh=self._fresh,
        )
