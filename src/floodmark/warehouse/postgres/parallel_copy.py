"""Copy large batches into PostgreSQL from many workers in parallel.

Rows that may replace others are staged:

| step | a crash right after it leaves |
| --- | --- |
| take an advisory lock with a unique number | nothing: it ends with the connection |
| create a staging table, and a table of its parts | two tables that nobody reads |
| each worker: copy its files, record each with its rows, commit | the same |
| the load's transaction: check that all files are there, merge, ledger | the same |
| drop both tables | nothing |

Rows of a first load, or of a full reload, are copied into a new table, which then replaces the
target's. Such a load is one transaction whatever its size:

| step | a crash right after it leaves |
| --- | --- |
| take an advisory lock with a unique number | nothing |
| create a table like the target's, and a table of its parts | two tables that nobody reads |
| each worker: copy its files, record each with its rows, commit | the same |
| keep the newest row of each key, add the primary key, commit | the same |
| the load's transaction: check that all files are there, lock the target's table | the same |
| check that it is empty and nothing is attached to it, copy its privileges | the same |
| drop it and the table of parts, rename the new table, ledger | the same |
| commit | nothing |

If something is attached to the target's table, or a session is using it for long, the rows are
inserted from the new table instead.

A file's record has a unique number and is committed with its rows, so a file is copied once even if
its task runs several times, or in parallel. A late task cannot commit: a table is locked before its
records are checked. Staging tables are UNLOGGED: a server crash empties them, and the table of
parts with them. Each load drops the tables of dead loads, whose lock nobody holds.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from secrets import token_hex

import msgspec
from msgspec import Struct

from floodmark.config.models import (
    LakeSettings,
    PostgresConnection,
    RetrySettings,
    TableSettings,
)
from floodmark.errors import ConstraintViolated, DuplicateKey, FloodmarkError, Unrepresentable
from floodmark.model.load import LoadBatch, LoadChunk, TargetTable
from floodmark.model.log_state import ManifestId
from floodmark.storage.opening import open_lake
from floodmark.warehouse.lake_reader import LakeFiles
from floodmark.warehouse.parallel import ParallelRun
from floodmark.warehouse.postgres.copy import staging_columns
from floodmark.warehouse.postgres.table_swap import SwappingTarget
from floodmark.warehouse.postgres.target import NO_SETTINGS, PostgresTarget
from floodmark.warehouse.postgres.types import staging_type
from floodmark.warehouse.sql_dialect import NEWEST, STAGING, check_written, quote
from floodmark.warehouse.sql_target import unknown

_PARTS = "_parts"
_TOKEN_DIGITS = 16
_PART_BYTES = 32 * 1024 * 1024
_PART_OF_SERVER = 5  # the other connections are for everyone else
# Do not wait for a session that still has such a table open: the next load will drop it.
_PATIENCE = "2s"


class SharedTable(Struct, frozen=True, kw_only=True):
    """A table that workers fill from data files; `kinds` are the types of its columns.

    A task copies the files of one of the `parts`: numbers of `paths`.
    """

    settings: PostgresConnection
    lake: LakeSettings
    table: TargetTable
    kinds: tuple[str, ...]
    token: str
    paths: tuple[str, ...]
    parts: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        """The table's name."""
        return f"{STAGING}_{self.token}"

    @property
    def records(self) -> str:
        """The name of the table of files that were copied."""
        return f"{self.name}{_PARTS}"


class PartAnswer(Struct, frozen=True, kw_only=True):
    """A worker's answer: how many rows it copied, or why the target cannot hold them."""

    rows: int = 0
    refusal: str | None = None
    hint: str | None = None


def copy_part(shared: SharedTable, part: int) -> bytes:
    """Copy files, on a worker. Raise errors that a retry might fix."""
    local_root = None if shared.lake.is_s3 else shared.lake.url
    files = LakeFiles(open_lake(shared.lake, RetrySettings()), local_root)
    with PartTarget(shared.settings, files) as target:
        target.name_session(shared.name)
        try:
            answer = PartAnswer(rows=sum(target.copy_once(shared, n) for n in shared.parts[part]))
        except (Unrepresentable, ConstraintViolated) as error:
            answer = PartAnswer(refusal=error.message, hint=error.hint)
    return msgspec.json.encode(answer)


class PartTarget(PostgresTarget):
    """A worker's view of the target."""

    def name_session(self, name: str) -> None:
        """Let the load find this session."""
        self._execute(f"SET application_name = '{name}'")

    def copy_once(self, shared: SharedTable, file: int) -> int:
        """Copy a file unless that is done already, and return its number of rows."""
        known = self._known(shared, file)
        return self._copy_now(shared, file) if known is None else known

    def _copy_now(self, shared: SharedTable, file: int) -> int:
        into = self._name(shared.name)
        self._begin()
        try:
            rows = self._copy(into, shared.table, shared.kinds, [shared.paths[file]])
            self._execute(f"INSERT INTO {self._name(shared.records)} VALUES ({file}, {rows})")  # noqa: S608
            self._commit()
        except DuplicateKey:
            self._rollback()
            known = self._known(shared, file)
            if known is None:
                raise
            return known  # another attempt was faster
        except BaseException:
            self._rollback()
            raise
        return rows

    def _known(self, shared: SharedTable, file: int) -> int | None:
        rows = self._query(
            f"SELECT row_count FROM {self._name(shared.records)} WHERE part = {file}"  # noqa: S608
        )
        return int(rows[0][0]) if rows else None


