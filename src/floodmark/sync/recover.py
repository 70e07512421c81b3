"""Recover a table from the mirror, and decide how it continues.

    lease → compare lake and mirror → read the ledger → plan (planning/restart.py)
    → 1. manifests → 2. watermark → 3. if rows must be read again: a manifest in a new epoch

State after a crash:

in 1      A part of the log. Runs refuse the table: the mirror has manifests that the lake lacks.
after 1   The whole log. Runs rebuild the watermark from it.
after 2   The same, with the load progress.
after 3   The table continues.

Before 3 a run may extract more, but it cannot load: data files are missing, or the ledger has
manifests that the log lacks. In each case, running the command again completes the recovery: it
plans from what it finds. A run that outlived the loss of its lake loses its lease at the next
heartbeat; what it still commits is planned for in the same way.

After 3, only manifests of the new epoch are loaded. Rows that were loaded before are still compared
(`sync/log_facts.py`).
"""

import time
from collections.abc import Mapping

from msgspec import Struct, structs

from floodmark.errors import CorruptLog, FloodmarkError, LeaseHeld
from floodmark.model import lake_layout
from floodmark.model.load import LedgerEntry
from floodmark.model.log_state import LogState, ManifestId
from floodmark.model.manifest import FROM_MIRROR, Change, Loaded, Manifest, Reset, chunks_in
from floodmark.model.position import START, Position
from floodmark.model.reconciled_state import deletes_lost
from floodmark.model.table import TableName
from floodmark.planning.load_batches import target_table
from floodmark.planning.restart import Restart, holes, in_epoch, new_epoch, plan_restart
from floodmark.state.lease import Lease
from floodmark.state.mirror_restore import Lost, find_lost, restore_lost
from floodmark.state.operator_changes import counted_restore
from floodmark.state.watermark_repair import begin_epoch
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.objects import ObjectStore
from floodmark.sync.loading import Loading

LEASE_SECONDS = 10.0

Ledgers = Mapping[int, list[LedgerEntry]]


class TableRecovery(Struct, frozen=True, kw_only=True):
    """What was restored of a table, or would be, and where it continues.

    `restart` is how, if rows must be read again. `ledger_read` is whether the warehouse was asked
    what is loaded; not if the table is in no pipeline. `error` is why nothing was done.
    """

    table_name: str
    manifests: int = 0
    watermark: bool = False
    position: str | None = None
    restart: Restart | None = None
    ledger_read: bool = False
    error: FloodmarkError | None = None

    @property
    def changed(self) -> bool:
        """Whether anything was missing."""
        return bool(self.manifests or self.watermark or self.restart)


def recover_table(
    store: WatermarkStore,
    mirror: ObjectStore,
    table: TableName,
    loading: Loading | None,
    *,
    dry_run: bool = False,
) -> TableRecovery:
    """Restore what the lake has lost of a table; with `dry_run`, only say what that is.

    `store` must not be mirrored. Without `loading`, what is loaded stays unknown.
    """
    planned = _Recovering(store, mirror, table, loading)
    found = planned.found()
    if dry_run or not found.changed:
        return found
    with _lease(store, table):
        recovering = _Recovering(store, mirror, table, loading, planned.lost)
        recovering.apply()
        return recovering.found()


