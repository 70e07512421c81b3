"""DuckDB: a database in a file, the embedded default."""

import os
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import duckdb
import pyarrow.parquet as parquet

from floodmark.errors import BusyError, FloodmarkError
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.storage.objects import ObjectStore
from floodmark.warehouse.sql import NEWEST, STAGING, SqlTarget, quote

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
    "SMALLINT": ("INTEGER", "BIGINT"),
    "INTEGER": ("BIGINT",),
    "FLOAT": ("DOUBLE",),
}


class DuckdbTarget(SqlTarget):
    """A DuckDB file. One process at a time may write to it, as DuckDB has it."""

    def __init__(self, path: str, objects: ObjectStore, *, local_root: str | None) -> None:
        self._objects = objects
        self._local_root = local_root
        try:
            self._database = duckdb.connect(path)
        except duckdb.IOException as error:
            if "lock" in str(error).lower():
                raise BusyError(
                    f"another process has {path} open", hint="close it, or wait until it is done"
                ) from error
            raise FloodmarkError(f"cannot open {path}: {error}") from error
        self._database.execute("SET TimeZone = 'UTC'")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def column_type(self, column: Column) -> str:
        """DuckDB's name for a column's type."""
        if column.arrow.startswith("decimal128"):
            return column.arrow.replace("decimal128", "DECIMAL").replace(" ", "")
        return _TYPES[column.arrow]

    def widens(self, old: str, new: str) -> bool:
        """Whether every value of the old type is one of the new."""
        if old.startswith("DECIMAL") and new.startswith("DECIMAL"):
            (old_digits, old_scale), (new_digits, new_scale) = _decimal(old), _decimal(new)
            return new_scale >= old_scale and new_digits - new_scale >= old_digits - old_scale
        return new in _WIDER.get(old, ())

    def _stage(self, table: TargetTable, paths: Sequence[str]) -> int:
        for name in (STAGING, NEWEST):
            self._execute(f"DROP TABLE IF EXISTS temp.main.{name}")
        columns = ", ".join(f"{quote(c.name)} {self.column_type(c)}" for c in table.columns)
        self._execute(f"CREATE TEMPORARY TABLE {STAGING} ({columns})")
        for path in paths:
            self._stage_file(path)
        return int(self._query(f"SELECT COUNT(*) FROM {STAGING}")[0][0])  # noqa: S608

    def _stage_file(self, path: str) -> None:
        insert = f"INSERT INTO {STAGING} BY NAME SELECT * FROM"
        if self._local_root is not None:
            file = os.path.join(self._local_root, path).replace("'", "''")
            self._execute(f"{insert} read_parquet('{file}', hive_partitioning = false)")
            return
        rows = parquet.read_table(BytesIO(self._objects.get(path).data))
        self._database.register("floodmark_file", rows)
        self._execute(f"{insert} floodmark_file")
        self._database.unregister("floodmark_file")

    def _columns_of(self, name: str) -> dict[str, str]:
        rows = self._query(
            "SELECT column_name, data_type FROM information_schema.columns"  # noqa: S608
            f" WHERE table_schema = 'main' AND table_catalog = current_database()"
            f" AND table_name = '{name.replace(chr(39), chr(39) * 2)}' ORDER BY ordinal_position"
        )
        return dict(rows)

    def _name(self, table: str) -> str:
        return quote(table)

    def _lock_ledger(self) -> None:
        """Nobody else can write: the file belongs to this process."""

    def _widen(self, table: str, column: str, kind: str) -> None:
        self._execute(f"ALTER TABLE {self._name(table)} ALTER {quote(column)} TYPE {kind}")

    def _create(self, statement: str) -> None:
        self._execute(statement)

    def _execute(self, statement: str) -> None:
        try:
            self._database.execute(statement)
        except duckdb.Error as error:
            raise FloodmarkError(f"DuckDB: {error}") from error

    def _query(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            return self._database.execute(statement).fetchall()
        except duckdb.Error as error:
            raise FloodmarkError(f"DuckDB: {error}") from error

    def _begin(self) -> None:
        self._execute("BEGIN TRANSACTION")

    def _commit(self) -> None:
        self._execute("COMMIT")

    def _rollback(self) -> None:
        try:
            self._database.execute("ROLLBACK")
        except duckdb.Error:
            return  # the transaction is over already


def _decimal(kind: str) -> tuple[int, int]:
    digits, scale = kind.removeprefix("DECIMAL(").removesuffix(")").split(",")
    return int(digits), int(scale)