class ParallelPostgresTarget(SwappingTarget):
    """A schema of a PostgreSQL database, with workers to copy large batches."""

    def __init__(
        self,
        settings: PostgresConnection,
        files: LakeFiles,
        lake: LakeSettings,
        spread: ParallelRun,
        table_settings: TableSettings = NO_SETTINGS,
    ) -> None:
        super().__init__(settings, files, table_settings)
        self._settings = settings
        self._lake = lake
        self._spread = spread
        self._staging: SharedTable | None = None
        self._new: SharedTable | None = None

    def takes_any_size(self, table: TargetTable) -> bool:
        """Whether workers would fill a new table."""
        named = self._staged_as(self._named(table))
        return self._can_be_swapped(named) and self._is_empty(named.name)

    def _load_once(self, batch: LoadBatch) -> int:
        self._remove_leftovers()
        known = self._in_ledger(batch)
        chunks = unknown(batch, known)
        if not self._is_worth_it(chunks):
            return super()._load_once(batch)
        if self._fills_new_table(batch, known):
            with self._filled_by_workers(batch, chunks, new=True) as self._new:
                if batch.table.primary_key:
                    self._add_key(self._new.name, batch.table)
                return super()._load_once(batch)
        if self._replaces_nothing(batch):
            return super()._load_once(batch)
        with self._filled_by_workers(batch, chunks) as self._staging:
            return super()._load_once(batch)

    def _is_worth_it(self, chunks: Sequence[LoadChunk]) -> bool:
        size = sum(chunk.bytes for chunk in chunks)
        return size >= self._spread.least_bytes and len(_paths(chunks)) > 1

    def _fills_new_table(self, batch: LoadBatch, known: Iterable[ManifestId]) -> bool:
        deletes = batch.deletes or any(found.head in known for found in batch.deleted_later)
        return (
            not deletes
            and (batch.reload or self._is_empty(batch.table.name))
            and self._can_be_swapped(batch.table)
        )

    def _can_be_swapped(self, table: TargetTable) -> bool:
        found = self._columns_of(table.name)
        has_key = bool(table.primary_key)
        return (
            self._takes_files(table, found)
            and has_key == (self._key_of(table.name) is not None)
            and self._is_plain(table.name)
        )

    @contextmanager
    def _filled_by_workers(
        self, batch: LoadBatch, chunks: Sequence[LoadChunk], *, new: bool = False
    ) -> Iterator[SharedTable]:
        """Have workers copy all files, before the ledger is locked."""
        table, found = batch.table, self._columns_of(batch.table.name)
        shared = SharedTable(
            settings=self._settings,
            lake=self._lake,
            table=table,
            kinds=tuple(found[c.name] if new else staging_type(c) for c in table.columns),
            token=token_hex(_TOKEN_DIGITS // 2),
            paths=_paths(chunks),
            parts=parts_of([size for chunk in chunks for size in chunk.sizes]),
        )
        self._query(f"SELECT pg_advisory_lock({_lock_number(shared.token)})")
        try:
            kind = "TABLE" if new else "UNLOGGED TABLE"
            columns = f"LIKE {self._name(table.name)}" if new else staging_columns(table)
            self._create(f"CREATE {kind} {self._name(shared.name)} ({columns})")
            self._create(
                f"CREATE {kind} {self._name(shared.records)}"
                " (part integer PRIMARY KEY, row_count bigint NOT NULL)"
            )
            self._fill(shared, batch.table_name)
            # A task that another attempt overtook would keep both tables locked.
            self._query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = $1 AND pid <> pg_backend_pid()",
                (shared.name,),
            )
            yield shared
        finally:
            with suppress(FloodmarkError):  # the next load removes the rest
                self._drop(shared.token)

    def _fill(self, shared: SharedTable, source: str) -> None:
        name = f"{source} into {shared.table.name}"
        work, parts = partial(copy_part, shared), len(shared.parts)
        answers = self._spread.run(name, work, parts, self._most_workers())
        for text in answers:
            answer = msgspec.json.decode(text, type=PartAnswer)
            if answer.refusal:
                raise Unrepresentable(answer.refusal, hint=answer.hint)

    def _most_workers(self) -> int:
        """Return how many connections workers may have at once; the load has one itself."""
        ((server, *others),) = self._query(
            "SELECT current_setting('max_connections')::int, rolconnlimit, datconnlimit"
            " FROM pg_roles, pg_database"
            " WHERE rolname = current_user AND datname = current_database()"
        )
        limits = [self._settings.max_connections or max(2, server // _PART_OF_SERVER)]
        limits += [limit - 1 for limit in others if limit >= 0]
        return max(1, min(limits))

    def _rows_in(self, shared: SharedTable, batch: LoadBatch) -> int:
        """Return the rows that workers copied; FloodmarkError unless all files are there."""
        rows = dict(self._query(f"SELECT part, row_count FROM {self._name(shared.records)}"))  # noqa: S608
        if set(rows) != set(range(len(shared.paths))):
            raise FloodmarkError(
                f"{batch.table_name}: only {len(rows)} of {len(shared.paths)} files were copied",
                hint="run the command again",
            )
        return sum(rows.values())

    def _replace_table(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int | None:
        """Swap in the new table, unless another load committed some of its rows meanwhile."""
        new, self._new = self._new, None
        if new is None or new.paths != _paths(chunks) or batch.deletes or batch.deleted_later:
            return None
        self._execute(f"LOCK TABLE {self._name(new.records)} IN ACCESS EXCLUSIVE MODE")
        rows = self._rows_in(new, batch)
        if self._swap(new.name, batch.table.name, new.records, replace_rows=batch.reload):
            return rows
        return rows if self._inserted_from(new, batch) else None

    def _inserted_from(self, new: SharedTable, batch: LoadBatch) -> bool:
        """Insert the rows of the new table into the target's, unless that has rows by now."""
        table, target = batch.table, self._name(batch.table.name)
        columns = ", ".join(quote(column.name) for column in table.columns)
        rows = f"SELECT {columns} FROM {self._name(new.name)}"  # noqa: S608
        self._execute("SAVEPOINT nothing_inserted")
        try:
            if batch.reload:
                self._execute(f"DELETE FROM {target}")  # noqa: S608
            elif not self._is_empty(table.name):
                return False
            written = self._execute(f"INSERT INTO {target} ({columns}) {rows}")
            check_written(table.name, self._count_rows(self._name(new.name)), written)
        except ConstraintViolated:  # somebody inserted a row
            self._execute("ROLLBACK TO nothing_inserted")
            return False
        return True

    def _stage_chunks(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int:
        """Use what workers staged, unless another load committed some of it meanwhile."""
        shared = self._staging
        if shared is None or shared.paths != _paths(chunks):
            self._staging = None
            return super()._stage_chunks(batch, chunks)
        rows = self._rows_in(shared, batch)
        columns = ", ".join(
            f"{quote(c.name)}::{self.column_type(c)} AS {quote(c.name)}"
            for c in shared.table.columns
        )
        self._execute(f"DROP TABLE IF EXISTS pg_temp.{NEWEST}")
        self._execute(
            f"CREATE TEMPORARY VIEW {STAGING} AS SELECT {columns} FROM {self._name(shared.name)}"  # noqa: S608
        )
        return rows

    def _drop_staging(self) -> None:
        if self._staging is None:
            super()._drop_staging()
        else:
            self._staging = None
            self._execute(f"DROP VIEW pg_temp.{STAGING}")

    def _insert_staged(self, batch: LoadBatch, found: dict[str, str], rows: int) -> None:
        super()._insert_staged(batch, found, rows)
        if self._staging is not None:
            self._execute(f"DROP VIEW pg_temp.{STAGING}")

    def _remove_leftovers(self) -> None:
        """Drop the staging tables of loads that died."""
        found = self._query(
            "SELECT right(c.relname, 16) FROM pg_class c JOIN pg_namespace n"  # noqa: S608
            f" ON n.oid = c.relnamespace AND n.nspname = {self._text(self._schema)}"
            f" WHERE c.relkind = 'r' AND c.relname ~ '^{STAGING}_[0-9a-f]{{{_TOKEN_DIGITS}}}$'"
        )
        for (token,) in found:
            if self._query(f"SELECT pg_try_advisory_lock({_lock_number(token)})")[0][0]:
                with suppress(FloodmarkError):
                    self._drop(token)

    def _drop(self, token: str) -> None:
        self._staging = self._new = None
        names = ", ".join(self._name(f"{STAGING}_{token}{end}") for end in (_PARTS, ""))
        self._execute(f"SET lock_timeout = '{_PATIENCE}'")
        try:
            self._execute(f"DROP TABLE IF EXISTS {names}")
        finally:
            self._execute("RESET lock_timeout")
            self._query(f"SELECT pg_advisory_unlock({_lock_number(token)})")


def parts_of(sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Group files that follow each other: small ones share a task, and so a connection."""
    parts: list[list[int]] = []
    held = _PART_BYTES
    for file, size in enumerate(sizes):
        if held + size > _PART_BYTES:
            parts.append([])
            held = 0
        parts[-1].append(file)
        held += size
    return tuple(map(tuple, parts))


def _paths(chunks: Sequence[LoadChunk]) -> tuple[str, ...]:
    return tuple(path for chunk in chunks for path in chunk.paths)


def _lock_number(token: str) -> int:
    return int.from_bytes(bytes.fromhex(token), signed=True)