def _lease(store: WatermarkStore, table: TableName) -> Lease:
    """Take the lease on a table; wait for runs that hold it only to find that it is lost."""
    deadline = time.monotonic() + LEASE_SECONDS
    while True:
        try:
            return store.lease(table)
        except LeaseHeld:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class _Recovering:
    """What was lost of a table, and what to do."""

    def __init__(
        self,
        store: WatermarkStore,
        mirror: ObjectStore,
        table: TableName,
        loading: Loading | None,
        known: Lost | None = None,
    ) -> None:
        self._store = store
        self._mirror = mirror
        self._table = table
        self.lost = find_lost(store.objects, mirror, table, known)
        self._ledgers: Ledgers = {}
        self._restart: Restart | None = None
        self._ledger_read = False
        manifests = self.lost.manifests
        saved = self.lost.watermark or store.saved(table)
        moved = saved is not None and (saved.moved_to or saved.moving_from)
        if loading is not None and manifests and not moved:
            self._ledger_read = True
            self._ledgers = _read_ledgers(loading, table, manifests)
            self._refuse_holes(manifests)
            current = manifests[-1].standing
            self._restart = plan_restart(manifests, current, self._ledgers, self._files())

    def _refuse_holes(self, manifests: tuple[Manifest, ...]) -> None:
        """Refuse a log whose missing manifests may have had rows that are not loaded."""
        loaded = {entry.head for entries in self._ledgers.values() for entry in entries}
        if lost := [str(head) for head in holes(manifests) if head not in loaded]:
            more = f" and {len(lost) - 3:,} more" if len(lost) > 3 else ""
            raise CorruptLog(
                f"{self._table}: manifests {', '.join(lost[:3])}{more} are neither in the lake nor"
                f" in {self._mirror}, and not loaded",
                hint="restore these objects from an older version of the bucket, or from a backup",
            )

    def apply(self) -> None:
        restore_lost(self._store.objects, self._mirror, self._table, self.lost)
        if self._restart is None:
            self._store.get(self._table)
            return
        epoch = new_epoch(self.lost.manifests, self._ledgers, self._store.now())
        self._store.get(self._table)
        change: Change
        if self._restart.kind == "read again":
            epoch, change = epoch - 1, Reset(stages=("extract", "load"))
        else:
            change = self._going_back(in_epoch(self._restart.state, epoch), epoch)
        begin_epoch(self._store, self._table, epoch)
        self._store.commit(self._table, lambda _current: change)
        if self._restart.kind == "read again" and (left := self._restart.deleted):
            self._store.update(
                self._table,
                lambda now: structs.replace(now, reconciled_state=deletes_lost(left)),
            )

    def _going_back(self, state: LogState, epoch: int) -> Change:
        start = Loaded(head=ManifestId(epoch, 0), rows=0, time=None)
        assert self._restart is not None
        return counted_restore(
            self._store, self._table, state, start, FROM_MIRROR, self._restart.deleted
        )

    def _files(self) -> dict[str, int]:
        """Return the sizes of the files in the lake that loads read."""
        objects, table = self._store.objects, self._table
        paths = [f.path for c in chunks_in(self.lost.manifests) for f in c.loaded_files]
        folders = [lake_layout.data_files(table), *lake_layout.folders_elsewhere(table, paths)]
        if any(path.startswith(lake_layout.DELETES) for path in paths):
            folders.append(lake_layout.deletes_of(table))
        return {info.key: info.size for f in folders for info in objects.list_objects(f)}

    def found(self) -> TableRecovery:
        lost, restart = self.lost, self._restart
        return TableRecovery(
            table_name=str(self._table),
            manifests=len(lost.missing),
            watermark=lost.watermark is not None,
            position=str(self._position(restart)) if lost.manifests else None,
            restart=restart,
            ledger_read=self._ledger_read,
        )

    def _position(self, restart: Restart | None) -> Position:
        if restart is None:
            return self.lost.manifests[-1].standing.mysql_state.position
        return START if restart.kind == "read again" else restart.state.mysql_state.position


def _read_ledgers(loading: Loading, table: TableName, manifests: tuple[Manifest, ...]) -> Ledgers:
    """Return what is loaded; nothing if the target table does not exist any more."""
    if loading.target_missing():
        return {}
    chunks = [chunk for chunk in chunks_in(manifests) if chunk.columns]
    with loading.open_target() as target:
        if chunks and not target.columns_held(target_table(loading.target_name, chunks[-1])):
            return {}
        name = str(table)
        return {epoch: target.ledger(name, epoch) for epoch in target.load_epochs(name)}


def failed_recovery(table: TableName, error: FloodmarkError) -> TableRecovery:
    """Return the result for a table that could not be recovered."""
    return structs.replace(TableRecovery(table_name=str(table)), error=error)
