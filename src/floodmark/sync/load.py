"""Load one table: from the lake into the target, exactly once.

    lease → compare log and ledger → for each batch: load in one transaction → watermark

A crash before the target's commit leaves nothing. A crash after it leaves the watermark behind the
ledger; the next run reads the ledger and catches up.

With `--redshift-only`, a manual watermark leaves out files created before it. They stay pending,
and the next sync without the flag loads them.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import structs

from floodmark.errors import FloodmarkError, LeaseLost, NameTooLong, SchemaConflict
from floodmark.model import lake_layout
from floodmark.model.load import LedgerEntry, LedgerTotals, LoadBatch
from floodmark.model.load_transitions import load_failed, loaded
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Manifest, chunks_in
from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.planning.joined_types import joined_table
from floodmark.planning.ledger_diff import keep_existing_rows
from floodmark.planning.load_batches import (
    batches_of,
    check_lake,
    deletes_of,
    fills_of,
    loaded_through,
    wins,
)
from floodmark.state.lease import Lease
from floodmark.sync.load_checks import (
    load_again_hint,
    refuse_late_rows,
    refuse_loading_twice,
    refuse_lost_columns,
    refuse_lost_inheritance,
    refuse_lost_table,
    refuse_other_keys,
)
from floodmark.sync.load_result import LoadResult
from floodmark.sync.load_selection import Selection, manual_start, select_manifests
from floodmark.sync.loading import Loading
from floodmark.sync.log_facts import columns_in
from floodmark.sync.lost_loads import carry_back, why_lost
from floodmark.sync.machine_clock import check_machine_clock
from floodmark.sync.pending_loads import manifests_behind, surely_loaded
from floodmark.sync.result import TableResult, attach, done_before, keeping
from floodmark.warehouse.target import Target

if TYPE_CHECKING:
    from floodmark.warehouse.quarantine import Quarantine


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
        self._selection = Selection(manifests=[], pending=[])
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
        self._read_ledger()
        self._undo_lost_loads()
        self._selection = select_manifests(
            self._loading, self._table, self._watermark, self._behind, self._ledger
        )
        self._changes = self._prepare_table()
        for batch in self._batches():
            self._loading.check()
            self._lease.check()
            self._rows += self._load_what_fits(batch)
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
        manual = manual_start(self._loading, self._watermark)
        self._ledger = self._entries(None if manual else self._watermark.loaded_head)
        self._lease.check()
        check_lake(name, self._behind, self._ledger, self._watermark.loaded_head)
        self._target.check_owner(name, epoch, self._loading.target_name)

    def _entries(self, after: ManifestId | None) -> dict[ManifestId, LedgerEntry]:
        entries = self._target.ledger(str(self._table), self._load_epoch, after=after)
        return {entry.head: entry for entry in entries}

    def _undo_lost_loads(self) -> None:
        """Move the watermark back if the target lacks rows that it calls loaded."""
        loading, table = self._loading, self._table
        reason = why_lost(loading, table, self._watermark, self._totals, self._behind)
        if reason is None:
            return
        loading.report(Notice("warning", f"{table}: {reason}"))
        refuse_loading_twice(
            loading.store.log, table, self._target, loading.target_name, self._totals.rows
        )
        self._ledger = self._entries(None)
        self._watermark = carry_back(loading.store, table, self._watermark, self._ledger)
        self._behind = manifests_behind(loading.store, table, self._watermark)

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

    def _load_what_fits(self, batch: LoadBatch) -> int:
        from floodmark.warehouse.quarantine import load_what_fits

        return load_what_fits(self._target, batch, self._quarantine)

    @cached_property
    def _quarantine(self) -> "Quarantine":
        """Imported when something is to be loaded: Arrow takes longer than a run with nothing."""
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
