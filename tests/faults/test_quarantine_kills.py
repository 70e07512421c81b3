"""A load with quarantined rows is killed at every step; the next one keeps each row once."""

import signal
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import processes
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Column
from floodmark.model.table import TableName
from floodmark.warehouse.sql_target import SqlTarget
from processes import Doom, DoomedWrites
from scenarios import open_store, use_test_keys
from sources import NUMBER, PAYLOAD, SourceTable, load
from warehouses import Warehouse, new_warehouse

# Beside every write to the lake. To die after one is to die before the next.
STEPS = ("_begin", "_commit")
TOGETHER = 10**9
DAY = Column("day", "date", False, "date32")


class Days(SourceTable):
    """Every fifth row has a zero date in its key, which is NULL in the lake."""

    def _new_key(self, random: Random) -> dict[str, Any]:
        number = len(self.rows) + 1
        day = None if number % 5 == 0 else pa.scalar(number, pa.int32()).cast(pa.date32()).as_py()
        return {"day": day, "id": number}


@pytest.fixture(params=["duckdb", "postgres", "redshift"])
def warehouse(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Warehouse:
    use_test_keys(monkeypatch)
    return new_warehouse(request.param, request, tmp_path)


def load_and_die(warehouse: Warehouse, table: SourceTable, step: int) -> None:
    doom = Doom(step, "before")

    def arm(target: SqlTarget) -> None:
        for name in STEPS:
            setattr(target, name, doom.around(getattr(target, name)))

    objects = DoomedWrites(warehouse.lake.open(), doom)
    load(warehouse, table, batch_bytes=TOGETHER, objects=objects, arm=arm, quarantine_limit=100)


def check(warehouse: Warehouse, table: SourceTable) -> None:
    """Every row of every manifest is loaded or in quarantine, and every count says so."""
    objects = warehouse.lake.open()
    store = open_store(objects)
    watermark = store.get(table.name, write_back=False)
    assert watermark is not None
    state = watermark.redshift_state
    with warehouse.open() as target:
        ledger = {e.head: e for e in target.ledger(str(table.name), state.load_epoch)}
    manifests = list(store.log.manifests(table.name))
    assert {head: e.rows + e.quarantined_rows for head, e in ledger.items()} == {
        m.head: m.change.rows for m in manifests if isinstance(m.change, Chunk)
    }
    assert state.total_rows == sum(e.rows for e in ledger.values())
    assert state.quarantined_rows == sum(e.quarantined_rows for e in ledger.values()) > 0
    assert (state.status, watermark.loaded_head) == ("success", watermark.head)
    aside = Counter[ManifestId | None]()
    for info in objects.list_objects(lake_layout.quarantine(table.name, state.load_epoch)):
        records = pq.read_table(pa.BufferReader(objects.get(info.key).data)).to_pylist()
        assert {record["row"]["day"] for record in records} == {None}
        aside[lake_layout.head_of_quarantine(info.key)] += len(records)
    assert aside == {h: e.quarantined_rows for h, e in ledger.items() if e.quarantined_rows}
    expected = [{c.name: row[c.name] for c in table.columns} for row in table.rows if row["day"]]
    assert sorted(warehouse.rows(table.target), key=repr) == sorted(expected, key=repr)


def test_killed_before_any_step(warehouse: Warehouse) -> None:
    table = Days(TableName("A", "shop", "days"), (DAY, NUMBER, *PAYLOAD), ("day", "id"))
    random = Random(1)
    for step in range(1, 1000):
        table.change(random, inserts=20, updates=10)
        table.extract(open_store(warehouse.lake.open()), chunk_rows=20)
        process = processes.start(load_and_die, warehouse, table, step)
        process.join(timeout=60)
        if process.exitcode != 0:
            assert process.exitcode == -signal.SIGKILL, f"step {step}: {process.exitcode}"
            load(warehouse, table, batch_bytes=TOGETHER, quarantine_limit=100)
        check(warehouse, table)
        if process.exitcode == 0:
            break
    assert step > 10
    copies = warehouse.lake.open().list_objects(lake_layout.copies(table.name, 1))
    assert list(copies) == []
