"""Stage 2 of one table: from the lake into the target, exactly once.

    lease → what does the ledger lack? → for each batch: load in one transaction → watermark

A crash before the target's commit leaves nothing. A crash after it leaves the watermark behind the
ledger, and the next run carries it forward: the ledger is asked, not the watermark.

An operator's manual watermark, with `--redshift-only`, leaves out what was created before it. That
stays pending: the watermark never calls it loaded, and the next sync without it loads it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from msgspec import Struct, structs

from floodmark.errors import ExitCode, FloodmarkError, WrongClock
from floodmark.model import lake_layout
from floodmark.model.load import LedgerEntry, TargetTable
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.notice import Notice, Report
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
from floodmark.model.transitions import load_failed, loaded, unloaded
from floodmark.model.watermark import RedshiftState, Watermark
from floodmark.planning.column_types import joined_table
from floodmark.planning.key_change import key_change
from floodmark.planning.ledger_diff import keep_existing_rows
from floodmark.planning.load_batches import (
    batches_of,
    check_lake,
    filled_since,
    fills_of,
    loaded_through,
    pending_manifests,
    split_by_creation,
    target_table,
    wins,
)
from floodmark.state.lease import Lease
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.machine_clock import check_machine_clock
from floodmark.sync.result import TableResult
from floodmark.warehouse.target import (
    NameTooLong,
    SchemaConflict,
    Target,
    TargetTaken,
    UnknownGrantee,
)


class Loading(Struct, frozen=True, kw_only=True):
    """How tables are loaded in this run.

    With `load_only` a manual watermark says which files are wanted, and the ledger is asked even
    if nothing seems to be new. `place` tells the target's table from any other: the ledger is asked
    as well if the watermark speaks of another. `target_missing` says whether the target is gone, if
    it can tell without opening it. `check` raises once the run was stopped.
    """

    store: WatermarkStore
    open_target: Callable[[], AbstractContextManager[Target]]
    target_name: str
    session_id: str
    batch_bytes: int
    place: str | None = None
    load_only: bool = False
    target_missing: Callable[[], bool] = lambda: False
    report: Report = lambda _notice: None
    quarantine_limit: int = 0
    check: Callable[[], None] = lambda: None


class LoadResult(Struct, frozen=True, kw_only=True):
    """What was loaded of a table, and what a manual watermark left out."""

    rows: int = 0
    quarantined_rows: int = 0
    manifests: int = 0
    seconds: float = 0.0
    changes: tuple[str, ...] = ()
    left_out_manifests: int = 0
    left_out_rows: int = 0


class _Selection(Struct, frozen=True, kw_only=True):
    """What is to be loaded: `pending` of the `manifests` looked at, and what is `left_out`."""

    manifests: list[Manifest]
    pending: list[Manifest]
    left_out: list[Manifest] = []


def load_after(extracted: TableResult, loading: Loading, table: TableName) -> TableResult:
    """Load a table once its extraction is done; a failure does not hide what was extracted."""
    try:
        result = load_table(loading, table)
    except FloodmarkError as error:
        return extracted.with_failure(error)
    return structs.replace(
        extracted,
        loaded_rows=result.rows,
        quarantined_rows=extracted.quarantined_rows + result.quarantined_rows,
        loaded_manifests=result.manifests,
        load_seconds=result.seconds,
        target_changes=result.changes,
        left_out_manifests=result.left_out_manifests,
        left_out_rows=result.left_out_rows,
    )


def load_table(loading: Loading, table: TableName) -> LoadResult:
    """Load everything of a table that its target does not have yet."""
    store = loading.store
    with store.lease(table) as lease:
        watermark = store.get(table)
        if watermark is not None:
            watermark.refuse_moved()
        if watermark is None or watermark.mysql_state.last_manifest is None:
            return LoadResult()
        try:
            behind = manifests_behind(store, table, watermark)
            if not behind and _surely_loaded(loading, watermark):
                return LoadResult()
            with loading.open_target() as target:
                if loading.load_only:  # else it was compared with MySQL's
                    check_machine_clock("the target's", target.clock, store.now)
                return _load(loading, table, target, watermark, behind, lease)
        except FloodmarkError as error:
            if isinstance(error, NameTooLong):  # it is in the lake, under that name
                error.hint = (
                    f"leave it out with 'exclude: [{error.column}]' for the table, or rename it in"
                    f" the source; then 'floodmark watermark reset -t {table} --force' and sync"
                    " read the table again"
                )
            if error.exit_code == ExitCode.FAILED and not isinstance(error, WrongClock):
                message = error.message
                store.update(table, lambda current: load_failed(current, message))
            raise


def check_target(loading: Loading, table: TableName) -> None:
    """TargetTaken or UnknownGrantee, before rows are read, if they could not be loaded.

    A target that cannot be reached now is no reason not to read: the load will find out.
    """
    if loading.target_missing():
        return
    watermark = loading.store.known(table)
    load_epoch = watermark.redshift_state.load_epoch if watermark else 1
    try:
        with loading.open_target() as target:
            target.check_owner(str(table), load_epoch, loading.target_name)
            target.check_grants(loading.target_name)
    except (TargetTaken, UnknownGrantee):
        raise
    except FloodmarkError:
        return


def _surely_loaded(loading: Loading, watermark: Watermark) -> bool:
    """Whether the target need not be asked: to import its driver would double a run's time."""
    state = watermark.redshift_state
    if state.status != "success" or state.target != loading.place or loading.load_only:
        return False
    return state.total_rows + state.quarantined_rows == 0 or not loading.target_missing()


