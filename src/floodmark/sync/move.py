"""Rename a table: its log, position and ledger continue under the new name.

    both leases → check that the ledger has only one name → 1. new name: "being moved"
    → 2. old name: "moved" → 3. copy the log → 4. ledger, in one transaction
    → 5. the watermark under the new name

Data files stay where they are: manifests have their paths. Each step can be repeated, so running
the command again completes an interrupted move. State after a crash:

after 1   The new name is refused. The old one works as before, and its log may still grow.
after 2   Both names are refused, so the log no longer grows.
in 3      Likewise. Copies are always the same, and are written only if absent.
after 4   Likewise. The ledger, and so the target table, belongs to the new name.
after 5   The new name continues from the old one's position. The old one is refused for good.

A run that still had the old name's lease can at most append to the old log, which is no longer
read: the new name reads the same rows. It cannot load: in the ledger, the target table belongs to
the new name.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from msgspec import structs

from floodmark.errors import UsageError, WriteConflict
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal, unseal
from floodmark.model.load import RenamedManifest
from floodmark.model.manifest import Manifest
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark, empty_watermark
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.loading import Loading
from floodmark.warehouse.target import Target


def check_move(store: WatermarkStore, old: TableName, new: TableName) -> bool:
    """Whether there is anything to move; UsageError, before any change, if that is not possible."""
    if old == new:
        raise UsageError(f"{old} has that name already")
    before, there = store.saved(old), store.saved(new)
    if store.log.is_empty(old):
        raise UsageError(f"{old} has no state in the lake", hint="see 'floodmark watermark list'")
    if before is not None and before.moved_to not in (None, str(new)):
        raise UsageError(f"{old} was moved to {before.moved_to}")
    if there is not None and there.moving_from not in (None, str(old)):
        raise UsageError(f"{new} is being moved from {there.moving_from}")
    # Moving back to a former name, whose log is a copy of this one.
    begun = there is not None and str(old) in (there.moving_from, there.moved_to)
    if not begun and not store.log.is_empty(new):
        if before is not None and before.moved_to == str(new):
            return False
        raise UsageError(
            f"{new} has manifests of its own: two logs cannot be merged",
            hint=f"keep {old} under a name that was never synced",
        )
    return True


def move_table(store: WatermarkStore, old: TableName, new: TableName, loading: Loading) -> bool:
    """Rename a table, or complete an interrupted move; False if that is already done.

    `loading` is for the new name.
    """
    with store.lease(old), store.lease(new):
        if not check_move(store, old, new):
            return False
        store.get(old)
        with _target(loading) as target:
            if target:
                target.check_rename(str(old), str(new))
        begun = store.saved(new)
        if begun is None or begun.moving_from is None:
            fresh = empty_watermark(new, loading.session_id, store.now())
            store.take_over(new, structs.replace(fresh, moving_from=str(old)))
        current = store.update(old, lambda now: structs.replace(now, moved_to=str(new)))
        renamed = list(_copy_log(store, old, new))
        _copy_quarantine(store, old, new)
        with _target(loading) as target:
            if target:
                target.rename_source(str(old), str(new), renamed)
        store.take_over(new, _renamed(current, new))
    return True


def _target(loading: Loading) -> AbstractContextManager[Target | None]:
    """Open the target; None if it does not exist yet."""
    return nullcontext() if loading.target_missing() else loading.open_target()


def _copy_log(store: WatermarkStore, old: TableName, new: TableName) -> Iterator[RenamedManifest]:
    """Copy every manifest, and yield its new name for the ledger."""
    for manifest in store.log.manifests(old):
        head = manifest.head
        copy = structs.replace(manifest, table_name=str(new))
        try:
            store.log.append(new, copy)
        except WriteConflict:
            if _sealed(copy) != store.log.read(new, head):
                raise UsageError(
                    f"manifest {head} of {new} is not a copy of the one of {old}",
                    hint=f"keep {old} under a name that was never synced",
                ) from None
        yield RenamedManifest(
            head=head,
            before=manifest.checksum,
            digest=_sealed(copy).checksum,
            manifest=lake_layout.manifest(new, head),
        )


def _sealed(manifest: Manifest) -> Manifest:
    found: Manifest = unseal(seal(manifest), Manifest, name=str(manifest.head))
    return found


def _copy_quarantine(store: WatermarkStore, old: TableName, new: TableName) -> None:
    """Copy the quarantined rows to the new name's folder."""
    folder = lake_layout.quarantine_of(old)
    for info in store.objects.list_objects(folder):
        key = lake_layout.quarantine_of(new) + info.key.removeprefix(folder)
        store.objects.put(key, store.objects.get(info.key).data)


def _renamed(watermark: Watermark, new: TableName) -> Watermark:
    return structs.replace(watermark, table_name=str(new), moved_to=None, moving_from=None)
