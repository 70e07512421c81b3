"""Transitions of a watermark by manifests, as pure functions.

Stage 1 changes only by manifests: `record` turns a change into the next manifest of a table, and
`checkpoint` applies that manifest to the watermark. A failure changes the status and error, never
the position. The other stages are in `load_transitions`, `verification_transitions` and
`reconciled_state`.
"""

from datetime import datetime

from msgspec import Struct, structs

from floodmark.errors import CorruptLog, IllegalTransition
from floodmark.model.history import RowsBefore
from floodmark.model.load_transitions import load_state_after
from floodmark.model.log_state import LogState, ManifestId, Metadata, MysqlState
from floodmark.model.manifest import Change, Chunk, Import, Manifest, Reset, Restore, Set
from floodmark.model.reconciled_state import after_change
from floodmark.model.unfilled_columns import unfilled_after
from floodmark.model.verification_transitions import verified_state_after
from floodmark.model.watermark import Watermark

FIRST_AFTER_LOSS = 1_000_000
"""Epochs from here on began after a loss; nobody resets a table so often."""


class Authorship(Struct, frozen=True):
    """Who changes something, in which session, and when."""

    session_id: str
    author: str
    now: datetime


def record(watermark: Watermark, change: Change, by: Authorship) -> Manifest:
    """Return the manifest that records a change to a watermark."""
    head = watermark.log_state.next_head
    is_new = isinstance(change, Chunk) and (change.reconciled is not None or change.inherited)
    return Manifest(
        version=2 if is_new else 1,
        table_name=watermark.table_name,
        epoch=head.epoch,
        sequence=head.sequence,
        created_at=by.now,
        session_id=by.session_id,
        author=by.author,
        change=change,
        standing=_log_state_after(watermark, change, by),
    )


def checkpoint(watermark: Watermark, manifest: Manifest) -> Watermark:
    """Apply the next manifest to a watermark; CorruptLog if it is not the next one."""
    if begins_after_loss(watermark, manifest):
        return after(watermark, manifest)
    by = Authorship(manifest.session_id, manifest.author, manifest.created_at)
    expected = record(watermark, manifest.change, by)
    if (expected.table_name, expected.head, _facts(expected.standing)) != (
        manifest.table_name,
        manifest.head,
        _facts(manifest.standing),
    ):
        raise CorruptLog(
            f"manifest {manifest.head} of {manifest.table_name} does not follow"
            f" {watermark.head} of {watermark.table_name}",
            hint="a manifest was removed or replaced; 'watermark validate' lists what exists",
        )
    return after(watermark, manifest)


def begins_after_loss(watermark: Watermark, manifest: Manifest) -> bool:
    """Return whether a manifest begins an epoch that does not follow by resets.

    After a loss the log continues in an epoch that is the number of minutes since 1970.
    """
    later = manifest.epoch > watermark.epoch + 1 and manifest.epoch >= FIRST_AFTER_LOSS
    return later and manifest.sequence == 1 and manifest.table_name == watermark.table_name


def _facts(log_state: LogState) -> LogState:
    """Clear the fields that change without a manifest."""
    state = structs.replace(
        log_state.mysql_state,
        status="pending",
        error=None,
        server=None,
        before_start=None,
        steered=False,  # earlier versions did not store this and the next two
        day=None,
        day_rows=0,
    )
    return structs.replace(log_state, mysql_state=state)


def after(watermark: Watermark, manifest: Manifest) -> Watermark:
    """Return the watermark after a manifest, whatever the watermark was before it.

    This rebuilds a watermark from the last manifest alone. A manifest does not contain how much of
    the current load epoch is loaded; the ledger does.
    """
    log_state = manifest.standing
    return structs.replace(
        watermark,
        epoch=log_state.epoch,
        session_id=manifest.session_id,
        backup_strategy=log_state.backup_strategy,
        mysql_state=log_state.mysql_state,
        metadata=log_state.metadata,
        redshift_state=load_state_after(watermark.redshift_state, manifest),
        verified_state=verified_state_after(watermark, manifest),
        reconciled_state=after_change(
            watermark.reconciled_state,
            manifest.change,
            new_load_epoch=log_state.load_epoch != watermark.redshift_state.load_epoch,
        ),
    )


