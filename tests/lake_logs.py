"""Random logs of a table: chunks, reconciliations and operators' changes, with their files."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import duckdb
from msgspec import structs

from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Column, DataFile, Reconciled
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state import operator_changes
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore
from floodmark.sync.load import load_table
from floodmark.sync.loading import Loading
from floodmark.warehouse.duckdb import DuckdbTarget
from scenarios import open_store
from warehouses import data_file

NIGHT = datetime(2025, 8, 1)  # noqa: DTZ001 - a DATETIME has no zone
EXTRA = {
    "small": Column("extra", "int", True, "int32"),
    "large": Column("extra", "bigint", True, "int64"),
    "price": Column("Extra", "decimal(12,2)", True, "decimal128(12, 2)"),
    "text": Column("extra", "varchar(40)", True, "string"),
    "flag": Column("extra", "tinyint(1)", True, "bool"),
}
FILLS = {"small": "7", "large": "8", "price": "9.50", "text": "filled", "flag": "1"}
NOTHING: Mapping[str, str | None] = {}


class RandomLog:
    """A table's log that grows by random steps."""

    def __init__(self, random: Random, objects: ObjectStore, table: TableName) -> None:
        self.random = random
        self._time = datetime(2026, 1, 1, tzinfo=UTC)
        self.store = open_store(objects, clock=self.clock)
        self.table = table
        self.timed = random.random() < 0.7
        self.keyless = random.random() < 0.1
        self.soft = random.random() < 0.5
        self.extra: str | None = None
        self.number = 0

    def clock(self) -> datetime:
        self._time += timedelta(seconds=1)
        return self._time

    def grow(self, steps: int) -> None:
        """Commit this many changes, at least one of them a chunk."""
        self.extract()
        actions: list[Callable[[], object]] = [self.extract] * 5
        if not self.keyless:
            actions += [self.reconcile] * 3 + [self.adopt, self.change_schema, self.change_schema]
            actions += [self.change_position, self.reload]
        for _ in range(steps):
            self.random.choice(actions)()

    @property
    def columns(self) -> tuple[Column, ...]:
        version = Column("update_at", "datetime(6)", True, "timestamp[us]")
        note = Column("note", "varchar(20)", True, "string")
        extra = (EXTRA[self.extra],) if self.extra else ()
        return (Column("id", "bigint", False, "int64"), note, *extra, version)

    def row(self, key: int, minute: int | None) -> dict[str, Any]:
        """A row; `minute` is its version."""
        self.number += 1
        row: dict[str, Any] = {"id": key, "note": f"{self.number}"}
        row["update_at"] = None if minute is None else NIGHT + timedelta(minutes=minute)
        value = self.random.choice([None, 0, 1])
        if self.extra:
            row[EXTRA[self.extra].name] = bool(value) if self.extra == "flag" else value
        return row

    def rows(self, minutes: range) -> list[dict[str, Any]]:
        """Rows of different keys, with versions of any age within these minutes."""
        keys = self.random.sample(range(12), self.random.randrange(5))
        ages = [*minutes, None]
        return [self.row(key, self.random.choice(ages)) for key in keys]

    def file(self, rows: list[dict[str, Any]], columns: tuple[Column, ...], key: str) -> DataFile:
        data = data_file(columns, rows)
        self.store.objects.put(key, data)
        return DataFile(key, len(rows), len(data), "", "", Position(), Position())

    def chunk(self, current: Watermark, end: Position, **facts: Any) -> Chunk:
        rows = facts.pop("rows")
        key = f"{lake_layout.data_files(self.table)}year=2025/{uuid.uuid4().hex}.parquet"
        return Chunk(
            start=current.position,
            end=end,
            files=(self.file(rows, self.columns, key),) if rows else (),
            strategy="sequential",
            columns=self.columns,
            primary_key=() if self.keyless else ("id",),
            version="update_at" if self.timed else None,
            **facts,
        )

    def extract(self, fills: Mapping[str, str | None] = NOTHING, *, reload: bool = False) -> None:
        """Read the rows after the position: newer ones, or with higher ids."""

        def decide(current: Watermark) -> Chunk:
            at = current.position
            if reload:
                rows = self.rows(range(1000))
                end = Position()
            elif self.timed:
                first = (
                    int((at.timestamp - NIGHT.replace(tzinfo=UTC)).seconds / 60)
                    if at.timestamp
                    else 0
                )
                rows = [r for r in self.rows(range(first + 1, first + 9)) if r["update_at"]]
                end = Position((NIGHT + timedelta(minutes=first + 8)).replace(tzinfo=UTC))
            else:
                first = at.id if isinstance(at.id, int) else 0
                rows = [self.row(key, None) for key in range(first + 1, first + 4)]
                end = Position(id=first + 3)
            return self.chunk(current, end, rows=rows, reload=reload, fills=dict(fills))

        self.store.commit(self.table, decide)

    def reconcile(self) -> None:
        """Delete some keys, with any version, and repair others."""
        columns = [
            c for c in self.columns if c.name == "id" or (self.timed and c.name == "update_at")
        ]

        def decide(current: Watermark) -> Chunk:
            gone, repaired = self.rows(range(40)), self.rows(range(40))
            deleted = {row["id"] for row in gone}
            repaired = [row for row in repaired if row["id"] not in deleted]
            sequence = current.head.sequence + 1
            session = f"20260101_000000_{current.epoch}"
            key = lake_layout.deletes_file_key(self.table, session, sequence)
            chunk = self.chunk(current, current.position, rows=repaired)
            deletes = self.file(gone, tuple(columns), key)
            found = Reconciled(
                deletes=(deletes,) if gone else (),
                deleted=len(gone),
                stale=len(repaired),
                deleted_at="_deleted_at" if self.soft else None,
            )
            return structs.replace(chunk, reconciled=found)

        self.store.commit(self.table, decide)
        if self.random.random() < 0.3 and not self.soft:
            self.soft = True

    def adopt(self) -> None:
        """Adopt an older system's rows, of any position."""
        self.store.commit(
            self.table,
            lambda now: self.chunk(now, now.position, rows=self.rows(range(1, 5)), adopted=True),
        )

    def change_schema(self) -> None:
        """Add, change or drop a column; a new one may have a value in earlier rows."""
        before, self.extra = self.extra, self.random.choice([None, *EXTRA])
        new = before is None and self.extra is not None
        fill = self.random.choice([None, FILLS[self.extra]]) if new and self.extra else None
        self.extract({"extra": fill} if new and self.random.random() < 0.6 else NOTHING)

    def change_position(self) -> None:
        """Move the position, or go back to an earlier state."""
        heads = list(self.store.log.heads(self.table))
        match self.random.randrange(5):
            case 0:
                operator_changes.reset(self.store, self.table, ("extract", "load"))
            case 1:
                operator_changes.reset(self.store, self.table, ("load",))
            case 2:
                operator_changes.reset(self.store, self.table, ("extract",))
            case 3:
                head = self.random.choice(heads)
                operator_changes.prepare_restore(self.store, self.table, head).commit()
            case _:
                at = NIGHT.replace(tzinfo=UTC) + timedelta(minutes=self.random.randrange(40))
                position = Position(at) if self.timed else Position(id=self.random.randrange(9))
                operator_changes.set_position(self.store, self.table, position)
        self.extract()

    def reload(self) -> None:
        """Read the whole table, which replaces everything."""
        self.extract(reload=True)


