"""Stage 2 of one table: from the lake into the target, exactly once.

    lease → what does the ledger lack? → for each batch: load in one transaction → watermark

A crash before the target's commit leaves nothing. A crash after it leaves the watermark behind the
ledger, and the next run carries it forward: the ledger is asked, not the watermark.
"""

import time
from collections.abc import Callable

from msgspec import Struct, structs

from floodmark.errors import ExitCode, FloodmarkError
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.standing import Head
from floodmark.model.table import TableName
from floodmark.model.transitions import load_failed, loaded
from floodmark.model.watermark import Watermark
from floodmark.planning.loads import batches_of, pending_manifests, target_table
from floodmark.state import layout
from floodmark.state.lease import Lease
from floodmark.state.watermarks import WatermarkStore
from floodmark.sync.result import TableResult
from floodmark.warehouse.target import Target


class Loading(Struct, frozen=True, kw_only=True):
    """How tables are loaded in this run."""

    store: WatermarkStore
    open_target: Callable[[], Target]
    target_name: str
    session_id: str
    batch_bytes: int


class LoadResult(Struct, frozen=True, kw_only=True):
    """What was loaded of a table."""

    rows: int = 0
    manifests: int = 0
    seconds: float = 0.0
    changes: tuple[str, ...] = ()


def load_after(extracted: TableResult, loading: Loading, table: TableName) -> TableResult:
    """Load a table once its extraction is done; a failure does not hide what was extracted."""
    try:
        result = load_table(loading, table)
    except FloodmarkError as error:
        return structs.replace(
            extracted,
            status="failed",
            error=error.message,
            hint=error.hint,
            exit_code=error.exit_code,
        )
    return structs.replace(
        extracted,
        loaded_rows=result.rows,
        loaded_manifests=result.manifests,
        load_seconds=result.seconds,
        target_changes=result.changes,
    )


def load_table(loading: Loading, table: TableName) -> LoadResult:
    """Load everything of a table that its target does not have yet."""
    store = loading.store
    with store.lease(table) as lease:
        watermark = store.get(table)
        if watermark is None or watermark.mysql_state.last_manifest is None:
            return LoadResult()
        try:
            manifests = manifests_behind(store, table, watermark)
            if not manifests and watermark.redshift_state.status == "success":
                return LoadResult()
            with loading.open_target() as target:
                return _load(loading, table, target, watermark, manifests, lease)
        except FloodmarkError as error:
            if error.exit_code == ExitCode.FAILED:
                message = error.message
                store.update(table, lambda current: load_failed(current, message))
            raise


def manifests_behind(
    store: WatermarkStore, table: TableName, watermark: Watermark
) -> list[Manifest]:
    """The manifests that the watermark does not call loaded; the ledger may know more."""
    first = Head(watermark.redshift_state.eligible_from_epoch, 0)
    since = max(first, watermark.loaded_head)
    heads = (head for head in store.log.heads(table, since=since) if head > watermark.loaded_head)
    return [store.log.read(table, head) for head in heads]


def _eligible_manifests(
    store: WatermarkStore, table: TableName, watermark: Watermark
) -> list[Manifest]:
    """Every manifest that belongs into the target in this load epoch."""
    first = Head(watermark.redshift_state.eligible_from_epoch, 0)
    return [store.log.read(table, head) for head in store.log.heads(table, since=first)]


def _load(
    loading: Loading,
    table: TableName,
    target: Target,
    watermark: Watermark,
    manifests: list[Manifest],
    lease: Lease,
) -> LoadResult:
    began = time.monotonic()
    load_epoch = watermark.redshift_state.load_epoch
    ledger = {entry.head: entry for entry in target.ledger(str(table), load_epoch)}
    if sum(entry.rows for entry in ledger.values()) < watermark.redshift_state.total_rows:
        # The target was lost or replaced: it is the ledger that says what is to be loaded.
        manifests = _eligible_manifests(loading.store, table, watermark)
    pending = pending_manifests(manifests, ledger)
    changes: list[str] = []
    if pending:
        newest = pending[-1].change
        assert isinstance(newest, Chunk)
        changes = target.prepare(target_table(loading.target_name, newest))

    def checkpoint(head: Head) -> None:
        total = sum(entry.rows for entry in target.ledger(str(table), load_epoch))
        _checkpoint(loading.store, table, max(head, watermark.loaded_head), total, rows)

    rows = 0
    batches = batches_of(
        pending,
        [m.head for m in manifests if not isinstance(m.change, Chunk)],
        target_name=loading.target_name,
        load_epoch=load_epoch,
        session_id=loading.session_id,
        most_bytes=loading.batch_bytes,
        manifest_key={m.head: layout.manifest(table, m.head) for m in pending},
    )
    for batch in batches:
        lease.check()
        rows += target.load(batch)
        checkpoint(batch.chunks[-1].head)
    checkpoint(manifests[-1].head if manifests else watermark.loaded_head)
    return LoadResult(
        rows=rows,
        manifests=len(pending),
        seconds=time.monotonic() - began,
        changes=tuple(changes),
    )


def _checkpoint(
    store: WatermarkStore, table: TableName, through: Head, total_rows: int, session_rows: int
) -> None:
    now = store.now()
    store.update(
        table,
        lambda current: loaded(
            current, through=through, total_rows=total_rows, session_rows=session_rows, now=now
        ),
    )
