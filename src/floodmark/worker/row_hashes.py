"""Compare the rows of two sides by hash, without keeping them.

DuckDB hashes and counts, in memory and batch by batch. Its hashes are valid only in this process,
where both sides are hashed in the same way: values of one type, floating point numbers by their
bits, NULL different from anything else.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import duckdb
import pyarrow as pa

from floodmark.model.verification import Checksum
from floodmark.worker.canonical_json import plain_json

Side = Literal["source", "target"]

UNFIT = "unfit"
"""The column behind those of the schema: values of a row that are not of their type, as JSON."""

_SUM = 2**64
_SALT = "'floodmark'"
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


class Fingerprints:
    """The hashes of both sides' rows, and then the rows that differ.

    Rows without a key are identified by all their values.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str], json_columns: Sequence[str]) -> None:
        self._schema = schema
        self._key = [schema.get_field_index(name) for name in key]
        self._json = [schema.get_field_index(name) for name in json_columns]
        self._database = duckdb.connect()
        self._database.execute("SET threads = 1")  # as many tasks run as there are cores
        columns = [
            f"b{number}" if field.type in _BITS else f"c{number}"
            for number, field in enumerate(schema)
        ]
        columns.append(UNFIT)
        key_columns = [columns[number] for number in self._key] or columns
        self._hashes = (
            f"hash({', '.join(key_columns)}) AS k, hash({', '.join(columns)}) AS r,"
            f" hash({_SALT}, {', '.join(columns)}) AS s"
        )
        for side in ("source", "target"):
            self._database.execute(f"CREATE TABLE {side} (k UBIGINT, r UBIGINT, s UBIGINT)")
        for answer in ("present", "due"):
            self._database.execute(f"CREATE TABLE {answer} (k UBIGINT)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, side: Side, batches: Iterable[pa.RecordBatch]) -> Checksum:
        """Add the rows of a side, and return their checksum."""
        for batch in batches:
            self._insert(side, f"SELECT {self._hashes} FROM batch", batch)  # noqa: S608
        rows, first, second = self._one(f"SELECT count(*), sum(r), sum(s) FROM {side}")  # noqa: S608
        return Checksum(rows, int(first or 0) % _SUM, int(second or 0) % _SUM)

    def suspect(self) -> None:
        """Find the keys of rows that differ."""
        self._database.execute(
            "CREATE TABLE suspects AS SELECT DISTINCT k FROM ("
            " SELECT k FROM (SELECT *, 1 AS n FROM source UNION ALL SELECT *, -1 AS n FROM target)"
            " GROUP BY k, r, s HAVING sum(n) <> 0)"
        )

    def keep(self, side: Side, batches: Iterable[pa.RecordBatch]) -> None:
        """Keep the rows of a side that have one of these keys."""
        kept = f"SELECT * EXCLUDE (s) FROM (SELECT {self._hashes}, * FROM batch)"  # noqa: S608
        nothing = pa.RecordBatch.from_pylist([], self._schema)
        self._run(f"CREATE TABLE {side}_rows AS {kept}", nothing)
        for batch in batches:
            self._insert(f"{side}_rows", f"{kept} WHERE k IN (FROM suspects)", batch)

    def judge(self) -> None:
        """Classify the difference of each key.

        `extra` rows are only in the target, unless a lookup finds them in the source.
        """
        changed = "WHEN hs <> ht THEN 'changed'" if self._key else ""
        self._database.execute(
            "CREATE TABLE judged AS SELECT k, CASE WHEN ns = 0 THEN 'extra'"  # noqa: S608
            f" WHEN ns > nt THEN 'missing' WHEN nt > ns THEN 'duplicate' {changed} END AS kind,"
            " greatest(abs(ns - nt), 1) AS n"
            " FROM (SELECT k, coalesce(ns, 0) AS ns, coalesce(nt, 0) AS nt, hs, ht"
            " FROM (SELECT k, count(*) AS ns, min(r) AS hs FROM source_rows GROUP BY k)"
            " FULL JOIN (SELECT k, count(*) AS nt, min(r) AS ht FROM target_rows GROUP BY k)"
            " USING (k))"
        )

    def extra_keys(self) -> list[tuple[Any, ...]]:
        """Return the keys of rows that only the target has, to look up in the source."""
        columns = ", ".join(f"any_value(c{number})" for number in self._key)
        return self._all(
            f"SELECT {columns} FROM target_rows"  # noqa: S608
            " WHERE k IN (SELECT k FROM judged WHERE kind = 'extra') GROUP BY k"
        )

    def found_in_source(self, rows: pa.RecordBatch, due: pa.RecordBatch) -> None:
        """Add rows that were looked up: rows with their keys are not extra.

        Those that are `due` are within the synced ranges, so no older version may be left.
        """
        keys = f"SELECT k FROM (SELECT {self._hashes} FROM batch)"  # noqa: S608
        self._insert("present", keys, rows)
        self._insert("due", keys, due)

    def dismiss_found(self) -> int:
        """Drop extra rows that were found in the source, and return their number."""
        self._database.execute(
            "UPDATE judged SET kind = 'stale' WHERE kind = 'extra' AND k IN (FROM due)"
        )
        (rows,) = self._one(
            "SELECT coalesce(sum(n), 0) FROM judged WHERE kind = 'extra' AND k IN (FROM present)"
        )
        self._database.execute("DELETE FROM judged WHERE kind = 'extra' AND k IN (FROM present)")
        return int(rows)

    def differing(
        self, most: int
    ) -> list[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]:
        """Return some rows that differ: the kind of difference, and the row on both sides."""
        names = self._schema.names
        sides = [", ".join(f"{side}.c{n}" for n in range(len(names))) for side in "xy"]
        rows = self._all(
            "SELECT kind, x.k IS NOT NULL, y.k IS NOT NULL,"  # noqa: S608
            f" y.{UNFIT}, {', '.join(sides)} FROM judged"
            " LEFT JOIN (FROM source_rows QUALIFY row_number() OVER (PARTITION BY k) = 1) AS x"
            " USING (k)"
            " LEFT JOIN (FROM target_rows QUALIFY row_number() OVER (PARTITION BY k) = 1) AS y"
            f" USING (k) WHERE kind IS NOT NULL ORDER BY kind, judged.k LIMIT {int(most)}"
        )
        width = len(names)
        return [
            (
                kind,
                dict(zip(names, values[:width], strict=True)) if in_source else None,
                dict(zip(names, values[width:], strict=True)) | json.loads(unfit or "{}")
                if in_target
                else None,
            )
            for kind, in_source, in_target, unfit, *values in rows
        ]

    def differing_keys(self, version: str | None = None) -> list[tuple[Any, ...]]:
        """Return the kind, the target's newest version, and the key of all rows that differ."""
        if not self._key:
            return []
        newest = "NULL"
        if version is not None:
            newest = f"max(y.c{self._schema.get_field_index(version)})"
        columns = ", ".join(
            f"coalesce(any_value(x.c{number}), any_value(y.c{number}))" for number in self._key
        )
        return self._all(
            f"SELECT any_value(kind), {newest}, {columns} FROM judged"  # noqa: S608
            " LEFT JOIN source_rows AS x USING (k) LEFT JOIN target_rows AS y USING (k)"
            " WHERE kind IS NOT NULL GROUP BY judged.k ORDER BY ALL"
        )

    def counts(self) -> dict[str, int]:
        """Return how many rows differ, by kind."""
        return dict(
            self._all(
                "SELECT kind, sum(n)::BIGINT FROM judged WHERE kind IS NOT NULL GROUP BY kind"
            )
        )

    def _insert(self, table: str, select: str, batch: pa.RecordBatch) -> None:
        self._run(f"INSERT INTO {table} {select}", batch)

    def _run(self, statement: str, batch: pa.RecordBatch) -> None:
        self._database.register("batch", self._comparable(batch))
        self._database.execute(statement)
        self._database.unregister("batch")

    def _comparable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        width, nothing = len(self._schema), pa.nulls(batch.num_rows, pa.string())
        columns = batch.columns[:width]
        arrays = {f"c{number}": array for number, array in enumerate(columns)}
        arrays[UNFIT] = batch.column(width) if batch.num_columns > width else nothing
        for number in self._json:
            arrays[f"c{number}"] = _plain_json(arrays[f"c{number}"])
        for number, array in enumerate(columns):
            if array.type in _BITS:
                arrays[f"b{number}"] = array.view(_BITS[array.type])
        return pa.record_batch(arrays)

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        return self._database.execute(query).fetchall()

    def _one(self, query: str) -> tuple[Any, ...]:
        return self._all(query)[0]


def _plain_json(texts: pa.Array) -> pa.Array:
    return pa.array(
        [None if text is None else plain_json(text) for text in texts.to_pylist()], pa.string()
    )
