"""COPY data files into Redshift: one COPY a load, straight from the lake."""

import json
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from floodmark.config.models import RedshiftConnection
from floodmark.errors import (
    ConfigError,
    DataRefused,
    FloodmarkError,
    StatementFailed,
    StorageError,
    Unrepresentable,
)
from floodmark.model.lake_layout import LOADS
from floodmark.model.load import LoadBatch, LoadChunk, TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.redshift.reading import RedshiftReading
from floodmark.warehouse.redshift.session import literal
from floodmark.warehouse.redshift.types import staging_type
from floodmark.warehouse.sql_dialect import NEWEST, STAGING, quote
from floodmark.warehouse.target import TargetFacts
from floodmark.warehouse.unsupported_values import may_be_null

_ERRORS_SHOWN = 3
# Keys that cannot be counted by text: 0 and -0.0 are equal, and BOOLEAN has no cast to text.
_NO_TEXT = ("bool", "float32", "float64")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


class RedshiftCopy(RedshiftReading):
    """Copies data files into the target or a staging table."""

    _codec: str
    _endpoint: str | None

    def _stage_chunks(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int:
        for name in (STAGING, NEWEST):
            self._execute(f"DROP TABLE IF EXISTS {name}")
        # COPY matches columns by position: the order here is that of the files. Compression does
        # not pay for rows that are read once; without an encoding, Redshift would choose one.
        columns = ", ".join(
            f"{quote(c.name)} {staging_type(c)} ENCODE RAW" for c in batch.table.columns
        )
        self._execute(f"CREATE TEMPORARY TABLE {STAGING} ({columns})")
        self._copy_chunks(STAGING, batch, chunks)
        return self._count_rows(STAGING)

    def _copy_chunks(self, into: str, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> None:
        if any(chunk.paths for chunk in chunks):
            name = _UNSAFE.sub("_", batch.table_name)
            files = [pair for c in chunks for pair in zip(c.paths, c.sizes, strict=True)]
            self._copy(into, f"{LOADS}{batch.session_id}/{name}/", files)

    def _insert_at_once(self, batch: LoadBatch, chunks: Sequence[LoadChunk]) -> int | None:
        """Copy straight into a table if no row is replaced, which writes rows only once."""
        table, target = batch.table, self._name(batch.table.name)
        merges = bool(table.primary_key) and not batch.reload
        key = [table.column(name) for name in table.primary_key]
        if not self._takes_files(table) or any(may_be_null(c) or c.arrow in _NO_TEXT for c in key):
            return None
        if merges and self._query(f"SELECT 1 FROM {target} LIMIT 1"):  # noqa: S608
            return None
        held = 0 if merges else self._count_rows(target)
        self._copy_chunks(target, batch, chunks)
        rows = self._count_rows(target) - held
        if merges:
            # By text: Redshift may assume that a declared key is unique.
            keys = ", ".join(self._key_text(column) for column in key)
            if self._count_rows(f"(SELECT DISTINCT {keys} FROM {target}) AS keys") < rows:  # noqa: S608
                self._execute(f"DELETE FROM {target}")  # noqa: S608
                return None
        return rows

    def _takes_files(self, table: TargetTable) -> bool:
        """Whether a table has the columns of the data files, in the same order and types."""
        wanted = [(column.name, staging_type(column)) for column in table.columns]
        return list(self._columns_of(table.name).items()) == wanted

    def _key_text(self, column: Column) -> str:
        name = quote(column.name)
        if column.arrow == "string":
            return f"MD5({name})"
        return self._as_text(name, staging_type(column), "VARCHAR(64)")

    def probe(self) -> TargetFacts:
        """Also COPY a file from the lake: only that tests role, region and codec."""
        facts = super().probe()
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"n": [1]}), sink, compression=self._codec)
        data = sink.getvalue().to_pybytes()
        folder = f"{LOADS}probe_{secrets.token_hex(8)}/"
        file = f"{folder}1.parquet"
        self._objects.put(file, data)
        self._execute("CREATE TEMPORARY TABLE floodmark_probe (n BIGINT)")
        try:
            self._copy("floodmark_probe", folder, [(file, len(data))])
        finally:
            self._execute("DROP TABLE floodmark_probe")
            for info in list(self._objects.list_objects(folder)):
                self._objects.delete(info.key)
        return structs.replace(facts, remarks=tuple(self._probe_unload()))

    def _copy(self, into: str, folder: str, files: Sequence[tuple[str, int]]) -> None:
        """COPY files of the lake into a table, using a manifest in a folder of the lake."""
        key = f"{folder}{secrets.token_hex(8)}.manifest"
        source = literal(f"{self._lake}/{key}")
        self._objects.put(key, copy_manifest(self._lake, files))
        try:
            self._execute(
                f"COPY {into} FROM {source} {self._authorization} FORMAT AS PARQUET MANIFEST"
            )
        except StatementFailed as error:
            # The transaction failed; load errors can be queried only outside of it.
            self._rollback()
            found = self._load_errors()
            failed = Unrepresentable if found or isinstance(error, DataRefused) else FloodmarkError
            hint = error.hint or f"the files are named in {self._lake}/{key}"
            if self._endpoint and failed is FloodmarkError:
                hint += f"; Redshift can only read S3 on AWS, not the lake's {self._endpoint}"
            raise failed(
                "\n  ".join([f"COPY failed: {error.message}", *found]), hint=hint
            ) from error
        with suppress(StorageError):  # no longer needed, but harmless
            self._objects.delete(key)

    def _load_errors(self) -> list[str]:
        """Return Redshift's records of this session's failed COPY, if there are any."""
        with suppress(FloodmarkError):
            rows = self._query(
                "SELECT TRIM(column_name), TRIM(column_type), TRIM(column_length),"  # noqa: S608
                " TRIM(error_message), TRIM(file_name) FROM sys_load_error_detail"
                " WHERE session_id = pg_backend_pid() ORDER BY start_time DESC"
                f" LIMIT {_ERRORS_SHOWN}"
            )
            return [_load_error(*row) for row in rows]
        return []

    def _stage(self, table: TargetTable, paths: Sequence[str]) -> int:
        raise NotImplementedError("COPY also needs the files' sizes")