def manifests_behind(
    store: WatermarkStore, table: TableName, watermark: Watermark
) -> list[Manifest]:
    """The manifests that the watermark does not call loaded; the ledger may know more."""
    first = ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    since = max(first, watermark.loaded_head)
    return list(store.log.manifests(table, after=since))


def foresee(
    loading: Loading, table: TableName, watermark: Watermark
) -> tuple[list[Chunk], list[Chunk]]:
    """What a load would take and leave out by the watermark alone; the ledger may know more."""
    behind = manifests_behind(loading.store, table, watermark)
    after = watermark.manual_start if loading.load_only else None
    if after is None:
        return _chunks(pending_manifests(behind, {})), []
    since = watermark.redshift_state.eligible_from_epoch
    before = [m for m in loading.store.log.manifests(table) if m.epoch < since]
    pending = pending_manifests([*before, *behind], {})
    chosen, left_out = split_by_creation(pending, after, eligible_from=since)
    return _chunks(chosen), _chunks(left_out)


def carry_back(
    store: WatermarkStore,
    table: TableName,
    watermark: Watermark,
    ledger: Mapping[ManifestId, LedgerEntry],
) -> Watermark:
    """Let the watermark forget what the target has lost, so that it is loaded again.

    Saved before anything is loaded: whoever dies on the way leaves it pending.
    """
    first = ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    manifests = list(store.log.manifests(table, since=first))
    through = loaded_through(manifests, pending_manifests(manifests, ledger), first)
    through, rows = min(through, watermark.loaded_head), _rows(ledger.values())
    aside = _quarantined(ledger.values())
    return store.update(
        table,
        lambda current: unloaded(current, through=through, total_rows=rows, quarantined_rows=aside),
    )