def up_to(objects: ObjectStore, table: TableName, last: ManifestId) -> ObjectStore:
    """A copy of a lake whose log ends with a manifest, and without watermarks."""
    copy = MemoryObjectStore()
    for info in objects.list_objects(""):
        head = lake_layout.head_of_manifest(info.key, table)
        known = not info.key.startswith("watermarks/") and (head is None or head <= last)
        if known:
            copy.put(info.key, objects.get(info.key).data)
    return copy


def load_into_nothing(
    objects: ObjectStore, table: TableName, batch_bytes: int
) -> list[tuple[Any, ...]]:
    """Load a table into an empty DuckDB, and return its rows that are not deleted, by column."""
    target = DuckdbTarget(":memory:", objects, local_root=None)

    @contextmanager
    def opened() -> Any:
        yield target

    store: WatermarkStore = open_store(objects)
    loading = Loading(
        store=store,
        open_target=opened,
        target_name="t",
        session_id="20260101_000000_abcdef",
        batch_bytes=batch_bytes,
        quarantine_limit=100,
    )
    load_table(loading, table)
    columns = [name for name in target._columns_of("t") if name != "_deleted_at"]
    alive = "_deleted_at IS NULL" if "_deleted_at" in target._columns_of("t") else "TRUE"
    names = ", ".join(f'"{name}"' for name in sorted(columns, key=str.lower))
    found = target._query(f"SELECT {names} FROM t WHERE {alive} ORDER BY ALL")
    target.close()
    return found


def in_duckdb(events: Any, selection: Any, columns: list[str], rank: str) -> list[tuple[Any, ...]]:
    """Select the current rows from events with the SQL that Spark runs."""
    names = ", ".join(f'"{name}"' for name in sorted(columns, key=str.lower))
    facts = "".join(f', {sql} AS "{name}"' for name, sql in selection.facts.items())
    with duckdb.connect() as database:
        database.register("events", events)
        return database.execute(
            f'SELECT {names} FROM (SELECT *, {selection.rank} AS "{rank}" FROM'
            f" (SELECT *{facts} FROM events) WHERE {selection.where})"
            f' WHERE "{rank}" = 1 AND NOT {selection.dead} ORDER BY ALL'
        ).fetchall()


def commit_deletes(
    store: WatermarkStore,
    table: TableName,
    rows: list[dict[str, Any]],
    deleted_at: str | None,
    repaired: tuple[DataFile, ...] = (),
) -> Watermark:
    """Commit what a reconciliation commits that finds these rows deleted in the source."""
    chunk = next(store.log.chunks(table, newest_first=True))
    names = dict.fromkeys([*chunk.primary_key, *([chunk.version] if chunk.version else [])])
    columns = tuple(c for name in names for c in chunk.columns if c.name == name)
    data = data_file(columns, rows)

    def decide(current: Watermark) -> Chunk:
        at, sequence = current.position, current.head.sequence + 1
        key = lake_layout.deletes_file_key(table, "20260101_000000_abcdef", sequence)
        store.objects.put(key, data)
        found = Reconciled(
            deletes=(DataFile(key, len(rows), len(data), "", "", at, at),),
            deleted=len(rows),
            stale=sum(file.rows for file in repaired),
            deleted_at=deleted_at,
        )
        return structs.replace(chunk, start=at, end=at, files=repaired, fills={}, reconciled=found)

    return store.commit(table, decide)