def _log_state_after(watermark: Watermark, change: Change, by: Authorship) -> LogState:
    """Return the log state once the change is the next manifest."""
    state = structs.replace(watermark.mysql_state, error=None)
    before = structs.replace(watermark.log_state, mysql_state=state)
    head = before.next_head
    match change:
        case Chunk():
            same_session = watermark.session_id == by.session_id
            log_state = _after_chunk(before, change, by, same_session=same_session)
        case Set():
            log_state = structs.replace(
                before,
                backup_strategy="manual_cli",
                mysql_state=_moved(before.mysql_state, change),
                metadata=_manual(before.metadata, by.now),
            )
        case Import():
            log_state = structs.replace(
                before,
                backup_strategy=change.strategy,
                mysql_state=structs.replace(
                    _moved(before.mysql_state, change), last_extraction_time=change.extraction_time
                ),
                metadata=structs.replace(
                    _manual(before.metadata, change.manual_set_at), imported_from=change.origin
                ),
            )
        case Reset():
            return _after_reset(before, change, head)
        case Restore():
            log_state = _after_restore(before, change)
    return structs.replace(
        log_state,
        mysql_state=structs.replace(
            log_state.mysql_state, last_sequence=head.sequence, last_manifest=str(head)
        ),
    )


def _after_chunk(before: LogState, chunk: Chunk, by: Authorship, *, same_session: bool) -> LogState:
    state = before.mysql_state
    if chunk.only_columns:  # nothing was read, and it does not count
        state = structs.replace(state, status="success")
        return structs.replace(before, backup_strategy=chunk.strategy, mysql_state=state)
    rows = state.total_rows + chunk.extracted_rows
    chunks = state.chunk_count + (0 if chunk.reconciled else 1)
    seconds = before.metadata.total_processing_time_seconds + chunk.seconds
    day = state.day if chunk.reconciled else f"{by.now:%Y-%m-%d}"
    counted = structs.replace(
        state,
        total_rows=rows,
        quarantined_rows=state.quarantined_rows + chunk.quarantined_rows,
        day=day,
        day_rows=chunk.extracted_rows + (state.day_rows if state.day == day else 0),
        s3_file_count=state.s3_file_count + len(chunk.loaded_files),
        s3_bytes=state.s3_bytes + chunk.bytes,
        chunk_count=chunks,
        unfilled=unfilled_after(state.unfilled, chunk),
    )
    if chunk.reconciled:  # rows of any position, read before; the position stays as it is
        marked = chunk.reconciled.deleted_at or state.deleted_at
        if state.deleted_at not in (None, marked):
            raise IllegalTransition(
                f"deleted rows are marked in the column {state.deleted_at}, not in {marked}"
            )
        part = chunk.reconciled.backfill
        if part is not None:
            ended = part.reached == part.last
            counted = structs.replace(counted, backfill=None if ended else part)
        return structs.replace(before, mysql_state=structs.replace(counted, deleted_at=marked))
    if chunk.adopted:  # nothing was read, and the position stays as it is
        metadata = structs.replace(before.metadata, average_batch_size=rows // chunks)
        return structs.replace(before, mysql_state=counted, metadata=metadata)
    return structs.replace(
        before,
        backup_strategy=chunk.strategy,
        mysql_state=structs.replace(
            counted,
            status="success" if chunk.final else "in_progress",
            last_timestamp=chunk.end.timestamp,
            last_id=chunk.end.id,
            walk=chunk.end.walk,
            last_extraction_time=by.now,
            last_session_rows=chunk.rows + (state.last_session_rows if same_session else 0),
            server=chunk.server,
            clock=chunk.clock,
            cursor=chunk.cursor,
            inherited=state.inherited or chunk.inherited,
        ),
        metadata=structs.replace(
            _manual(before.metadata, None),
            total_processing_time_seconds=seconds,
            average_batch_size=rows // chunks,
        ),
    )


def _after_reset(before: LogState, change: Reset, head: ManifestId) -> LogState:
    """Open the next epoch; a stage that is not reset keeps its state."""
    epoch = before.epoch + 1
    extract, load = "extract" in change.stages, "load" in change.stages
    # The target keeps its rows, so deleted ones are still marked there.
    fresh = MysqlState(counted_from_epoch=epoch, deleted_at=before.mysql_state.deleted_at)
    state = fresh if extract else before.mysql_state
    return LogState(
        epoch=epoch,
        backup_strategy="sequential" if extract else before.backup_strategy,
        mysql_state=structs.replace(state, last_sequence=0, last_manifest=str(head)),
        metadata=Metadata() if extract else before.metadata,
        eligible_from_epoch=epoch if extract and load else before.eligible_from_epoch,
        load_epoch=epoch if load else before.load_epoch,
    )


def _after_restore(before: LogState, change: Restore) -> LogState:
    """Restore the earlier position and eligible epochs; the log continues where it is."""
    average = change.rows // change.chunk_count if change.chunk_count else 0
    return structs.replace(
        change.earlier,
        epoch=before.epoch,
        mysql_state=structs.replace(
            change.earlier.mysql_state,
            error=None,
            steered=True,
            deleted_at=before.mysql_state.deleted_at,
            total_rows=change.rows,
            quarantined_rows=change.quarantined_rows,
            s3_file_count=change.files,
            s3_bytes=change.bytes,
            chunk_count=change.chunk_count,
        ),
        metadata=structs.replace(change.earlier.metadata, average_batch_size=average),
    )


def _moved(state: MysqlState, change: Set | Import) -> MysqlState:
    position = change.position
    return structs.replace(
        state,
        status="pending",
        last_timestamp=position.timestamp,
        last_id=position.id,
        walk=position.walk,
        server=None,  # an operator's position belongs to no server, and to the current clock
        clock=None,
        cursor=change.cursor if isinstance(change, Set) else None,
        steered=isinstance(change, Set),
    )


def _manual(metadata: Metadata, set_at: datetime | None) -> Metadata:
    return structs.replace(metadata, manual_watermark=set_at is not None, manual_set_at=set_at)


def extract_started(watermark: Watermark) -> Watermark:
    """Record that stage 1 is running.

    Save this before a table's first data file is written: data files without a watermark look like
    a total loss of the state.
    """
    state = structs.replace(watermark.mysql_state, status="in_progress", error=None)
    return structs.replace(watermark, mysql_state=state)


def history_counted(watermark: Watermark, before: RowsBefore | None) -> Watermark:
    """Record the rows before a table's start position; do nothing if they are the same."""
    known = watermark.mysql_state.before_start
    if known and before and structs.replace(before, counted_at=known.counted_at) == known:
        return watermark
    state = structs.replace(watermark.mysql_state, before_start=before)
    return structs.replace(watermark, mysql_state=state)


def marks_found(watermark: Watermark, column: str | None) -> Watermark:
    """Record the target's column in which another tool has marked deleted rows, if there is one."""
    if column is None:
        return watermark
    state = structs.replace(watermark.mysql_state, deleted_at=column)
    return structs.replace(watermark, mysql_state=state)


def nothing_new(watermark: Watermark, server: str | None = None) -> Watermark:
    """Record that a run found nothing to extract on a server; clear an earlier failure."""
    state = structs.replace(
        watermark.mysql_state,
        error=None,
        server=server if watermark.mysql_state.server else None,
    )
    if state.status in ("failed", "in_progress"):
        state = structs.replace(state, status="success")
    return structs.replace(watermark, mysql_state=state)


def extract_failed(watermark: Watermark, error: str) -> Watermark:
    """Record that stage 1 failed; keep the position."""
    state = structs.replace(watermark.mysql_state, status="failed", error=error)
    return structs.replace(watermark, mysql_state=state)
