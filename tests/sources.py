"""A source in memory: tables that change, and extract what changed as stage 1 does."""

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from floodmark.errors import FloodmarkError
from floodmark.model import lake_layout
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Chunk, Column, DataFile
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state.lake_validation import validate
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.objects import ObjectStore
from floodmark.sync.load import load_table
from floodmark.sync.load_result import LoadResult
from floodmark.sync.loading import Loading
from floodmark.warehouse.parallel import ParallelRun
from floodmark.warehouse.sql_target import SqlTarget
from scenarios import open_store
from warehouses import Row, Warehouse, data_file

EPOCH = datetime(2025, 8, 1, tzinfo=UTC)
VERSION = Column("update_at", "timestamp(6)", False, "timestamp[us, UTC]")
PAYLOAD = (
    Column("amount", "decimal(20,4)", True, "decimal128(20, 4)"),
    Column("note", "varchar(50)", True, "string"),
    Column("blob", "varbinary(20)", True, "binary"),
    VERSION,
)
NUMBER = Column("id", "bigint", False, "int64")
TEXT = Column("code", "varchar(30)", False, "string")
TEXTS = ("é", "", "a b", "it's", '"', "\\", "🎈", "NULL", "%s")
FILE_ROWS = 40


@dataclass
class SourceTable:
    """A table of the source. Without a key it is only added to."""

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    rows: list[dict[str, Any]] = field(default_factory=list)
    _ticks: int = 0

    @property
    def target(self) -> TargetTable:
        """The table in the target."""
        return TargetTable(
            name=self.name.table,
            columns=self.columns,
            primary_key=self.key,
            version=VERSION.name,
        )

    def change(self, random: Random, *, inserts: int, updates: int = 0) -> None:
        """Add rows, and give others new values and a new version."""
        for _ in range(inserts):
            self.rows.append({**self._new_key(random), **self._values(random)})
        for row in random.sample(self.rows, min(updates, len(self.rows)) if self.key else 0):
            row.update(self._values(random))

    def extract(self, store: WatermarkStore, *, chunk_rows: int, chunks: int | None = None) -> None:
        """Commit what lies behind the watermark, in chunks of some size; all, or so many."""
        watermark = store.get(self.name)
        position = watermark.position if watermark else Position()
        fresh = sorted(
            (r for r in self.rows if not position.timestamp or r["update_at"] > position.timestamp),
            key=lambda row: row["update_at"],
        )
        pieces = [fresh[at : at + chunk_rows] for at in range(0, len(fresh), chunk_rows)]
        for piece in pieces[:chunks]:
            files = tuple(self._write(store, rows) for rows in _split(piece, FILE_ROWS))
            store.commit(self.name, lambda now, files=files: self._chunk(now, files))  # type: ignore[misc]

    def _chunk(self, current: Watermark, files: tuple[DataFile, ...]) -> Chunk:
        return Chunk(
            start=current.position,
            end=files[-1].last,
            files=files,
            strategy="sequential",
            columns=self.columns,
            primary_key=self.key,
            version=VERSION.name,
        )

    def _write(self, store: WatermarkStore, rows: Sequence[Row]) -> DataFile:
        path = f"{lake_layout.data_files(self.name)}{uuid.uuid4().hex}.parquet"
        data = data_file(self.columns, rows)
        etag = store.objects.put(path, data)
        first, last = (Position(timestamp=row["update_at"]) for row in (rows[0], rows[-1]))
        return DataFile(path, len(rows), len(data), etag, "", first, last)

    def _new_key(self, random: Random) -> dict[str, Any]:
        number = len(self.rows) + 1
        if not self.key:
            return {"id": random.randrange(5)}
        code = f"{random.choice(TEXTS)}-{number if self.key == ('code',) else number % 7}"
        return {name: {"id": number, "code": code}[name] for name in self.key}

    def _values(self, random: Random) -> dict[str, Any]:
        self._ticks += 1
        return {
            "amount": random.choice([None, Decimal(random.randrange(10**12)).scaleb(-4)]),
            "note": random.choice([None, *TEXTS]),
            "blob": random.choice([None, random.randbytes(random.randrange(20))]),
            "update_at": EPOCH + timedelta(seconds=self._ticks, microseconds=random.randrange(9)),
        }


def _split(rows: Sequence[Row], size: int) -> Iterable[Sequence[Row]]:
    return (rows[at : at + size] for at in range(0, len(rows), size))


def source_tables() -> list[SourceTable]:
    """A table with each kind of key, and one without."""

    def table(name: str, *columns: Column, key: tuple[str, ...]) -> SourceTable:
        return SourceTable(TableName("A", "shop", name), (*columns, *PAYLOAD), key)

    return [
        table("single", NUMBER, key=("id",)),
        table("composite", TEXT, NUMBER, key=("code", "id")),
        table("text", TEXT, key=("code",)),
        table("keyless", NUMBER, key=()),
    ]


def load(
    warehouse: Warehouse,
    table: SourceTable,
    *,
    batch_bytes: int,
    objects: ObjectStore | None = None,
    arm: Callable[[SqlTarget], object] = lambda _: None,
    spread: ParallelRun | None = None,
    **options: Any,
) -> LoadResult:
    """Run stage 2 of a table as a run of its own; `arm` may lay traps in the target."""
    objects = objects or warehouse.lake.open()

    def opened() -> SqlTarget:
        target = warehouse.open(objects, spread)
        arm(target)
        return target

    loading = Loading(
        store=open_store(objects),
        open_target=opened,
        target_name=table.target.name,
        session_id="20250801_000000_abcdef",
        batch_bytes=batch_bytes,
        **options,
    )
    return load_table(loading, table.name)


def check_loaded(warehouse: Warehouse, table: SourceTable) -> None:
    """Hold target, ledger, manifests and watermark against the source and each other."""
    found = sorted(warehouse.rows(table.target), key=repr)
    expected = sorted(
        ({c.name: row[c.name] for c in table.columns} for row in table.rows), key=repr
    )
    assert len(found) == len(expected), f"{table.name}: {len(found)} rows, not {len(expected)}"
    assert found == expected, f"{table.name}: other rows than in the source"
    store = open_store(warehouse.lake.open())
    watermark = store.get(table.name, write_back=False)
    assert watermark is not None
    state = watermark.redshift_state
    since = state.eligible_from_epoch
    manifests = list(store.log.manifests(table.name))
    chunks = {
        m.head: m.change.rows
        for m in manifests
        if isinstance(m.change, Chunk) and m.head.epoch >= since
    }
    with warehouse.open() as target:
        ledger = {
            entry.head: entry.rows for entry in target.ledger(str(table.name), state.load_epoch)
        }
    assert ledger == chunks, f"{table.name}: the ledger is not what the manifests say"
    assert state.status == "success"
    assert state.total_rows == sum(ledger.values())
    assert watermark.loaded_head == manifests[-1].head
    assert validate(store, table.name).differences == ()


class Struck(FloodmarkError):
    """A fault that a test brought about."""
