"""`floodmark s3clean`: list and remove data files in the lake."""

from collections import Counter
from collections.abc import Sequence

import click

from floodmark.api.lake import LakeFile
from floodmark.cli.app import App, command_options, table_option
from floodmark.cli.terminal import Column
from floodmark.cli.terminal import table as table_of
from floodmark.errors import FloodmarkError
from floodmark.model.durations import parse_duration
from floodmark.model.formatting import counted, size
from floodmark.model.notice import Notice
from floodmark.model.timestamps import stamped

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
    texts, values = [], list[LakeFile]()
    for table in app.tables(names):
        files = app.lake.files(table)
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
    older_than = parse_duration(age, like="12h, 7d or 2w") if age else None
    texts, removed, refused = [], list[LakeFile](), list[LakeFile]()
    for table in app.tables(names):
        result = app.lake.clean(table, older_than=older_than, force=force, dry_run=dry_run)
        done = "would remove" if dry_run else "removed"
        texts.append(f"{table}: {done} {_summary(result.removed)}")
        removed += result.removed
        refused += result.protected
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


def _summary(files: Sequence[LakeFile]) -> str:
    states = [f"{sum(f.state == s for f in files):,} {s}" for s in ("loaded", "pending", "orphan")]
    total = size(sum(file.bytes for file in files))
    return f"{counted(len(files), 'file')}, {total} ({', '.join(states)})"
