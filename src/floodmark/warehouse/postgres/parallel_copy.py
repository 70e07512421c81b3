"""Stage large batches in PostgreSQL from many workers in parallel.

| step | a crash right after it leaves |
| --- | --- |
| take an advisory lock with a unique number | nothing: it ends with the connection |
| create a staging table, and a table of its parts | two tables that nobody reads |
| each worker: copy a file, record its part, commit | the same |
| the load's transaction: check that all parts exist, merge, ledger | the same |
| drop both tables | nothing |

A part's record has a unique number and is committed with its rows, so a file is staged once even if
its task runs several times, or in parallel; and a late task cannot commit. Both tables are
UNLOGGED: a server crash empties them. Each load drops the tables of dead loads, whose lock nobody
holds.

Rows that can be copied straight into the target, as in a first load, are not staged.
"""

from collections.abc import Iterator, Sequence
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
from floodmark.errors import FloodmarkError
from floodmark.model.load import LoadBatch, LoadChunk, TargetTable
from floodmark.storage.opening import open_lake
from floodmark.warehouse.lake_reader import LakeFiles
from floodmark.warehouse.parallel import ParallelRun
from floodmark.warehouse.postgres.target import NO_SETTINGS, PostgresTarget, staging_columns
from floodmark.warehouse.postgres.types import staging_type
from floodmark.warehouse.sql_dialect import NEWEST, STAGING, DuplicateKey, quote
from floodmark.warehouse.sql_target import unknown
from floodmark.warehouse.target import Unrepresentable

_PARTS = "_parts"
_TOKEN_DIGITS = 16
# Do not wait for a session that still has such a table open: the next load will drop it.
_PATIENCE = "2s"


class SharedStaging(Struct, frozen=True, kw_only=True):
    """A staging table that workers fill, each part from one data file."""

    settings: PostgresConnection
    lake: LakeSettings
    table: TargetTable
    token: str
    paths: tuple[str, ...]

    @property
    def name(self) -> str:
        """The table's name."""
        return f"{STAGING}_{self.token}"


class PartAnswer(Struct, frozen=True, kw_only=True):
    """A worker's answer: how many rows it staged, or why the target cannot hold them."""

    rows: int = 0
    refusal: str | None = None
    hint: str | None = None


def stage_part(staging: SharedStaging, part: int) -> bytes:
    """Stage a file, on a worker. Raise errors that a retry might fix."""
    local_root = None if staging.lake.is_s3 else staging.lake.url
    files = LakeFiles(open_lake(staging.lake, RetrySettings()), local_root)
    with PartTarget(staging.settings, files) as target:
        try:
            answer = PartAnswer(rows=target.stage_once(staging, part))
        except Unrepresentable as error:
            answer = PartAnswer(refusal=error.message, hint=error.hint)
    return msgspec.json.encode(answer)


class PartTarget(PostgresTarget):
    """A worker's view of the target."""

    def stage_once(self, staging: SharedStaging, part: int) -> int:
        """Stage a file unless that is done already, and return its number of rows."""
        known = self._known(staging, part)
        return self._stage_now(staging, part) if known is None else known

    def _stage_now(self, staging: SharedStaging, part: int) -> int:
        kinds = [staging_type(column) for column in staging.table.columns]
        self._begin()
        try:
            rows = self._copy(self._name(staging.name), staging.table, kinds, [staging.paths[part]])
            self._execute(
                f"INSERT INTO {self._name(staging.name + _PARTS)} VALUES ({part}, {rows})"  # noqa: S608
            )
            self._commit()
        except DuplicateKey:
            self._rollback()
            known = self._known(staging, part)
            if known is None:
                raise
            return known  # another attempt was faster
        except BaseException:
            self._rollback()
            raise
        return rows

    def _known(self, staging: SharedStaging, part: int) -> int | None:
        rows = self._query(
            f"SELECT row_count FROM {self._name(staging.name + _PARTS)} WHERE part = {part}"  # noqa: S608
        )
        return int(rows[0][0]) if rows else None


