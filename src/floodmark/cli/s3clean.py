"""`floodmark s3clean`: list and remove data files in the lake."""

from collections import Counter
from contextlib import nullcontext

import click

from floodmark.cli.app import App, command_options, table_option
from floodmark.cli.terminal import Column
from floodmark.cli.terminal import table as table_of
from floodmark.errors import FloodmarkError, StateError
from floodmark.model import lake_layout
from floodmark.model.durations import parse_duration
from floodmark.model.formatting import counted, size
from floodmark.model.lake_layout import unload_folder
from floodmark.model.manifest import Chunk
from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped
from floodmark.state.operator_changes import history
from floodmark.state.removable_files import LakeFile, choose_removable, describe_files

_COLUMNS = [
    Column(title="FILE", least=24),
    Column(title="ROWS", right=True),
    Column(title="BYTES", right=True, spare=3),
    Column(title="WRITTEN", spare=2),
    Column(title="STATE"),
]


@click.group()
def s3clean() -> None:
    """List and remove data files in the lake."""


@s3clean.command(name="list")
@table_option(required=True)
@command_options
def list_files(app: App, names: tuple[str, ...]) -> None:
    """List a table's data files: loaded, pending, and orphans without a manifest."""
    texts, values = [], []
    for table in app.tables(names):
        files = _files(app, table)
        values += files
        rows = [
            [
                file.path,
                "" if file.rows is None else f"{file.rows:,}",
                f"{file.bytes:,}",
                stamped(file.modified),
                file.state,
            ]
            for file in files
        ]
        texts.append(table_of(_COLUMNS, rows) if rows else "")
        texts.append(f"{table}: {_summary(files)}")
    app.print("\n".join(filter(None, texts)), values)


@s3clean.command()
@table_option(required=True)
@click.option("--older-than", "age", metavar="AGE", help="Only files older than 12h, 7d, 2w …")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@click.option("--force", is_flag=True, help="Also remove files that are not loaded yet.")
@command_options
def clean(app: App, names: tuple[str, ...], age: str | None, *, dry_run: bool, force: bool) -> None:
    """Remove a table's data files; keep those not loaded yet, or perhaps being written."""
    older_than = app.run.clock() - parse_duration(age, like="12h, 7d or 2w") if age else None
    texts, removed, refused = [], [], []
    for table in app.tables(names):
        # While we hold the lease, no run can write files that have no manifest yet.
        with nullcontext() if dry_run else app.store.lease(table):
            # The files of a moved table belong to its new name, whose log knows which are needed.
            if (watermark := app.store.get(table, write_back=not dry_run)) is not None:
                watermark.refuse_moved()
            files = _files(app, table, write_back=not dry_run)
            removable, protected = choose_removable(files, older_than=older_than, force=force)
            for file in removable if not dry_run else []:
                app.store.objects.delete(file.path)
        done = "would remove" if dry_run else "removed"
        texts.append(f"{table}: {done} {_summary(removable)}")
        removed += removable
        refused += protected
    app.print("\n".join(texts), {"dry_run": dry_run, "removed": removed, "protected": refused})
    kept = Counter(file.protection for file in refused)
    if recent := kept["perhaps being written"]:
        app.report(Notice("info", f"kept {counted(recent, 'file')} that a run may still commit"))
    if foreign := kept["not ours"]:
        app.warn(f"kept {counted(foreign, 'file')} not written by Floodmark")
    if unloaded := kept["not loaded"]:
        raise FloodmarkError(
            f"kept {counted(unloaded, 'file')} not loaded yet",
            hint="load them first, or add --force to discard them",
        )


def _files(app: App, table: TableName, *, write_back: bool = True) -> list[LakeFile]:
    objects, now = app.store.objects, app.run.clock()
    watermark = app.store.get(table, write_back=write_back)
    manifests = history(app.store, table)
    named = {f.path for m in manifests if isinstance(m.change, Chunk) for f in m.change.files}
    found = {info.key: info for info in objects.list_objects(lake_layout.data_files(table))}
    for folder in lake_layout.folders_elsewhere(table, named):
        _refuse_files_of_another(app, table, folder)
        found |= {info.key: info for info in objects.list_objects(folder) if info.key in named}
    if table in app.config.tables:
        scratch = unload_folder(app.config.target_of(table)[1])
        found |= {info.key: info for info in objects.list_objects(scratch)}
    return describe_files(found.values(), manifests, watermark, now=now)


def _refuse_files_of_another(app: App, table: TableName, folder: str) -> None:
    """Raise StateError if a log names files of another table, except of its own former name."""
    owner = lake_layout.table_of_data_file(folder)
    watermark = app.store.saved(owner) if owner else None
    if watermark is not None and watermark.moved_to is None:
        raise StateError(
            f"the log of {table} names files of {owner}; nothing was removed",
            hint="restore the original manifests of the table",
        )


def _summary(files: list[LakeFile]) -> str:
    states = [f"{sum(f.state == s for f in files):,} {s}" for s in ("loaded", "pending", "orphan")]
    total = size(sum(file.bytes for file in files))
    return f"{counted(len(files), 'file')}, {total} ({', '.join(states)})"
