"""Adopt Parquet files of older systems into a table's log.

    lease → watermark → list the files → check them against the source's schema → manifests

Nothing is committed unless every file fits. A crash before a manifest leaves at most files that
no manifest lists; after it, the next run finds the rest. No file is adopted twice: its manifest
lists it, and of two runs only one can take the next number. After a reset it is adopted again.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256

from msgspec import Struct

from floodmark.config.models import MysqlConnection, TableSettings
from floodmark.errors import ExitCode, FloodmarkError, StorageError
from floodmark.model import lake_layout
from floodmark.model.load_transitions import load_failed
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Column, DataFile
from floodmark.model.notice import Notice, Report
from floodmark.model.position import START
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import connect
from floodmark.planning.cursor import version_column
from floodmark.state.legacy_files import LegacyFiles, adoption_window, is_legacy_file, sort_files
from floodmark.state.legacy_watermarks import spellings
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.objects import ObjectInfo, is_key
from floodmark.sync.log_facts import Known, known_of
from floodmark.sync.plan import lake_columns, read_shape

MISMATCHES_SHOWN = 5


class Adoption(Struct, frozen=True, kw_only=True):
    """How to adopt files of older systems in this run.

    They are searched in `folder`, or else wherever older systems kept a table's files. Messages
    name the warehouse of a table as `warehouse_of` does.
    """

    store: WatermarkStore
    warehouse_of: Callable[[TableName], str]
    hours: float
    most_bytes: int
    most_file_bytes: int
    session_id: str
    folder: str | None = None
    report: Report = lambda _notice: None


class AdoptionResult(Struct, frozen=True, kw_only=True):
    """Files and rows adopted, and the files outside of the time window."""

    files: int = 0
    rows: int = 0
    left_out: int = 0


class _Shape(Struct, frozen=True, kw_only=True):
    """A table's shape in the source."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    version: str | None


class _Fitting(Struct, frozen=True, kw_only=True):
    """A file that fits; not `exact` if it must be rewritten."""

    info: ObjectInfo
    names: tuple[str, ...]
    exact: bool


def adopt_files(
    adoption: Adoption,
    table: TableName,
    connection: MysqlConnection,
    table_settings: TableSettings,
) -> AdoptionResult:
    """Adopt an older system's files of a table."""
    store = adoption.store
    with store.lease(table) as lease:
        watermark = store.get(table)
        try:
            files = find_files(adoption, table, watermark)
            if not files.chosen:
                return AdoptionResult(left_out=len(files.left_out))
            shape = _read_shape(
                table, connection, table_settings, known_of(store.log, table, watermark)
            )
            fitting = _check_fit(adoption, table, shape, files.chosen)
            rows = 0
            for group in _groups(fitting, adoption.most_bytes):
                lease.check()
                rows += _commit(adoption, table, shape, group)
        except FloodmarkError as error:
            if watermark is not None and error.exit_code == ExitCode.FAILED:
                message = error.message
                store.update(table, lambda current: load_failed(current, message))
            raise
    return AdoptionResult(files=len(fitting), rows=rows, left_out=len(files.left_out))


def find_files(adoption: Adoption, table: TableName, watermark: Watermark | None) -> LegacyFiles:
    """Find an older system's files; FloodmarkError if there are some, and none is to be adopted."""
    found = foreign_files(adoption, table)
    window = adoption_window(watermark, adoption.hours) if watermark else None
    if watermark is None or window is None:
        if not found:
            return LegacyFiles()
        raise FloodmarkError(
            f"{table}: Found {len(found):,} files, but no time from which to adopt them: it was"
            " never extracted",
            hint=f"set that time: floodmark watermark set -t {table} --timestamp …",
        )
    files = sort_files(found, _known_files(adoption.store, table, watermark), window)
    adoption.report(Notice("info", f"{table}: {window.describe(adoption.warehouse_of(table))}"))
    if files.left_out and not any(map(window.contains, (*files.chosen, *files.known))):
        newest = files.left_out[-1].modified
        raise FloodmarkError(
            f"{table}: Found {len(files.left_out):,} files, filtered to 0 files for loading: the"
            f" newest was created at {plain(newest)}",
            hint=f"set a time before it: floodmark watermark set -t {table} --timestamp …",
        )
    return files


def foreign_files(adoption: Adoption, table: TableName) -> list[ObjectInfo]:
    """List every file of an older system, adopted or not."""
    return [info for info in _listed(adoption, table) if is_legacy_file(info.key)]


def _listed(adoption: Adoption, table: TableName) -> Iterator[ObjectInfo]:
    objects = adoption.store.objects
    if adoption.folder is not None:
        yield from objects.list_objects(adoption.folder.strip("/") + "/")
        return
    yield from objects.list_objects(lake_layout.data_files(table))
    for spelling in spellings(table):
        if "/" in spelling or not is_key(spelling):
            continue  # not a valid folder name
        folder = lake_layout.older_data_files(spelling)
        for info in objects.list_objects(folder):
            # A scope can have the same name as an older system's table, and its own tables.
            if lake_layout.table_of_data_file(info.key) is None:
                adoption.store.spellings.refuse_ambiguity(table, spelling, folder)
                yield info


