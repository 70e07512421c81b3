"""DuckDB: a database in a file, the embedded default."""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from threading import Lock
from typing import Any

import duckdb
import pyarrow as pa

from floodmark.errors import BusyError, FloodmarkError, PassingConflict
from floodmark.model.fingerprint import DIGEST_DIGITS, UNIX_EPOCH, SqlNumber
from floodmark.model.load import LoadBatch, LoadChunk, TargetTable
from floodmark.model.manifest import Column
from floodmark.storage.objects import ObjectStore
from floodmark.warehouse.lake_reader import LakeFiles
from floodmark.warehouse.row_checksums import Family
from floodmark.warehouse.sql_dialect import NEWEST, STAGING, check_written, quote
from floodmark.warehouse.sql_target import SqlTarget
from floodmark.warehouse.unsupported_values import may_be_null

_BATCH_ROWS = 32_768
_THREAD_MB = 128  # with less, DuckDB may fail instead of using its temporary files
_TYPES = {
    "bool": "BOOLEAN",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date32": "DATE",
    "timestamp[us]": "TIMESTAMP",
    "timestamp[us, UTC]": "TIMESTAMP WITH TIME ZONE",
}
_WIDER = {
    "SMALLINT": ("INTEGER", "BIGINT", "DOUBLE"),
    "INTEGER": ("BIGINT", "DOUBLE"),
    "FLOAT": ("DOUBLE",),
    "DATE": ("TIMESTAMP",),
}
_GLOB = set("*?[")  # DuckDB would treat such a name as a pattern
_LOCKS: defaultdict[str, Lock] = defaultdict(Lock)
# DuckDB refuses to open a file that another thread is just closing.
_OPENING = Lock()
_DIGITS = {"SMALLINT": 5, "INTEGER": 10, "BIGINT": 19}
_MOST_BITS = 256 * 1024 * 1024  # in each thread
_BITS_PER_ROW = 32


