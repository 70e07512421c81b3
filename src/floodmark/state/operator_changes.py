"""Operator changes to a table's position: set, reset, restore."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

import msgspec
from msgspec import Struct, structs

from floodmark.errors import CorruptDocument, StateError, UsageError
from floodmark.model.checksummed_json import read_object, unseal
from floodmark.model.cursor import CursorColumn
from floodmark.model.log_state import LogState, ManifestId
from floodmark.model.manifest import Change, Loaded, Manifest, Reset, Restore, Set
from floodmark.model.position import Position
from floodmark.model.run import Stage
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark, extracted_not_after
from floodmark.state.double_load_check import without_repetition
from floodmark.state.watermark_repair import begin_again
from floodmark.state.watermark_store import WatermarkStore


class PreparedRestore(Struct, frozen=True, kw_only=True):
    """A checked restore: the position that commit() goes back to."""

    position: Position
    commit: Callable[[], Watermark]


def set_position(
    store: WatermarkStore,
    table: TableName,
    position: Position,
    kept: Callable[[Sequence[CursorColumn]], bool] = lambda _known: True,
) -> Watermark:
    """Set a table's position by hand, even if its state was lost.

    `kept` returns whether the position belongs to the table's known cursor.
    """

    def change(current: Watermark) -> Set:
        known = current.mysql_state.cursor
        if known is None or not kept(known):
            return Set(position=position)
        # The position is by the columns as they are now, whatever their types were before.
        return Set(position=position, cursor=tuple(CursorColumn(c.name) for c in known))

    with store.lease(table):
        _make_readable(store, table)
        return store.commit(
            table, lambda now: without_repetition(store.log, table, now, change(now))
        )


def reset(store: WatermarkStore, table: TableName, stages: Sequence[Stage]) -> Watermark:
    """Reset one stage or both to the start, even if the state was lost."""
    with store.lease(table):
        _make_readable(store, table)
        change = Reset(stages=tuple(stages))
        return store.commit(table, lambda now: without_repetition(store.log, table, now, change))


def refuse_repetition(store: WatermarkStore, table: TableName, change: Change) -> None:
    """Raise UsageError if a change would load rows without a key twice; call before prompting."""
    with suppress(StateError):
        if (current := store.get(table)) is not None:
            without_repetition(store.log, table, current, change)


def prepare_restore(store: WatermarkStore, table: TableName, head: ManifestId) -> PreparedRestore:
    """Prepare to restore the state right after a manifest."""
    if head not in store.log.heads(table, since=head):
        raise UsageError(
            f"{table} has no state {head}", hint=f"see floodmark watermark history -t {table}"
        )
    earlier = store.log.read(table, head).standing
    start = Loaded(head=ManifestId(earlier.eligible_from_epoch, 0), rows=0, time=None)
    return _prepare(store, table, earlier, start, origin=str(head))


def prepare_restore_document(
    store: WatermarkStore, table: TableName, data: bytes, *, name: str
) -> PreparedRestore:
    """Prepare to restore a watermark that was saved with `watermark get --json`."""
    try:
        earlier: Watermark = unseal(_without_files(data), Watermark, name=name)
    except CorruptDocument as error:
        raise UsageError(
            error.message, hint="it must be the output of 'floodmark watermark get -t T --json'"
        ) from error
    if earlier.table_name != str(table):
        raise UsageError(f"{name} is the watermark of {earlier.table_name}, not of {table}")
    state = earlier.redshift_state
    loaded = Loaded(
        head=earlier.loaded_head,
        rows=state.total_rows,
        time=state.last_load_time,
        quarantined_rows=state.quarantined_rows,
        deleted_rows=state.deleted_rows,
    )
    origin = f"revision {earlier.revision}"
    return _prepare(store, table, earlier.log_state, loaded, origin=origin)


def _without_files(data: bytes) -> bytes:
    """Remove the keys that `get --show-files` adds to the document."""
    try:
        content = read_object(data, name="")
    except CorruptDocument:
        return data
    for added in ("files", "quarantine"):
        content.pop(added, None)
    return msgspec.json.encode(content)


def history(store: WatermarkStore, table: TableName, most: int | None = None) -> list[Manifest]:
    """Return a table's manifests, newest first."""
    return list(islice(store.log.manifests(table, newest_first=True), most))


def _prepare(
    store: WatermarkStore, table: TableName, earlier: LogState, loaded: Loaded, *, origin: str
) -> PreparedRestore:
    # The machine that wrote the state may have had a clock that was ahead.
    now = store.now()
    state = extracted_not_after(earlier.mysql_state, now)
    earlier = structs.replace(earlier, mysql_state=state)
    loaded = structs.replace(loaded, time=loaded.time and min(loaded.time, now))

    def refuse_unless_earlier(current: Watermark) -> None:
        if earlier.head > current.head:
            raise UsageError(
                f"{origin} of {table} is not an earlier state: the log ends at {current.head}"
            )

    def change(current: Watermark) -> Change:
        refuse_unless_earlier(current)
        restore = counted_restore(store, table, earlier, loaded, origin)
        return without_repetition(store.log, table, current, restore)

    def commit() -> Watermark:
        with store.lease(table):
            _make_readable(store, table)
            return store.commit(table, change)

    with suppress(StateError):
        if (current := store.get(table)) is not None:
            change(current)  # refuse before prompting
    return PreparedRestore(position=earlier.mysql_state.position, commit=commit)


def counted_restore(
    store: WatermarkStore,
    table: TableName,
    earlier: LogState,
    loaded: Loaded,
    origin: str,
    lost_deletes: int = 0,
) -> Restore:
    """Return the change that restores a state, with the counts of all chunks that count in it."""
    first = ManifestId(earlier.mysql_state.counted_from_epoch, 0)
    chunks = [c for c in store.log.chunks(table, since=first) if not c.only_columns]
    return Restore(
        origin=origin,
        earlier=earlier,
        loaded=loaded,
        lost_deletes=lost_deletes,
        chunk_count=sum(1 for chunk in chunks if not chunk.reconciled),
        rows=sum(chunk.extracted_rows for chunk in chunks),
        files=sum(len(chunk.loaded_files) for chunk in chunks),
        bytes=sum(chunk.bytes for chunk in chunks),
        quarantined_rows=sum(chunk.quarantined_rows for chunk in chunks),
    )


def _make_readable(store: WatermarkStore, table: TableName) -> None:
    """Begin a new log if the state is lost: setting a position by hand must still work."""
    try:
        if (watermark := store.get(table)) is not None:
            watermark.refuse_moved()
    except StateError:
        begin_again(store, table)