def _load(
    loading: Loading,
    table: TableName,
    target: Target,
    watermark: Watermark,
    behind: list[Manifest],
    lease: Lease,
) -> LoadResult:
    from floodmark.warehouse.quarantine import Quarantine, load_what_fits

    began = time.monotonic()
    store = loading.store
    load_epoch = watermark.redshift_state.load_epoch
    quarantine = Quarantine(
        objects=store.objects,
        folder=lake_layout.quarantine(table, load_epoch),
        copies=lake_layout.copies(table, load_epoch),
        most_rows=loading.quarantine_limit,
    )
    ledger = {entry.head: entry for entry in target.ledger(str(table), load_epoch)}
    check_lake(str(table), behind, ledger, watermark.loaded_head)
    target.check_owner(str(table), load_epoch, loading.target_name)
    if lacking := _what_it_lacks(loading, watermark.redshift_state, ledger):
        loading.report(Notice("warning", f"{table}: {lacking}"))
        _refuse_doubling(loading, table, target, _rows(ledger.values()))
        watermark = carry_back(store, table, watermark, ledger)
        behind = manifests_behind(store, table, watermark)
    selection = _select(loading, table, watermark, behind, ledger)
    pending = selection.pending
    changes: list[str] = []
    winning: set[ManifestId] = set()
    latest = _chunks(pending) or _chunks([store.log.read(table, max(ledger))] if ledger else [])
    if latest:
        wanted = joined_table(loading.target_name, latest)
        winning = {m.head for m in pending if wins(m, wanted)}
        _refuse_lost_table(table, target, wanted, pending, _rows(ledger.values()))
    if pending:
        _refuse_other_keys(store, table, wanted, pending, ledger)
        _refuse_late_rows(table, selection, ledger)
        changes = _prepare(table, target, wanted)
    eligible_from = watermark.redshift_state.eligible_from_epoch
    skipped = [m for m in selection.left_out if m.epoch >= eligible_from]
    rows = 0

    def checkpoint(last: ManifestId | None) -> list[LedgerEntry]:
        entries = target.ledger(str(table), load_epoch)
        done = [m for m in selection.manifests if last is None or m.head <= last]
        reached = loaded_through(done, skipped, watermark.loaded_head)
        _checkpoint(
            store,
            table,
            through=max(reached, watermark.loaded_head),
            ledger=entries,
            session_rows=rows,
            complete=not skipped,
            place=loading.place,
        )
        return entries

    batches = batches_of(
        pending,
        [*ledger, *(m.head for m in selection.manifests if not isinstance(m.change, Chunk))],
        target_name=loading.target_name,
        load_epoch=load_epoch,
        session_id=loading.session_id,
        most_bytes=loading.batch_bytes,
        manifest_key={m.head: lake_layout.manifest(table, m.head) for m in pending},
        fills=fills_of(selection.manifests, selection.left_out),
    )
    before = store.log.heads(table, since=ManifestId(max(1, load_epoch - 1), 0))
    kept = bool(pending) and keep_existing_rows(before, load_epoch)
    for batch in batches:
        loading.check()
        lease.check()
        ranked = structs.replace(
            batch, keep_existing_rows=kept, wins=batch.chunks[0].head in winning
        )
        rows += load_what_fits(target, ranked, quarantine)
        checkpoint(batch.chunks[-1].head)
    entries = checkpoint(None)
    return LoadResult(
        rows=rows,
        quarantined_rows=_quarantined(entries) - _quarantined(ledger.values()),
        manifests=len(pending),
        seconds=time.monotonic() - began,
        changes=tuple(changes),
        left_out_manifests=len(selection.left_out),
        left_out_rows=sum(chunk.rows for chunk in _chunks(selection.left_out)),
    )


def _what_it_lacks(
    loading: Loading, state: RedshiftState, ledger: Mapping[ManifestId, LedgerEntry]
) -> str | None:
    """Why the watermark cannot be believed: the target is another one, or it has lost rows."""
    if state.target not in (None, loading.place) and state.total_rows + state.quarantined_rows:
        return f"the target is {loading.place} now, no longer {state.target}; loading what it lacks"
    found = _rows(ledger.values()) + _quarantined(ledger.values())
    if found < state.total_rows + state.quarantined_rows:
        return "the target has lost what was loaded; loading it again"
    return None


def _refuse_doubling(loading: Loading, table: TableName, target: Target, rows: int) -> None:
    """FloodmarkError if rows are there of which the ledger is lost, and no key tells them apart."""
    chunks = list(loading.store.log.chunks(table))
    if not chunks or chunks[-1].primary_key or chunks[-1].reload:
        return
    name = loading.target_name
    held = target.count(target_table(name, chunks[-1])) or 0
    if held > rows:
        raise FloodmarkError(
            f"{table}: {name} holds {held:,} rows, and the ledger tells of {rows:,};"
            " without a primary key, what is loaded again would be there twice",
            hint=f"empty {name} in the target, then 'floodmark watermark reset -t {table}"
            " --load-only' and sync load it again",
        )


def _refuse_lost_table(
    table: TableName, target: Target, wanted: TargetTable, pending: list[Manifest], rows: int
) -> None:
    """FloodmarkError if the ledger tells of rows in a table that is gone, or has another name."""
    replaced = any(chunk.reload for chunk in _chunks(pending))
    if rows and not replaced and not target.columns_held(wanted):
        raise FloodmarkError(
            f"the target has no table {wanted.name}, though the ledger says that {rows:,} rows of"
            f" {table} were loaded",
            hint=f"'floodmark watermark reset -t {table} --load-only', then sync, loads all again",
        )