def _known_files(store: WatermarkStore, table: TableName, watermark: Watermark) -> set[str]:
    """Return the paths and origins of all files in manifests that may be loaded.

    Manifests from before a reset count only with a manual watermark.
    """
    manual = watermark.manual_start is not None
    since = None if manual else ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    files = [file for chunk in store.log.chunks(table, since=since) for file in chunk.all_files]
    return {file.path for file in files} | {file.origin for file in files if file.origin}


def _read_shape(
    table: TableName, connection: MysqlConnection, table_settings: TableSettings, known: Known
) -> _Shape:
    with connect(connection) as session:
        source, choice, columns = read_shape(session, table, table_settings, known)
    cursor = choice.cursor
    if table_settings.hash:
        raise FloodmarkError(
            f"{table} has columns to hash, and the files to adopt have them in clear text",
            hint="load the files by other means",
        )
    if cursor.kind == "none":
        raise FloodmarkError(
            f"every sync reads {table} in full, which would replace the adopted rows",
            hint="sync it without --adopt",
        )
    if not source.primary_key:
        raise FloodmarkError(
            f"{table} has no primary key: adopted rows might be duplicates of extracted ones",
            hint="load the files by other means",
        )
    shown = lake_columns(source, columns)
    return _Shape(
        columns=shown, primary_key=source.primary_key, version=version_column(source, cursor)
    )


def _check_fit(
    adoption: Adoption, table: TableName, shape: _Shape, files: Sequence[ObjectInfo]
) -> list[_Fitting]:
    """Check every file; FloodmarkError with both sides if one does not fit."""
    from floodmark.worker.parquet_check import inspect_file

    fitting = []
    most = adoption.most_file_bytes
    for info in files:
        try:
            _refuse_large(info, most)
            data = adoption.store.objects.get(info.key).data
            file = inspect_file(data, shape.columns, shape.primary_key, most)
        except StorageError:
            raise
        except FloodmarkError as error:
            raise FloodmarkError(
                f"{info.key} does not fit {table}: {error.message}", hint=error.hint
            ) from error
        if file.mismatches:
            more = len(file.mismatches) - MISMATCHES_SHOWN
            shown = [
                *file.mismatches[:MISMATCHES_SHOWN],
                *([f"and {more} more"] if more > 0 else []),
            ]
            raise FloodmarkError(
                f"{info.key} does not fit {table}: {'; '.join(shown)}",
                hint="move it elsewhere, or load it by other means; nothing was adopted",
            )
        fitting.append(_Fitting(info=info, names=file.names, exact=file.exact))
    return fitting


def _refuse_large(info: ObjectInfo, most_bytes: int) -> None:
    """Check the size before a file is read into memory."""
    if info.size > most_bytes:
        raise FloodmarkError(
            f"it has {info.size >> 20:,} MB, more than {most_bytes >> 20:,} MB",
            hint="to adopt it, raise 'loading: {adopt_mb: …}'",
        )


def _groups(files: Sequence[_Fitting], most_bytes: int) -> Iterator[list[_Fitting]]:
    """Group files for one manifest each: same column order, and small enough for one load."""
    group: list[_Fitting] = []
    for file in files:
        size = sum(other.info.size for other in group) + file.info.size
        if group and (size > most_bytes or _order(group[0]) != _order(file)):
            yield group
            group = []
        group.append(file)
    if group:
        yield group


def _order(file: _Fitting) -> tuple[str, ...] | None:
    """Return the order of a file's columns; None if it is rewritten in the source's order."""
    return file.names if file.exact else None


def _commit(adoption: Adoption, table: TableName, shape: _Shape, group: list[_Fitting]) -> int:
    order = _order(group[0])
    by_name = {column.name: column for column in shape.columns}
    columns = tuple(by_name[name] for name in order) if order else shape.columns

    def decide(current: Watermark) -> Chunk:
        sequence = current.log_state.next_head.sequence
        return Chunk(
            start=current.position,
            end=current.position,
            files=tuple(
                _data_file(adoption, table, shape, columns, file, sequence, part)
                for part, file in enumerate(group)
            ),
            strategy=current.backup_strategy,
            columns=columns,
            primary_key=shape.primary_key,
            version=shape.version,
            adopted=True,
        )

    before = adoption.store.get(table)
    after = adoption.store.commit(table, decide)
    return after.mysql_state.total_rows - (before.mysql_state.total_rows if before else 0)


def _data_file(
    adoption: Adoption,
    table: TableName,
    shape: _Shape,
    columns: tuple[Column, ...],
    file: _Fitting,
    sequence: int,
    part: int,
) -> DataFile:
    from floodmark.model.lake_layout import data_file_key
    from floodmark.worker.parquet_check import inspect_file, rewrite

    objects = adoption.store.objects
    found = objects.get(file.info.key)
    data, etag, path = found.data, found.etag, file.info.key
    if not file.exact:
        data = rewrite(data, columns)
        path = data_file_key(table, adoption.session_id, sequence, part)
        etag = objects.put(path, data)
    written = inspect_file(data, columns, shape.primary_key, adoption.most_file_bytes)
    if written.mismatches or not written.exact:
        raise FloodmarkError(f"{file.info.key} changed during the adoption", hint="run it again")
    return DataFile(
        path=path,
        rows=written.rows,
        bytes=len(data),
        etag=etag,
        checksum=f"sha256:{sha256(data).hexdigest()}",
        first=START,
        last=START,
        origin=None if file.exact else file.info.key,
    )