def copy_manifest(lake: str, files: Sequence[tuple[str, int]]) -> bytes:
    """Return the manifest of a COPY: files and their sizes.

    Without `mandatory`, COPY would silently skip a missing file.
    """
    entries = [
        {"url": f"{lake}/{path}", "mandatory": True, "meta": {"content_length": size}}
        for path, size in files
    ]
    return json.dumps({"entries": entries}, indent=1).encode()


def authorization(connection: RedshiftConnection) -> str:
    """Return the authorization clause of a COPY. With keys, Parquet needs the older syntax."""
    key, secret = connection.access_key_id, connection.secret_access_key
    if connection.iam_role and not (key or secret):
        role = connection.iam_role
        return "IAM_ROLE default" if role == "default" else f"IAM_ROLE {literal(role)}"
    if key and secret and not connection.iam_role:
        given = f"aws_access_key_id={key.reveal()};aws_secret_access_key={secret.reveal()}"
        if connection.session_token:
            given += f";token={connection.session_token.reveal()}"
        return f"CREDENTIALS {literal(given)}"
    raise ConfigError(
        f"Redshift at {connection.host} has no authorization to read the lake",
        hint="set 'iam_role' of the connection, or else both 'access_key_id' and"
        " 'secret_access_key'",
    )


def _load_error(
    column: str | None, kind: str | None, length: str | None, message: str, file: str | None
) -> str:
    size = f"({length})" if length else ""
    place = f"column {column} {kind or ''}{size}: " if column else ""
    return f"{place}{message}" + (f" in {file}" if file else "")
