"""Load in SQL: the same steps for every target, in one transaction.

lock the table → find manifests that the ledger lacks → apply deletes → stage → keep the newest row
of each key, if any is staged twice → delete older rows from the target → insert → check the row
count → write the ledger → commit
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from threading import Timer
from typing import TYPE_CHECKING, TypeVar, final

from msgspec import structs

from floodmark.errors import AnotherLake, FloodmarkError, PassingConflict, Unrepresentable
from floodmark.model.load import LedgerEntry, LoadBatch, LoadChunk, TargetTable
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Column
from floodmark.model.notice import Notice, Report
from floodmark.model.timestamps import as_utc
from floodmark.model.verification import Extent
from floodmark.warehouse.alter_table import TableChanges
from floodmark.warehouse.conversion import held_as, held_name
from floodmark.warehouse.deletes import DeletingBackend
from floodmark.warehouse.fingerprints import FingerprintingBackend
from floodmark.warehouse.ledger import LedgerTable
from floodmark.warehouse.range_predicates import within
from floodmark.warehouse.row_checksums import RowChecksums
from floodmark.warehouse.sql_dialect import LEDGER, NEWEST, STAGING, check_written, free_name, quote
from floodmark.warehouse.target import Dropped, TargetFacts, no_columns
from floodmark.warehouse.unsupported_values import UnsupportedValue, may_be_null, open_keys

if TYPE_CHECKING:
    import pyarrow as pa

TRIES = 5

Result = TypeVar("Result")


class SqlTarget(LedgerTable, TableChanges, RowChecksums, DeletingBackend, FingerprintingBackend):
    """A target that speaks SQL: defines the steps of a load; the backend implements them."""

    pause = staticmethod(time.sleep)
    """How to wait between tries; tests replace it."""

    silent_seconds = 5.0
    """How long to wait for a lock before reporting it."""

    @final
    def count(self, table: TargetTable) -> int | None:
        """Count a table's rows."""
        named = self._named(table)
        if not (found := self._columns_of(named.name)):
            return None
        marked = held_name(named.deleted_at, found)
        alive = f" WHERE {quote(marked)} IS NULL" if marked else ""
        return int(self._query(f"SELECT COUNT(*) FROM {self._name(named.name)}{alive}")[0][0])  # noqa: S608

    @final
    def prepare(self, table: TargetTable, dropped: Dropped = no_columns) -> list[str]:
        """Create the table, or add and widen columns, each in its own transaction."""
        table = self._named(table)
        return self._tried_again(
            lambda: [*self._prepare(table, dropped), *self._prepare_deletes(table)]
        )

    def _prepare(self, table: TargetTable, dropped: Dropped) -> list[str]:
        done = self._prepare_ledger()
        found = self._columns_of(table.name)
        if not found:
            self._forget_lost(table.name)
            self.check_grants(table.name)
            self._create(self._create_statement(table), *self._grants_on(table.name))
            done.append(f"created {table.name}")
        else:
            done += self._change_table(held_as(table, found), found, dropped)
        self._check_fit(table, self._columns_of(table.name))
        return done

    @final
    def load(self, batch: LoadBatch) -> int:
        """Load the manifests that the ledger lacks."""
        batch = structs.replace(batch, table=self._staged_as(self._named(batch.table)))
        rows = self._tried_again(lambda: self._load_once(batch))
        if rows or batch.deletes:
            self._after_load(batch.table)
        return rows

    @final
    def clock(self) -> datetime:
        """Return the target's time, in UTC."""
        now: datetime = self._query(f"SELECT {self.now}")[0][0]
        return as_utc(now)

    def probe(self) -> TargetFacts:
        """Create and fill a table in a transaction that is rolled back."""
        version, now = str(self._query(f"SELECT {self.version}")[0][0]), self.clock()
        name = f"floodmark_probe_{secrets.token_hex(4)}"
        table = self._name(name)
        self.check_grants(name)
        self._begin()
        try:
            self._make_schema()
            self._execute(f"CREATE TABLE {table} (n BIGINT)")
            for grant in self._grants_on(name):
                self._execute(grant)
            self._execute(f"INSERT INTO {table} VALUES (1)")  # noqa: S608
            self._execute(f"DELETE FROM {table}")  # noqa: S608
        finally:
            self._rollback()
        return TargetFacts(version=version, now=now)

    def _make_schema(self) -> None:
        """Create the schema within a transaction, if it is missing and the target has schemas."""

    @final
    def columns_held(self, table: TargetTable) -> tuple[str, ...]:
        """Look them up in the target's catalog."""
        named = self._named(table)
        found = self._columns_of(named.name)
        pairs = zip(table.columns, held_as(named, found).columns, strict=True)
        return tuple(column.name for column, kept in pairs if kept.name in found)

    @final
    def rewritten_json(self, table: TargetTable) -> tuple[str, ...]:
        """Return the JSON columns that are not text in the target."""
        named = self._named(table)
        found = self._columns_of(named.name)
        pairs = zip(table.columns, held_as(named, found).columns, strict=True)
        return tuple(
            column.name
            for column, kept in pairs
            if column.type == "json" and not self.is_text(found.get(kept.name, ""), "")
        )

    @final
    def read(self, table: TargetTable, extents: Sequence[Extent]) -> "Iterator[pa.RecordBatch]":
        """Read rows back."""
        named = self._named(table)
        found = self._columns_of(named.name)
        named = held_as(named, found)
        kept = {c.name: k.name for c, k in zip(table.columns, named.columns, strict=True)}
        columns = ", ".join(
            f"{self._read_value(c, found.get(c.name, ''))} AS c{n}"
            for n, c in enumerate(named.columns)
        )
        where = within(extents, lambda name: quote(kept[name]))
        if marked := held_name(named.deleted_at, found):
            where = f"({where}) AND {quote(marked)} IS NULL"
        statement = f"SELECT {columns} FROM {self._name(named.name)} WHERE {where}"  # noqa: S608
        kinds = [found.get(column.name, "") for column in named.columns]
        return self._batches(statement, named, kinds)

    @final
    def unsupported_values(self, table: TargetTable) -> Sequence[UnsupportedValue]:
        """Return values that no target can hold, and those that this one cannot."""
        return [*open_keys(table), *self._unsupported_values(table)]

    def _unsupported_values(self, table: TargetTable) -> Sequence[UnsupportedValue]:  # noqa: ARG002
        """Return values that this target cannot hold."""
        return ()

    def _tried_again(self, work: Callable[[], Result]) -> Result:
        """Retry idempotent work while it fails with a passing conflict."""
        for attempt in range(1, TRIES):
            try:
                return work()
            except PassingConflict:
                self.pause(0.1 * 2.0**attempt)
        return work()

    def _load_once(self, batch: LoadBatch) -> int:
        self._begin()
        try:
            with self._reporting_lock_wait(batch):
                self._lock_table(batch)
            self.check_owner(batch.table_name, batch.load_epoch, batch.table.name)
            self._refuse_overtaken(batch)
            known = self._in_ledger(batch)
            chunks = unknown(batch, known)
            rows = sum(chunk.fitting_rows for chunk in chunks)
            if chunks:
                late = max(known, default=chunks[-1].head) > chunks[-1].head
                if batch.reload and late:  # a later reload has replaced these rows already
                    self._note_loaded(batch, chunks)
                    rows = 0
                else:
                    keep = batch.keep_newer_target_rows or late
                    later = tuple(found for found in batch.deleted_later if found.head in known)
                    now = structs.replace(batch, keep_newer_target_rows=keep, deleted_later=later)
                    self._load(now, chunks, rows)
            self._commit()
        except BaseException:
            self._rollback()
            raise
        return rows

    def _reporting_lock_wait(self, batch: LoadBatch) -> AbstractContextManager[None]:
        message = (
            f"{batch.table_name}: waiting for another load into {batch.table.name}, or for"
            f" a session that has locked {LEDGER} in the target"
        )
        notice = Notice("info", message, "waiting", batch.table_name)
        return _reporting_slow_wait(self.report, notice, self.silent_seconds)

    def _in_ledger(self, batch: LoadBatch) -> dict[ManifestId, LedgerEntry]:
        """Return the ledger's entries from a batch's first manifest on; no others matter to it."""
        if not batch.chunks:
            return {}
        first = min(chunk.head for chunk in batch.chunks)
        entries = self.ledger(
            batch.table_name,
            batch.load_epoch,
            after=ManifestId(first.epoch, first.sequence - 1),
        )
        return {entry.head: entry for entry in entries}

    def _load(self, batch: LoadBatch, chunks: Sequence[LoadChunk], rows: int) -> None:
        table = batch.table
        found_columns = self._columns_of(table.name)
        self._check_fit(table, found_columns)
        keeps = batch.reload or table.primary_key or batch.keep_existing_rows
        again = not keeps and self._begins_again(batch)
        replaced = self._replace_table(batch, chunks)
        if replaced is not None:
            check_found(batch, rows, replaced)
            self._note_loaded(batch, chunks, again=again)
            return
        if batch.reload or again:
            self._execute(f"DELETE FROM {self._name(table.name)}")  # noqa: S608
        chunks = self._apply_deletes(batch, chunks, found_columns)
        self._fill_in(batch, found_columns)
        later = self._stage_deleted_later(batch, found_columns)
        inserted = None if later else self._insert_at_once(batch, chunks)
        found = self._stage_chunks(batch, chunks) if inserted is None else inserted
        check_found(batch, rows, found)
        if inserted is None:
            batch = structs.replace(batch, table=self._fit_staging(table, found_columns))
            self._refuse_open_keys(batch.table)
            rows -= self._drop_deleted(later)
            self._insert_staged(batch, found_columns, rows)
        self._note_loaded(batch, chunks, again=again)

    def _note_loaded(
        self, batch: LoadBatch, chunks: Sequence[LoadChunk], *, again: bool = False
    ) -> None:
        with self._reporting_lock_wait(batch):
            self._lock_entries(batch)
        self._note(batch, chunks, again=again)

    def _replace_table(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int | None:  # noqa: ARG002
        """Put a table that was filled beforehand in the place of the target's, if there is one.

        Return the number of rows found in the data files.
        """
        return None

    def _insert_at_once(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int | None:  # noqa: ARG002
        """Insert rows without staging, if the target can and no row is replaced."""
        return None

    def _insert_staged(self, batch: LoadBatch, found: dict[str, str], rows: int) -> None:
        """Insert the staged rows into the target, replacing older rows."""
        table = batch.table
        columns = ", ".join(quote(column.name) for column in table.columns)
        source = STAGING
        if table.primary_key and not batch.reload:
            source, rows = self._merge(batch, columns, rows)
        values = ", ".join(self._inserted(column, found[column.name]) for column in table.columns)
        written = self._execute(
            f"INSERT INTO {self._name(table.name)} ({columns}) SELECT {values} FROM {source}"  # noqa: S608
        )
        check_written(table.name, rows, written)

    def _count_keys(self, table: TargetTable) -> int:
        """Count the distinct keys that are staged."""
        key = [table.column(name) for name in table.primary_key]
        parts = ", ".join(part for column in key for part in self._counted_parts(column))
        return self._count_rows(f"(SELECT DISTINCT {parts} FROM {STAGING}) AS keys")  # noqa: S608

    def _count_rows(self, source: str) -> int:
        return int(self._query(f"SELECT COUNT(*) FROM {source}")[0][0])  # noqa: S608

    def _refuse_open_keys(self, table: TargetTable) -> None:
        """Raise Unrepresentable if a key is NULL: every load would insert the row again.

        Keys of the source are never NULL, but its zero dates become NULL.
        """
        keys = [name for name in table.primary_key if may_be_null(table.column(name))]
        if not keys:
            return
        condition = " OR ".join(f"{quote(name)} IS NULL" for name in keys)
        if self._query(f"SELECT COUNT(*) FROM {STAGING} WHERE {condition}")[0][0]:  # noqa: S608
            raise Unrepresentable(f"{table.name} has rows without a primary key")

    def _merge(self, batch: LoadBatch, columns: str, rows: int) -> tuple[str, int]:
        """Delete the rows that the staged ones replace.

        Return the temporary table with the rows to insert, and their number.
        """
        table, keep_newer_target_rows = batch.table, batch.keep_newer_target_rows
        target = self._name(table.name)
        key = [table.column(name) for name in table.primary_key]
        newest, kept = self._newest_staged(table, key, columns, rows)
        self._count_staged(newest)
        # Redshift allows no alias for the table that rows are deleted from.
        t = quote(table.name)
        match = self._same_key(key, t, newest)
        if table.version and (keep_newer_target_rows or not batch.wins):
            version = quote(table.version)
            # Of two equal versions, the later one counts.
            later = ">=" if keep_newer_target_rows else ">"
            kept -= self._execute(
                f"DELETE FROM {newest} USING {target}"  # noqa: S608
                f" WHERE {match} AND ({t}.{version} {later} {newest}.{version}"
                f" OR {t}.{version} IS NOT NULL AND {newest}.{version} IS NULL)"
            )
        elif keep_newer_target_rows:
            kept -= self._execute(f"DELETE FROM {newest} USING {target} WHERE {match}")  # noqa: S608
        self._execute(
            f"DELETE FROM {target} USING {newest} WHERE {match}"  # noqa: S608
        )
        return newest, kept

    def _newest_staged(
        self, table: TargetTable, key: Sequence[Column], columns: str, rows: int
    ) -> tuple[str, int]:
        """Return a temporary table with one row of each staged key, and their number."""
        keys = ", ".join(part for column in key for part in self._key_parts(column))
        if rows == self._count_rows(f"(SELECT DISTINCT {keys} FROM {STAGING}) AS keys"):  # noqa: S608
            return STAGING, rows
        order = f"{quote(table.version)} DESC NULLS LAST" if table.version else keys
        rank = free_name("floodmark_rank", (column.name for column in table.columns))
        self._execute(
            f"CREATE TEMPORARY TABLE {NEWEST} AS SELECT {columns} FROM ("  # noqa: S608
            f"SELECT {columns}, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {order}) AS {rank}"
            f" FROM {STAGING}) AS ranked WHERE {rank} = 1"
        )
        kept = self._count_rows(NEWEST)
        if kept != (keys_staged := self._count_keys(table)):
            raise FloodmarkError(
                f"{table.name}: the target sees only {kept:,} of {keys_staged:,} keys as distinct;"
                " nothing was loaded",
                hint="report this as a bug, with the result of SELECT version()",
            )
        return NEWEST, kept

    def _create_statement(self, table: TargetTable) -> str:
        columns = ", ".join(self._column_definition(table, column) for column in table.columns)
        key = self._table_key(table) if table.primary_key else ""
        return f"CREATE TABLE IF NOT EXISTS {self._name(table.name)} ({columns}{key})"


def check_found(batch: LoadBatch, rows: int, found: int) -> None:
    """Raise FloodmarkError, which rolls the transaction back, unless the files have all rows."""
    if found != rows:
        raise FloodmarkError(
            f"{batch.table_name}: the manifests list {rows:,} rows, but {found:,} were found",
            hint="'floodmark watermark validate' compares manifests and files",
        )


def unknown(batch: LoadBatch, known: Mapping[ManifestId, LedgerEntry]) -> list[LoadChunk]:
    """Return chunks that the ledger lacks; AnotherLake if it has another with the same number."""
    for chunk in batch.chunks:
        if chunk.head in known and known[chunk.head].digest != chunk.digest:
            raise AnotherLake(
                batch.table_name,
                f"manifest {chunk.head} of {batch.table_name} is not the one that was loaded",
            )
    return [chunk for chunk in batch.chunks if chunk.head not in known]


@contextmanager
def _reporting_slow_wait(report: Report, notice: Notice, seconds: float) -> Iterator[None]:
    """Report a wait if it takes longer than `seconds`."""
    timer = Timer(seconds, report, [notice])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
