"""Recover the state of tables from the mirror."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Self

from msgspec import Struct

from floodmark.api.arguments import Names, as_list
from floodmark.api.context import RunContext
from floodmark.api.loading import loading_of
from floodmark.errors import (
    FloodmarkError,
    MirrorConflict,
    PartialFailure,
    UsageError,
    WriteConflict,
)
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal
from floodmark.model.table import TableName
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.mirror_copy import (
    LakeIdentity,
    check_same,
    copy_folder,
    copy_object,
    get,
    read_identity,
    read_mirror_identity,
)
from floodmark.storage.objects import ObjectStore
from floodmark.sync.recover import TableRecovery, failed_recovery, recover_table
from floodmark.tunnels.tunnel import Tunnels

__all__ = ["RecoveryResult", "TableRecovery", "recover_tables"]

_AT_ONCE = 8


class RecoveryResult(Struct, frozen=True, kw_only=True):
    """What was recovered of each table, or would be; `records` counts run and recovery records."""

    tables: tuple[TableRecovery, ...]
    records: int = 0
    dry_run: bool = False

    def raise_for_failures(self) -> Self:
        """Return the result, or raise an error if a table failed."""
        failures = [table for table in self.tables if table.error]
        if not failures:
            return self
        reasons = "; ".join(f"{t.table_name}: {t.error.message}" for t in failures if t.error)
        hint = next((t.error.hint for t in failures if t.error and t.error.hint), None)
        kind = FloodmarkError if len(failures) == len(self.tables) else PartialFailure
        raise kind(reasons, hint=hint)


def recover_tables(
    run: RunContext,
    mirror: ObjectStore,
    tables: Names,
    pipelines: Names,
    *,
    dry_run: bool,
    plan: RecoveryResult | None = None,
) -> RecoveryResult:
    """Recover tables, by default all in the mirror; `run` must use the lake without its mirror.

    Tables that lack nothing according to a `plan`, the result of a dry run, are not read again.
    """
    lake = run.store.objects
    identity = _check_mirror(lake, mirror)
    chosen = _chosen(run, mirror, tables, pipelines)
    planned = plan.tables if plan else ()
    complete = {one.table_name: one for one in planned if not (one.changed or one.error)}
    with Tunnels(run.folder) as tunnels:

        def recover(table: TableName) -> TableRecovery:
            if (known := complete.get(str(table))) is not None:
                return known
            try:
                loading = loading_of(run, table, tunnels) if table in run.config.tables else None
                return recover_table(run.store, mirror, table, loading, dry_run=dry_run)
            except FloodmarkError as error:
                return failed_recovery(table, error)

        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            found = tuple(pool.map(recover, chosen))
    records = 0
    if not dry_run and not any(isinstance(table.error, MirrorConflict) for table in found):
        records = _restore_records(lake, mirror, chosen)
        with suppress(WriteConflict):
            lake.put_if_absent(lake_layout.LAKE, seal(identity))
    return RecoveryResult(tables=found, records=records, dry_run=dry_run)


def _check_mirror(lake: ObjectStore, mirror: ObjectStore) -> LakeIdentity:
    theirs, ours = read_mirror_identity(mirror), read_identity(lake)
    if theirs is None:
        raise MirrorConflict(f"{mirror} is not a mirror", hint="check 'mirror:'")
    if ours is not None:
        check_same(lake, mirror, ours, theirs)
    return ours or LakeIdentity(id=theirs.id, created_at=theirs.created_at)


def _chosen(
    run: RunContext, mirror: ObjectStore, tables: Names, pipelines: Names
) -> list[TableName]:
    keys = (info.key for info in mirror.list_objects(lake_layout.PRIMARIES))
    saved = {table for key in keys if (table := lake_layout.table_of_primary(key))}
    known = {*saved, *ManifestLog(mirror).tables()}
    if tables is None and pipelines is None:
        return sorted(known)
    given = [TableName.parse(n) if ":" in n else run.table(n) for n in as_list("tables", tables)]
    if unknown := [str(table) for table in given if table not in known]:
        raise UsageError(f"the mirror has no state of {', '.join(unknown)}")
    listed = run.selected(None, pipelines) if pipelines is not None else []
    return sorted({*given, *listed} & known)


def _restore_records(lake: ObjectStore, mirror: ObjectStore, tables: Iterable[TableName]) -> int:
    """Bring back run and recovery records, and the system watermark, if they are missing."""
    folders = [lake_layout.RUNS, *map(lake_layout.recoveries, tables)]
    count = sum(len(copy_folder(mirror, lake, folder)) for folder in folders)
    if get(lake, lake_layout.SYSTEM) is None:
        copy_object(mirror, lake, lake_layout.SYSTEM)
    return count
