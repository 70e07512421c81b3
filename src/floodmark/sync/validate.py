"""Compare a table's watermark with the lake and the target, and repair it."""

from contextlib import suppress

from msgspec import structs

from floodmark.errors import (
    AnotherLake,
    FloodmarkError,
    SchemaConflict,
    StateError,
    TargetTaken,
)
from floodmark.model.load import LedgerEntry
from floodmark.model.load_transitions import loaded, unloaded
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest, chunks_in
from floodmark.model.table import TableName
from floodmark.model.timestamps import as_utc
from floodmark.model.watermark import Watermark
from floodmark.planning.cursor_change import another_cursor, keep_it, keeps, show_cursor
from floodmark.planning.ledger_diff import (
    ledger_differences,
    ledger_errors,
    ledger_state,
    target_difference,
)
from floodmark.planning.load_batches import target_table
from floodmark.state.lake_validation import Findings, read_log, validate
from floodmark.state.lease import read_lease
from floodmark.state.watermark_repair import repair
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.cursor_check import last_chunk
from floodmark.sync.loading import Loading

LOOKS = 3


def validate_table(store: WatermarkStore, table: TableName, loading: Loading | None) -> Findings:
    """Compare a table's watermark, manifests, data files, ledger and target; change nothing.

    Without `loading` the table has no target. If the target cannot be reached, `unchecked` says
    why; that is not a difference.
    """
    known: dict[ManifestId, Manifest] = {}
    findings = validate(store, table, known)
    current = _read(store, table)
    if current is not None and (current.moved_to or current.moving_from):
        return findings
    if loading is None:
        return _remarked(findings, "it is in no pipeline, so there is no target to compare with")
    lease = read_lease(store.objects, table)
    if lease is not None and lease.held(store.now()):
        return _remarked(findings, f"{lease.owner} is working on it; the target was not checked")
    for _ in range(LOOKS):
        before = _read(store, table)
        if before is None:
            return findings
        try:
            seen = _compare(findings, store, table, loading, before, known)
        except FloodmarkError as error:
            return structs.replace(findings, unchecked=error.message)
        after = _read(store, table)
        if after is not None and after.redshift_state == before.redshift_state:
            return seen
    return _remarked(findings, "it is being loaded; the target was not compared")


def compare_cursor(
    findings: Findings, store: WatermarkStore, table: TableName, configured: tuple[str, ...] | None
) -> Findings:
    """Add the difference between the configured cursor and that of the table's position."""
    watermark = _read(store, table)
    known = watermark.mysql_state.cursor if watermark else None
    if watermark is None or known is None or not configured or keeps(known, configured):
        return findings
    if watermark.position.is_start:
        return findings
    change = (
        f"its position was read by {show_cursor(known)}, and the configuration says"
        f" ({', '.join(configured)})"
    )
    chunk = last_chunk(store, table)
    keyed = chunk is None or bool(chunk.primary_key)
    error = another_cursor(table, change, keep_it(known), keyed=keyed)
    return structs.replace(
        findings,
        differences=(*findings.differences, change),
        hints=(*findings.hints, str(error.hint)),
    )


def repair_table(store: WatermarkStore, table: TableName, loading: Loading | None) -> None:
    """Rebuild the watermark from the manifests, and its load state from the ledger.

    Never change data. A later validation reports what cannot be repaired, above all a ledger that
    does not belong to this lake.
    """
    with store.lease(table):
        with suppress(StateError):
            if validate(store, table).differences:
                repair(store, table)
        watermark = _read(store, table)
        if watermark is not None:
            watermark.refuse_moved()
        if loading is None or watermark is None:
            return
        with suppress(FloodmarkError):
            manifests = read_log(store, table, [])
            ledger, _, _ = _look(loading, table, watermark, manifests)
            wrong = ledger_errors(manifests, ledger)
            if not wrong and ledger_differences(watermark, manifests, ledger):
                _set_loaded(store, table, manifests, ledger)


def _set_loaded(
    store: WatermarkStore, table: TableName, manifests: list[Manifest], ledger: list[LedgerEntry]
) -> None:
    """Set the watermark's load state from the ledger, forward or back."""
    now = store.now()
    times = [as_utc(entry.loaded_at) for entry in ledger if entry.loaded_at]
    time = min(now, max(times, default=now))

    def change(current: Watermark) -> Watermark:
        state = ledger_state(current, manifests, ledger)
        if state.through < current.loaded_head and any(
            manifest.head <= current.loaded_head for manifest in state.pending
        ):
            return unloaded(
                current,
                through=state.through,
                total_rows=state.rows,
                quarantined_rows=state.quarantined_rows,
                deleted_rows=state.deleted_rows,
            )
        return loaded(
            current,
            through=max(state.through, current.loaded_head),
            total_rows=state.rows,
            quarantined_rows=state.quarantined_rows,
            deleted_rows=state.deleted_rows,
            session_rows=current.redshift_state.last_session_rows,
            now=time,
            complete=not state.pending,
        )

    store.update(table, change)


def _compare(
    findings: Findings,
    store: WatermarkStore,
    table: TableName,
    loading: Loading,
    watermark: Watermark,
    known: dict[ManifestId, Manifest],
) -> Findings:
    manifests = read_log(store, table, [], known)
    ledger, held, taken = _look(loading, table, watermark, manifests)
    differences = ledger_differences(watermark, manifests, ledger)
    repairable = bool(differences) and not ledger_errors(manifests, ledger)
    hints = findings.hints
    load_epoch = watermark.redshift_state.load_epoch
    name = loading.target_name
    if ledger_errors(manifests, ledger):
        hints = (*hints, *filter(None, [AnotherLake(str(table), "").hint]))
    if taken is not None:
        differences.append(taken.message)
        hints = (*hints, *filter(None, [taken.hint]))
    elif difference := target_difference(manifests, ledger, held, name, load_epoch=load_epoch):
        differences.append(difference)
        reset = f"floodmark watermark reset -t {table} --load-only, then sync"
        hints = (*hints, f"load it again: {reset}")
    return structs.replace(
        findings,
        differences=(*findings.differences, *differences),
        hints=hints,
        repairable=findings.repairable or repairable,
        loaded_manifests=len(ledger),
        loaded_rows=sum(entry.rows for entry in ledger),
        target_rows=held,
    )


def _look(
    loading: Loading, table: TableName, watermark: Watermark, manifests: list[Manifest]
) -> tuple[list[LedgerEntry], int | None, FloodmarkError | None]:
    """Return the ledger, the number of rows in the target table, and why loads are refused."""
    if loading.target_missing():
        return [], None, None  # opening it would create it
    chunks = chunks_in(manifests)
    with loading.open_target() as target:
        load_epoch, name = watermark.redshift_state.load_epoch, loading.target_name
        ledger = target.ledger(str(table), load_epoch)
        held = target.count(target_table(name, chunks[-1])) if chunks else None
        try:
            target.check_owner(str(table), load_epoch, name)
        except (SchemaConflict, TargetTaken) as error:
            return ledger, held, error
        return ledger, held, None


def _read(store: WatermarkStore, table: TableName) -> Watermark | None:
    """Read a table's watermark; None if there is none, or it cannot be read."""
    with suppress(StateError):
        return store.get(table, write_back=False)
    return None


def _remarked(findings: Findings, remark: str) -> Findings:
    return structs.replace(findings, remarks=(*findings.remarks, remark))