def _refuse_other_keys(
    store: WatermarkStore,
    table: TableName,
    wanted: TargetTable,
    pending: list[Manifest],
    ledger: Mapping[ManifestId, LedgerEntry],
) -> None:
    """SchemaConflict if rows that are there, or come before, have other keys.

    By the new ones a row would not be found, and be there twice.
    """
    manifests = list(pending)
    if ledger and not _chunks(pending)[0].reload:
        manifests.append(store.log.read(table, max(ledger)))
    if change := key_change(manifests):
        raise SchemaConflict(
            f"the primary key of {wanted.name} was {change[0]}, and is {change[1]} by the source's"
            " schema",
            hint=f"drop {wanted.name} in the target, then 'floodmark watermark reset -t {table}"
            " --force' and sync read it again",
        )


def _refuse_late_rows(
    table: TableName, selection: _Selection, ledger: Mapping[ManifestId, LedgerEntry]
) -> None:
    """FloodmarkError if a later manifest has given all rows a value that these would lack."""
    if found := filled_since(selection.pending, selection.manifests, ledger):
        later, columns = found
        raise FloodmarkError(
            f"{table}: manifest {selection.pending[0].head} would be loaded after {later.head},"
            f" which gave all rows before it their value of {columns}",
            hint=f"'floodmark watermark reset -t {table} --load-only --force', then sync, loads all"
            " again in order",
        )


def _prepare(table: TableName, target: Target, wanted: TargetTable) -> list[str]:
    """Prepare the target's table; SchemaConflict says how to load all of it from the lake."""
    try:
        return target.prepare(wanted)
    except SchemaConflict as error:
        error.hint = error.hint or (
            f"drop {wanted.name} in the target, then 'floodmark watermark reset -t {table}"
            " --load-only --force' and sync load all of it from the lake"
        )
        raise


def _select(
    loading: Loading,
    table: TableName,
    watermark: Watermark,
    behind: list[Manifest],
    ledger: Mapping[ManifestId, LedgerEntry],
) -> _Selection:
    after = watermark.manual_start if loading.load_only else None
    if after is None:
        return _Selection(manifests=behind, pending=pending_manifests(behind, ledger))
    loading.report(
        Notice(
            "info",
            f"{table}: Using manual watermark-based incremental Redshift loading:"
            f" files after {plain(after)}",
        )
    )
    # What a reset has left behind counts again if it was created after the manual timestamp.
    manifests = list(loading.store.log.manifests(table))
    pending, left_out = split_by_creation(
        pending_manifests(manifests, ledger),
        after,
        eligible_from=watermark.redshift_state.eligible_from_epoch,
    )
    if left_out and not any(m.created_at > after for m in manifests if _chunks([m])):
        raise nothing_after(table, after, left_out)
    return _Selection(manifests=manifests, pending=pending, left_out=left_out)


def nothing_after(table: TableName, after: datetime, found: list[Manifest]) -> FloodmarkError:
    """There are files to load, and a manual watermark leaves none of them."""
    files = sum(len(chunk.files) for chunk in _chunks(found))
    newest = max(manifest.created_at for manifest in found)
    return FloodmarkError(
        f"{table}: Found {files:,} files, filtered to 0 files for loading: the newest was created"
        f" at {plain(newest)}, not after the manual watermark {plain(after)}",
        hint=f"set it to before the files: floodmark watermark set -t {table} --timestamp …",
    )


def _chunks(manifests: Iterable[Manifest]) -> list[Chunk]:
    return [m.change for m in manifests if isinstance(m.change, Chunk)]


def _rows(ledger: Iterable[LedgerEntry]) -> int:
    return sum(entry.rows for entry in ledger)


def _quarantined(ledger: Iterable[LedgerEntry]) -> int:
    return sum(entry.quarantined_rows for entry in ledger)


def _checkpoint(
    store: WatermarkStore,
    table: TableName,
    *,
    through: ManifestId,
    ledger: Sequence[LedgerEntry],
    session_rows: int,
    complete: bool,
    place: str | None,
) -> None:
    now = store.now()
    store.update(
        table,
        lambda current: loaded(
            current,
            through=through,
            total_rows=_rows(ledger),
            quarantined_rows=_quarantined(ledger),
            session_rows=session_rows,
            now=now,
            complete=complete,
            target=place,
        ),
    )
