"""List and remove the data files of tables in the lake."""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta

from msgspec import Struct

from floodmark.api.arguments import Table, expect, expect_flags
from floodmark.api.context import RunContext
from floodmark.errors import StateError
from floodmark.model import lake_layout
from floodmark.model.manifest import chunks_in
from floodmark.model.table import TableName
from floodmark.model.timestamps import moved
from floodmark.state.operator_changes import history
from floodmark.state.removable_files import LakeFile, choose_removable, describe_files

__all__ = ["CleanResult", "Lake", "LakeFile"]


class CleanResult(Struct, frozen=True, kw_only=True):
    """The files that were removed, and those old enough that were kept, with their protection."""

    table_name: str
    dry_run: bool
    removed: tuple[LakeFile, ...]
    protected: tuple[LakeFile, ...]


class Lake:
    """The data files of a project. Every call reads the current state; all are thread-safe."""

    def __init__(self, new_run: Callable[[], RunContext]) -> None:
        self._new_run = new_run

    def tables(self) -> tuple[TableName, ...]:
        """Return the tables that have manifests in the lake, configured or not."""
        return tuple(self._new_run().store.log.tables())

    def files(self, table: Table) -> tuple[LakeFile, ...]:
        """Return a table's data files: loaded, pending, and orphans without a manifest."""
        run = self._new_run()
        return tuple(_files(run, run.table(table), write_back=True))

    def clean(
        self,
        table: Table,
        *,
        older_than: timedelta | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> CleanResult:
        """Remove a table's data files; keep those not loaded yet, or perhaps being written.

        older_than   only files that are older
        force        also remove files that are protected
        dry_run      remove nothing; the result shows what would be removed
        """
        expect("older_than", older_than, timedelta, optional=True)
        expect_flags(force=force, dry_run=dry_run)
        run = self._new_run()
        name = run.table(table)
        limit = None if older_than is None else moved(run.now(), -older_than)
        # While we hold the lease, no run can write files that have no manifest yet.
        with nullcontext() if dry_run else run.store.lease(name):
            # The files of a moved table belong to its new name, whose log knows which are needed.
            if (watermark := run.store.get(name, write_back=not dry_run)) is not None:
                watermark.refuse_moved()
            files = _files(run, name, write_back=not dry_run)
            removable, protected = choose_removable(files, older_than=limit, force=force)
            for file in removable if not dry_run else []:
                run.store.objects.delete(file.path)
        return CleanResult(
            table_name=str(name),
            dry_run=dry_run,
            removed=tuple(removable),
            protected=tuple(protected),
        )


def _files(run: RunContext, table: TableName, *, write_back: bool) -> list[LakeFile]:
    objects, now = run.store.objects, run.now()
    watermark = run.store.get(table, write_back=write_back)
    manifests = history(run.store, table)
    named = {file.path for chunk in chunks_in(manifests) for file in chunk.loaded_files}
    found = {
        info.key: info
        for own in (lake_layout.data_files(table), lake_layout.deletes_of(table))
        for info in objects.list_objects(own)
    }
    for folder in lake_layout.folders_elsewhere(table, named):
        _refuse_files_of_another(run, table, folder)
        found |= {info.key: info for info in objects.list_objects(folder) if info.key in named}
    if table in run.config.tables:
        scratch = lake_layout.unload_folder(run.config.target_of(table)[1])
        found |= {info.key: info for info in objects.list_objects(scratch)}
    return describe_files(found.values(), manifests, watermark, now=now)


def _refuse_files_of_another(run: RunContext, table: TableName, folder: str) -> None:
    """Raise StateError if a log names files of another table, except of its own former name."""
    owner = lake_layout.table_of_data_file(folder)
    watermark = run.store.saved(owner) if owner else None
    if watermark is not None and watermark.moved_to is None:
        raise StateError(
            f"the log of {table} names files of {owner}; nothing was removed",
            hint="restore the original manifests of the table",
        )
