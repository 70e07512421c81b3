"""Refuse loads that would lose or duplicate rows in the target."""

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec import structs

from floodmark.errors import FloodmarkError, SchemaConflict
from floodmark.model.load import TargetTable
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest, chunks_in
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
from floodmark.planning.key_change import key_change
from floodmark.planning.load_batches import filled_since, target_table
from floodmark.state.manifest_log import ManifestLog
from floodmark.warehouse.target import Target


def load_again_hint(table: TableName, name: str) -> str:
    """Return how to load a table whose columns cannot be made to match."""
    return (
        f"drop {name} in the target, then 'floodmark watermark reset -t {table} --load-only"
        " --force' and sync load all of it from the lake"
    )


def read_into_new_hint(table: TableName, name: str) -> str:
    """Return how to read a table whose rows have another key now."""
    return (
        f"drop {name} in the target, then 'floodmark watermark reset -t {table} --force' and sync"
        " read it again"
    )


def refuse_loading_twice(
    log: ManifestLog, table: TableName, target: Target, name: str, rows: int
) -> None:
    """Raise FloodmarkError if loading again would duplicate rows that have no key.

    That is so if the target has more rows than the `rows` of its ledger.
    """
    chunks = list(log.chunks(table))
    if not chunks or chunks[-1].primary_key or chunks[-1].reload:
        return
    held = target.count(target_table(name, chunks[-1])) or 0
    if held > rows:
        raise FloodmarkError(
            f"{table}: {name} has {held:,} rows, and the ledger lists {rows:,}; without a primary"
            " key, loading again would duplicate rows",
            hint=f"empty {name} in the target, then 'floodmark watermark reset -t {table}"
            " --load-only' and sync load it again",
        )


def refuse_lost_table(
    table: TableName, target: Target, expected: TargetTable, pending: Sequence[Manifest], rows: int
) -> None:
    """Raise FloodmarkError if the target table is missing, though the ledger lists its rows."""
    replaced = any(chunk.reload for chunk in chunks_in(pending))
    if rows and not replaced and not target.columns_held(expected):
        raise FloodmarkError(
            f"the target has no table {expected.name}, but its ledger lists {rows:,} loaded rows of"
            f" {table}",
            hint=f"'floodmark watermark reset -t {table} --load-only', then sync, loads all again",
        )


def refuse_lost_columns(
    table: TableName,
    target: Target,
    expected: TargetTable,
    loaded: Sequence[Manifest],
    *,
    inherited: bool,
) -> None:
    """Raise FloodmarkError if the target lacks a column that rows in it were loaded with.

    To add it again would leave NULL in these rows.
    """
    chunks = chunks_in(loaded)
    had = {column.name for chunk in chunks for column in chunk.columns or ()}
    shape = structs.replace(
        expected, columns=tuple(column for column in expected.columns if column.name in had)
    )
    held = target.columns_held(shape)
    lost = [column.name for column in shape.columns if column.name not in held]
    if held and lost:
        names = ", ".join(lost)
        again = (
            "--force', then sync, reads all"
            if inherited
            else "--load-only --force', then sync, loads all"
        )
        raise FloodmarkError(
            f"{expected.name} has no column {names} in the target any more, and rows were loaded"
            " with it",
            hint=f"'floodmark watermark reset -t {table} {again} again; or leave it out with"
            f" 'exclude: [{names}]'",
        )


def refuse_lost_inheritance(table: TableName, target: Target, expected: TargetTable) -> None:
    """Raise FloodmarkError if the target table is missing, though the lake lacks its first rows."""
    if not target.columns_held(expected):
        raise FloodmarkError(
            f"the target has no table {expected.name}, and the lake does not have all rows of"
            f" {table}: it was taken over from another tool",
            hint=f"'floodmark watermark reset -t {table} --force', then sync, reads all of it",
        )


def refuse_other_keys(table: TableName, name: str, manifests: Sequence[Manifest]) -> None:
    """Raise SchemaConflict if the primary key differs between manifests.

    A row that was loaded under the old key would not be found under the new one, and be duplicated.
    """
    if change := key_change(manifests):
        raise SchemaConflict(
            f"the primary key of {name} changed from {change[0]} to {change[1]} in the source",
            hint=read_into_new_hint(table, name),
        )


def refuse_late_rows(
    table: TableName,
    pending: Sequence[Manifest],
    manifests: Sequence[Manifest],
    ledger: Collection[ManifestId],
) -> None:
    """Raise FloodmarkError if a loaded manifest filled a column that pending rows lack."""
    if found := filled_since(pending, manifests, ledger):
        later, columns = found
        raise FloodmarkError(
            f"{table}: manifest {pending[0].head} would be loaded after {later.head},"
            f" which already filled {columns} in all earlier rows",
            hint=f"'floodmark watermark reset -t {table} --load-only --force', then sync, loads all"
            " again in order",
        )


def refuse_all_left_out(
    table: TableName, after: datetime, manifests: Sequence[Manifest], left_out: Sequence[Manifest]
) -> None:
    """Raise FloodmarkError if a manual watermark leaves out every file."""
    if not left_out or any(m.created_at > after for m in manifests if chunks_in([m])):
        return
    files = sum(len(chunk.loaded_files) for chunk in chunks_in(left_out))
    newest = max(manifest.created_at for manifest in left_out)
    raise FloodmarkError(
        f"{table}: Found {files:,} files, filtered to 0 files for loading: the newest was created"
        f" at {plain(newest)}, not after the manual watermark {plain(after)}",
        hint=f"set it to before the files: floodmark watermark set -t {table} --timestamp …",
    )