class ParallelPostgresTarget(PostgresTarget):
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
        self._shared: SharedStaging | None = None

    def _load_once(self, batch: LoadBatch) -> int:
        self._remove_leftovers()
        chunks = unknown(batch, self._in_ledger(batch))
        if not self._is_worth_it(batch, chunks):
            return super()._load_once(batch)
        with self._filled_by_workers(batch, chunks) as self._shared:
            return super()._load_once(batch)

    def _is_worth_it(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> bool:
        return (
            sum(chunk.bytes for chunk in chunks) >= self._spread.least_bytes
            and len(_paths(chunks)) > 1
            and not self._replaces_nothing(batch)
        )

    @contextmanager
    def _filled_by_workers(
        self, batch: LoadBatch, chunks: Sequence[LoadChunk]
    ) -> Iterator[SharedStaging]:
        """Have workers copy all files, before the ledger is locked."""
        staging = SharedStaging(
            settings=self._settings,
            lake=self._lake,
            table=batch.table,
            token=token_hex(_TOKEN_DIGITS // 2),
            paths=_paths(chunks),
        )
        self._query(f"SELECT pg_advisory_lock({_lock_number(staging.token)})")
        try:
            self._create(
                f"CREATE UNLOGGED TABLE {self._name(staging.name)} ({staging_columns(batch.table)})"
            )
            self._create(
                f"CREATE UNLOGGED TABLE {self._name(staging.name + _PARTS)}"
                " (part integer PRIMARY KEY, row_count bigint NOT NULL)"
            )
            self._fill(staging, batch.table_name)
            yield staging
        finally:
            with suppress(FloodmarkError):  # the next load removes the rest
                self._drop(staging.token)

    def _fill(self, staging: SharedStaging, source: str) -> None:
        name = f"{source} into {staging.table.name}"
        answers = self._spread.run(name, partial(stage_part, staging), len(staging.paths))
        for text in answers:
            answer = msgspec.json.decode(text, type=PartAnswer)
            if answer.refusal:
                raise Unrepresentable(answer.refusal, hint=answer.hint)

    def _stage_chunks(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int:
        """Use what workers staged, unless another load committed some of it meanwhile."""
        shared = self._shared
        if shared is None or shared.paths != _paths(chunks):
            self._shared = None
            return super()._stage_chunks(batch, chunks)
        parts = dict(
            self._query(f"SELECT part, row_count FROM {self._name(shared.name + _PARTS)}")  # noqa: S608
        )
        if set(parts) != set(range(len(shared.paths))):
            raise FloodmarkError(
                f"{batch.table_name}: only {len(parts)} of {len(shared.paths)} files were staged",
                hint="run the command again",
            )
        columns = ", ".join(
            f"{quote(c.name)}::{self.column_type(c)} AS {quote(c.name)}"
            for c in shared.table.columns
        )
        self._execute(f"DROP TABLE IF EXISTS pg_temp.{NEWEST}")
        self._execute(
            f"CREATE TEMPORARY VIEW {STAGING} AS SELECT {columns} FROM {self._name(shared.name)}"  # noqa: S608
        )
        return sum(parts.values())

    def _drop_staging(self) -> None:
        if self._shared is None:
            super()._drop_staging()
        else:
            self._shared = None
            self._execute(f"DROP VIEW pg_temp.{STAGING}")

    def _insert_staged(self, batch: LoadBatch, found: dict[str, str], rows: int) -> None:
        super()._insert_staged(batch, found, rows)
        if self._shared is not None:
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
        self._shared = None
        names = ", ".join(self._name(f"{STAGING}_{token}{end}") for end in (_PARTS, ""))
        self._execute(f"SET lock_timeout = '{_PATIENCE}'")
        try:
            self._execute(f"DROP TABLE IF EXISTS {names}")
        finally:
            self._execute("RESET lock_timeout")
            self._query(f"SELECT pg_advisory_unlock({_lock_number(token)})")


def _paths(chunks: Sequence[LoadChunk]) -> tuple[str, ...]:
    return tuple(path for chunk in chunks for path in chunk.paths)


def _lock_number(token: str) -> int:
    return int.from_bytes(bytes.fromhex(token), signed=True)