class DuckdbTarget(SqlTarget):
    """A DuckDB file. One process at a time may write to it, or several may read."""

    version = "'DuckDB ' || version()"
    divide = "//"
    lines = "string_agg(concat(n, ',', v), chr(10))"

    def __init__(
        self,
        path: str,
        objects: ObjectStore,
        *,
        local_root: str | None,
        read_only: bool = False,
        memory_mb: int = 512,
        copies: str | None = None,
    ) -> None:
        self._files = LakeFiles(objects, local_root, copies)
        self._lock = _LOCKS[os.path.realpath(path)]
        self._locked = False
        fresh = not os.path.exists(path)
        try:
            with _OPENING:
                self._database = duckdb.connect(path, read_only=read_only)
        except duckdb.IOException as error:
            if "lock" in str(error).lower():
                raise BusyError(
                    f"another process has {path} open", hint="close it, or wait until it is done"
                ) from error
            raise FloodmarkError(f"cannot open {path}: {error}") from error
        with suppress(FileNotFoundError, PermissionError):  # in memory, or no file modes
            if fresh:
                os.chmod(path, 0o600)  # before it contains data
        for setting, value in {
            "TimeZone": "'UTC'",
            "memory_limit": f"'{memory_mb}MiB'",
            "threads": str(max(1, min(os.cpu_count() or 1, memory_mb // _THREAD_MB))),
            "preserve_insertion_order": "false",  # it would take memory
        }.items():
            self._database.execute(f"SET {setting} = {value}")

    def close(self) -> None:
        """Close the file."""
        with _OPENING:
            self._database.close()

    def column_type(self, column: Column) -> str:
        """Return DuckDB's name for a column's type."""
        if column.arrow.startswith("decimal128"):
            return column.arrow.replace("decimal128", "DECIMAL").replace(" ", "")
        return _TYPES[column.arrow]

    def widens(self, old: str, new: str) -> bool:
        """Whether the new type can hold every value of the old one."""
        if new.startswith("DECIMAL") and (old.startswith("DECIMAL") or old in _DIGITS):
            old_digits, old_scale = (_DIGITS[old], 0) if old in _DIGITS else _decimal(old)
            new_digits, new_scale = _decimal(new)
            return new_scale >= old_scale and new_digits - new_scale >= old_digits - old_scale
        return new in _WIDER.get(old, ())

    def is_text(self, held: str, kind: str) -> bool:  # noqa: ARG002
        """Whether a column is text; a VARCHAR has no length."""
        return held == "VARCHAR"

    def _as_text(self, name: str, kind: str, held: str) -> str:
        return f"lower(hex({name}))" if kind == "BLOB" else super()._as_text(name, kind, held)

    def _literal(self, value: str, held: str) -> str:
        return f"unhex('{value}')" if held == "BLOB" else super()._literal(value, held)

    def _wide(self, name: str) -> SqlNumber:
        return SqlNumber(f"CAST({name} AS HUGEINT)", "CAST({} AS BIGINT)")

    def _moment(self, name: str, held: str) -> str:
        value = f"CAST({name} AS TIMESTAMP)" if held == "date" else name
        return f"(epoch_us({value}) + {UNIX_EPOCH})"

    def _digest(self, text: str) -> str:
        return f"CAST('0x' || left(sha256({text}), {DIGEST_DIGITS}) AS BIGINT)"

    def _hexadecimal(self, name: str) -> str:
        return f"lower(hex({name}))"

    def _read_value(self, column: Column, held: str) -> str:
        name = quote(column.name)
        if column.arrow != "binary" or held != "VARCHAR":
            return name
        # Bytes in a text column are hexadecimal digits; other text can equal no bytes.
        digits = f"regexp_full_match({name}, '([0-9a-f]{{2}})*')"
        return (
            f"CASE WHEN {digits} THEN unhex({name}) ELSE encode('not hexadecimal: ' || {name}) END"
        )

    def takes_any_size(self, table: TargetTable) -> bool:
        """Whether the table is empty: then rows are written once, and memory is limited."""
        return not self._query(f"SELECT 1 FROM {self._name(table.name)} LIMIT 1")  # noqa: S608

    def _insert_at_once(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int | None:
        """Insert straight into a table if no row is replaced, which writes rows only once."""
        table, target = batch.table, self._name(batch.table.name)
        found = self._columns_of(table.name)
        fits = all(
            c.name in found and not self._needs_conversion(self.column_type(c), found[c.name])
            for c in table.columns
        )
        key = [table.column(name) for name in table.primary_key]
        merges = bool(key) and not batch.reload
        if not fits or any(map(may_be_null, key)) or "rowid" in map(str.lower, found):
            return None
        held = self._count_rows(target)
        if merges and held:
            return None
        self._insert_files(target, table, [path for chunk in chunks for path in chunk.paths])
        rows = self._count_rows(target) - held
        if merges:
            self._keep_newest(table, rows, found)
        return rows

    def _keep_newest(self, table: TargetTable, rows: int, found: dict[str, str]) -> None:
        """Delete all rows of a key but the newest, if any key is duplicated."""
        target = self._name(table.name)
        key = [table.column(name) for name in table.primary_key]
        counted = ", ".join(part for column in key for part in self._counted_parts(column))
        if len(key) == 1 and self._numbers_differ(target, key[0].name, found, rows):
            return
        keys = self._count_rows(f"(SELECT DISTINCT {counted} FROM {target})")  # noqa: S608
        if keys == rows:
            return
        newest = f" ORDER BY {quote(table.version)} DESC NULLS LAST" if table.version else ""
        parts = ", ".join(part for column in key for part in self._key_parts(column))
        rank = f"row_number() OVER (PARTITION BY {parts}{newest})"
        older = f"SELECT rowid AS place, {rank} AS rank FROM {target}"  # noqa: S608
        self._execute(
            f"DELETE FROM {target} WHERE rowid IN (SELECT place FROM ({older}) WHERE rank > 1)"  # noqa: S608
        )
        check_written(table.name, keys, self._count_rows(target))

    def _numbers_differ(self, target: str, column: str, found: dict[str, str], rows: int) -> bool:
        """Whether a column has integers, and another one in each row.

        Seen in a bit for each number, in a tenth of the time that counting them takes. False if
        that would be too many bits.
        """
        name, kind = quote(column), found[column]
        if kind not in _DIGITS:
            return False
        ((low, high),) = self._query(f"SELECT min({name}), max({name}) FROM {target}")  # noqa: S608
        if low is None or high - low >= min(_MOST_BITS, rows * _BITS_PER_ROW):
            return False
        bits = f"bitstring_agg({name}, CAST({low} AS {kind}), CAST({high} AS {kind}))"
        return self._query(f"SELECT bit_count({bits}) FROM {target}") == [(rows,)]  # noqa: S608

    def _stage(self, table: TargetTable, paths: Sequence[str]) -> int:
        for name in (STAGING, NEWEST):
            self._execute(f"DROP TABLE IF EXISTS {self._temporary(name)}")
        columns = ", ".join(f"{quote(c.name)} {self.column_type(c)}" for c in table.columns)
        self._execute(f"CREATE TEMPORARY TABLE {STAGING} ({columns})")
        self._insert_files(STAGING, table, paths)
        return self._count_rows(STAGING)

    def _insert_files(self, into: str, table: TargetTable, paths: Sequence[str]) -> None:
        """Insert the rows of data files, all in one statement: full row groups take less space."""
        if not paths:
            return
        names = [column.name for column in table.columns]
        columns = ", ".join(map(quote, names))
        insert = f"INSERT INTO {into} ({columns}) SELECT {columns} FROM"
        local = [self._files.local_path(path) for path in paths]
        if all(path is not None and not _GLOB.intersection(path) for path in local):
            files = ", ".join(self._text(str(path)) for path in local)
            options = "hive_partitioning = false, union_by_name = true"
            self._execute(f"{insert} read_parquet([{files}], {options})")
        else:
            self._insert_streamed(insert, paths, names)
        self._files.remove_copies(paths)

    def _insert_streamed(self, insert: str, paths: Sequence[str], names: Sequence[str]) -> None:
        failures: list[FloodmarkError] = []

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                yield from self._files.batches_of(paths, names)
            except FloodmarkError as error:
                failures.append(error)
                raise

        rows = batches()
        first = next(rows, None)
        if first is None:
            return
        stream = pa.RecordBatchReader.from_batches(
            first.schema, (batch.cast(first.schema) for batch in chain([first], rows))
        )
        self._database.register("floodmark_files", stream)
        try:
            self._execute(f"{insert} floodmark_files")
        except FloodmarkError:
            if failures:  # DuckDB shows a traceback instead
                raise failures[0] from None
            raise
        finally:
            with suppress(duckdb.Error):  # the transaction has failed
                self._database.unregister("floodmark_files")

    def _batches(
        self,
        statement: str,
        table: TargetTable,  # noqa: ARG002
        kinds: Sequence[str],  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch]:
        with _translated():
            yield from self._database.sql(statement).to_arrow_reader(_BATCH_ROWS)

    def _shown(self, name: str, family: Family) -> str | None:
        if family == "float":  # the bits of the number
            return f"to_base64(CAST(CAST(CAST({name} AS DOUBLE) AS BIT) AS BLOB))"
        if family == "binary":
            return f"lower(hex({name}))"
        if family == "decimal":  # without digits before the point, DuckDB writes none
            text = f"CAST({name} AS VARCHAR)"
            return f"regexp_replace({text}, '^(-?)\\.', '\\10.')"
        return super()._shown(name, family)

    def _length(self, name: str, family: Family) -> str:
        return f"octet_length({name})" if family == "binary" else f"strlen({name})"

    def _columns_of(self, name: str) -> dict[str, str]:
        rows = self._query(
            "SELECT column_name, data_type FROM duckdb_columns()"  # faster than information_schema
            " WHERE schema_name = 'main' AND database_name = current_database()"
            " AND lower(table_name) = lower($1) ORDER BY column_index",
            (name,),
        )
        return dict(rows)

    def _other_relation(self, name: str) -> str | None:
        rows = self._query(
            "SELECT table_type FROM information_schema.tables"
            " WHERE table_schema = 'main' AND table_catalog = current_database()"
            " AND lower(table_name) = lower($1)",
            (name,),
        )
        return "a view" if rows == [("VIEW",)] else None

    def _not_null(self, name: str) -> dict[str, bool]:
        rows = self._query(
            "SELECT column_name, column_default IS NOT NULL FROM information_schema.columns"
            " WHERE table_schema = 'main' AND table_catalog = current_database()"
            " AND lower(table_name) = lower($1) AND is_nullable = 'NO'",
            (name,),
        )
        return dict(rows)

    def _name(self, table: str) -> str:
        return quote(table)

    def _temporary(self, name: str) -> str:
        return f"temp.main.{name}"

    def _ledger_name(self, name: str) -> str:
        return name.lower()  # names are case-insensitive in DuckDB

    def _lock_ledger(self) -> None:
        """Keep out other loaders of this process; other processes cannot write anyway."""
        self._lock.acquire()
        self._locked = True
        self._execute("ROLLBACK")  # so that later reads see what others committed
        self._begin()

    def _widen(self, table: str, column: str, kind: str) -> None:
        self._execute(f"ALTER TABLE {self._name(table)} ALTER {quote(column)} TYPE {kind}")

    def _create(self, *statements: str) -> None:
        for statement in statements:
            self._execute(statement)

    def _execute(self, statement: str, values: Sequence[object] = ()) -> int:
        with _translated():
            answer = self._database.execute(statement, values or None).fetchone()
            return int(answer[0]) if answer else -1

    def _query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with _translated():
            return self._database.execute(statement, values or None).fetchall()

    def _begin(self) -> None:
        self._execute("BEGIN TRANSACTION")

    def _commit(self) -> None:
        self._execute("COMMIT")
        self._unlock()

    def _rollback(self) -> None:
        with suppress(duckdb.Error):  # the transaction is over already
            self._database.execute("ROLLBACK")
        self._unlock()

    def _unlock(self) -> None:
        if self._locked:
            self._locked = False
            self._lock.release()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (duckdb.TransactionException, duckdb.ConstraintException) as error:
        # The only constraint is the ledger's key: another loader committed the same entry.
        raise PassingConflict(f"DuckDB: {error}") from error
    except duckdb.OutOfMemoryException as error:
        raise FloodmarkError(
            f"DuckDB: {str(error).partition(chr(10))[0]}",
            hint="give DuckDB more memory with 'memory_mb: …' of its connection",
        ) from error
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]  # the rest is the statement
        hint = "'floodmark watermark validate' compares manifests and files"
        raise FloodmarkError(
            f"DuckDB: {reason}", hint=hint if ".parquet" in reason else None
        ) from error


def _decimal(kind: str) -> tuple[int, int]:
    digits, scale = kind.removeprefix("DECIMAL(").removesuffix(")").split(",")
    return int(digits), int(scale)
