"""Deletes and repaired rows of a reconciliation, on every target."""
# ruff: noqa: DTZ001 - a DATETIME has no zone

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from floodmark.config.models import PostgresConnection
from floodmark.errors import FloodmarkError, PassingConflict, SchemaConflict
from floodmark.model.fingerprint import Hashing
from floodmark.model.load import TargetTable
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Column
from floodmark.model.verification import Extent
from floodmark.warehouse.sql_dialect import LEDGER
from floodmark.warehouse.target import ComparedTable
from warehouses import DELETED_AT, Loads, Warehouse, fail_at, quoted, real_redshift

# A lake in S3 makes no difference to DuckDB here.
REAL = [pytest.param("real", marks=pytest.mark.real_redshift)] if real_redshift() else []
pytestmark = pytest.mark.parametrize(
    "warehouse", ["duckdb", "postgres", "redshift", *REAL], indirect=True
)

UPDATED = Column("update_at", "datetime(6)", True, "timestamp[us]")
ORDERS = TargetTable(
    name="orders",
    columns=(
        Column("id", "bigint", False, "int64"),
        Column("note", "varchar(50)", True, "string"),
        UPDATED,
    ),
    primary_key=("id",),
    version="update_at",
)
NOON = datetime(2025, 8, 1, 12)
GONE = Column("_deleted_at", "datetime(6)", True, "timestamp[us]")
MARKED = structs.replace(ORDERS, columns=(*ORDERS.columns, GONE))
AT = DELETED_AT.replace(tzinfo=None)


def order(number: int, minute: int | None = 0, note: str = "first") -> dict[str, Any]:
    """A row of ORDERS; `minute` is its version."""
    version = None if minute is None else NOON + timedelta(minutes=minute)
    return {"id": number, "note": note, "update_at": version}


@pytest.fixture
def orders(warehouse: Warehouse) -> Loads:
    return Loads(warehouse, ORDERS)


def marks(loads: Loads) -> dict[int, tuple[str, datetime | None]]:
    """The note of each row, and when it was marked as deleted."""
    return {row["id"]: (row["note"], row["_deleted_at"]) for row in loads.rows(MARKED)}


def test_deleted_rows_are_removed_whatever_their_version(orders: Loads) -> None:
    """The target may have had an older version than the lake, or none."""
    orders.load(orders.chunk([order(n, 5) for n in (1, 2, 3)] + [order(4, None), order(5, None)]))
    orders.load(orders.chunk([order(2, 6, "newer"), order(5, 1, "now dated")]))
    gone = [order(1, None), order(2, 5), order(3, 9), order(4, None), order(5, None), order(6, 1)]
    found = orders.reconciled(gone, [order(7, 1, "missing")])
    assert orders.load_reconciled(found) == 1
    assert orders.rows() == [order(7, 1, "missing")]
    assert orders.deleted_rows()[found[0].head] == 5
    orders.load(orders.chunk([order(1, 5, "inserted again"), order(3, 7, "also")]))
    assert {row["id"] for row in orders.rows()} == {1, 3, 7}


def test_deleted_rows_are_marked_and_unmarked(orders: Loads) -> None:
    orders.load(orders.chunk([order(n, 5) for n in (1, 2, 3, 4)]))
    found = orders.reconciled([order(1, 5), order(2, 4), order(3, None)], deleted_at="_deleted_at")
    assert orders.load_reconciled(found) == 0
    assert orders.deleted_rows()[found[0].head] == 3
    orders.load(orders.chunk([order(2, 6, "came back")]))
    first = {1: ("first", AT), 2: ("came back", None), 3: ("first", AT), 4: ("first", None)}
    assert marks(orders) == first
    again = orders.reconciled([order(1, 5), order(4, 5)], deleted_at="_deleted_at")
    at = structs.replace(again[1], at=DELETED_AT + timedelta(days=1))
    orders.load_reconciled((again[0], at))
    assert marks(orders)[1] == ("first", AT)
    assert marks(orders)[4] == ("first", AT + timedelta(days=1))
    assert orders.deleted_rows()[again[0].head] == 1
    # By a normal load, whose version may be the same, and by a repair, whatever its version.
    orders.load(orders.chunk([order(1, 5, "here again")]))
    orders.load_reconciled(
        orders.reconciled([], [order(3, 1, "repaired")], deleted_at="_deleted_at")
    )
    held = {number: mark for number, (_, mark) in marks(orders).items()}
    assert held == {1: None, 2: None, 3: None, 4: AT + timedelta(days=1)}


def test_repaired_rows_replace_whatever_is_there(orders: Loads) -> None:
    orders.load(orders.chunk([order(1, 5), order(2, 5, "too new"), order(3, 5)]))
    make_duplicates(orders)
    repaired = [order(1, 5, "one"), order(2, 1, "older"), order(3, None, "of no age"), order(4)]
    assert orders.load_reconciled(orders.reconciled([], repaired)) == 4
    assert orders.rows() == repaired


def make_duplicates(loads: Loads) -> None:
    """Insert all rows once more, as a loader without a key would."""
    table = f"{{schema}}.{loads.table.name}"
    if isinstance(loads.warehouse.connection, PostgresConnection):  # which enforces the key
        loads.warehouse.query(f"ALTER TABLE {table} DROP CONSTRAINT {loads.table.name}_pkey")
    loads.warehouse.query(f"INSERT INTO {table} SELECT * FROM {table}")


@pytest.mark.parametrize("deleted_at", [None, "_deleted_at"], ids=["hard", "soft"])
def test_duplicates_of_a_deleted_key_all_go(orders: Loads, deleted_at: str | None) -> None:
    orders.load(orders.chunk([order(1, 5), order(2, 5)]))
    make_duplicates(orders)
    found = orders.reconciled([order(1, 5)], deleted_at=deleted_at)
    orders.load_reconciled(found)
    assert orders.deleted_rows()[found[0].head] == 2
    if deleted_at:
        assert [row["_deleted_at"] for row in orders.rows(MARKED)] == [AT, AT, None, None]
    else:
        assert orders.rows() == [order(2, 5)] * 2


REGION = Column("region", "varchar(20)", False, "string")
HASHED = Column("email", "char(64)", False, "string", "varchar(200)")
KEYS: dict[str, tuple[tuple[Column, ...], list[tuple[Any, ...]]]] = {
    "text": ((REGION,), [("a",), ("a ",), ("A",), ("",), ("é",), ("e\u0301",), ("it's",)]),
    "composite": ((REGION, Column("id", "bigint", False, "int64")), [("a", 1), ("a", 2), ("b", 1)]),
    "hashed": ((HASHED,), [("0f" * 32,), ("0e" * 32,)]),
    "binary": ((Column("uid", "binary(4)", False, "binary"),), [(b"\0\1\2\3",), (b"\0\1\2\0",)]),
}


@pytest.mark.parametrize("version", ["update_at", None])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_kind(warehouse: Warehouse, kind: str, version: str | None) -> None:
    key, values = KEYS[kind]
    table = TargetTable(
        name="prices",
        columns=(UPDATED, *key),
        primary_key=tuple(column.name for column in key),
        version=version,
    )
    loads = Loads(warehouse, table)
    at = {"update_at": datetime(2025, 8, 1)}
    rows = [dict(zip(table.primary_key, value, strict=True)) | at for value in values]
    loads.load(loads.chunk(rows))
    for gone in (rows[:1], rows[1:-1]):
        found = loads.reconciled(gone)
        loads.load_reconciled(found)
        assert loads.deleted_rows()[found[0].head] == len(gone)
    assert loads.rows() == rows[-1:]


def test_a_version_in_the_key(warehouse: Warehouse) -> None:
    table = structs.replace(ORDERS, primary_key=("update_at", "id"))
    loads = Loads(warehouse, table)
    loads.load(loads.chunk([order(1, 1), order(1, 2), order(2, 1)]))
    loads.load_reconciled(loads.reconciled([order(1, 1)]))
    assert loads.rows() == sorted([order(1, 2), order(2, 1)], key=repr)


def test_a_table_that_others_have_widened(orders: Loads) -> None:
    wide = (
        Column("id", "decimal(20,0)", False, "decimal128(20, 0)"),
        *ORDERS.columns[1:],
        Column("owner", "varchar(10)", True, "string"),
    )
    loads = Loads(orders.warehouse, structs.replace(ORDERS, columns=wide), orders.source)
    loads.load(loads.chunk([order(1, 5) | {"owner": "a"}, order(2, 5) | {"owner": "b"}]))
    found = orders.reconciled([order(1, 5)], head=ManifestId(1, 2), deleted_at="_DELETED_at")
    orders.load_reconciled(found)
    orders.load_reconciled(orders.reconciled([order(2, 5)], head=ManifestId(1, 3)))
    ((owner, mark),) = orders.warehouse.query(
        f"SELECT owner, {quoted(deleted_at_of(orders.warehouse))} FROM {{schema}}.orders"
    )
    assert (owner, mark) == ("a", AT)


def deleted_at_of(warehouse: Warehouse) -> str:
    """The column `_DELETED_at` as the target spells it."""
    with warehouse.open() as target:
        return next(name for name in target._columns_of("orders") if name.lower() == "_deleted_at")


def test_the_column_for_deletes_must_hold_a_time(orders: Loads) -> None:
    orders.load(orders.chunk([order(1, 5)]))
    with pytest.raises(SchemaConflict, match=r"^orders\.note is .*deleted rows$"):
        orders.load_reconciled(orders.reconciled([order(1, 5)], deleted_at="note"))
    assert orders.rows() == [order(1, 5)]


@pytest.mark.parametrize("deleted_at", [None, "_deleted_at"], ids=["hard", "soft"])
def test_marked_rows_are_not_read_back(orders: Loads, deleted_at: str | None) -> None:
    orders.load(orders.chunk([order(n, n) for n in (1, 2, 3)]))
    orders.load_reconciled(orders.reconciled([order(2, 2)], deleted_at=deleted_at))
    everything = Extent(columns=("id",), start=(0,), end=(9,))
    with orders.warehouse.open() as target:
        table = structs.replace(ORDERS, deleted_at="_deleted_at")
        found = [int(n) for batch in target.read(table, [everything]) for n in batch[0].to_pylist()]
    assert sorted(found) == [1, 3]


def test_marked_rows_do_not_count(orders: Loads) -> None:
    orders.load(orders.chunk([order(n, n) for n in (1, 2, 3)]))
    orders.load_reconciled(orders.reconciled([order(2, 2)], deleted_at="_deleted_at"))
    with orders.warehouse.open() as target:
        marked = structs.replace(ORDERS, deleted_at="_deleted_at")
        assert (target.count(ORDERS), target.count(marked)) == (3, 2)


def test_rows_without_a_key_are_counted(warehouse: Warehouse) -> None:
    loads = Loads(warehouse, ORDERS)
    loads.load(loads.chunk([order(1, 5)]))  # which makes the schema
    warehouse.query("CREATE TABLE {schema}.codes (id BIGINT NOT NULL, code VARCHAR(9))")
    warehouse.query("INSERT INTO {schema}.codes VALUES (1, 'a'), (2, NULL), (3, NULL)")
    compared = ComparedTable(
        table=TargetTable(
            name="codes",
            columns=(ORDERS.columns[0], Column("code", "varchar(9)", False, "string")),
            primary_key=("id", "code"),
            version=None,
        ),
        key=("integer", "text"),
        version=None,
        hashing=Hashing.random(),
        extents=(),
    )
    with warehouse.open() as target:
        assert target.count_without_key(compared) == 2
        only_id = structs.replace(compared.table, primary_key=("id",))
        compared = structs.replace(compared, table=only_id, key=("integer",))
        assert target.count_without_key(compared) == 0


# Exactly once


@pytest.mark.parametrize("deleted_at", [None, "_deleted_at"], ids=["hard", "soft"])
def test_what_is_loaded_again_has_no_effect(orders: Loads, deleted_at: str | None) -> None:
    """A row that came back meanwhile, with the same version, stays."""
    orders.load(orders.chunk([order(1, 5), order(2, 5)]))
    found = orders.reconciled([order(1, 5)], [order(2, 1, "repaired")], deleted_at=deleted_at)
    assert orders.load_reconciled(found) == 1
    orders.load(orders.chunk([order(1, 5, "came back"), order(2, 6, "newer")]))
    assert orders.load_reconciled(found) == 0
    assert orders.rows() == [order(1, 5, "came back"), order(2, 6, "newer")]
    assert orders.deleted_rows()[found[0].head] == 1


def test_a_crash_anywhere_leaves_nothing_or_everything(
    orders: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = structs.replace(ORDERS, deleted_at="_deleted_at")
    orders.load(orders.chunk([order(1, 5), order(2, 5)]), table=table)
    chunk, deletes = orders.reconciled(
        [order(1, 5)], [order(2, 1, "repaired")], deleted_at="_deleted_at"
    )
    batch = orders.batch(chunk, deletes=deletes, wins=True, table=table)
    for step in range(1, 100):
        with orders.warehouse.open() as target:
            count = fail_at(target, step, "after", monkeypatch)
            try:
                target.load(batch)
            except FloodmarkError as error:
                assert error.message == "struck", error  # noqa: PT017
                if "_commit" not in count:
                    assert target.ledger(orders.source, 1)[1:] == []
                    assert marks(orders) == {1: ("first", None), 2: ("first", None)}, count
                    continue
        assert orders.load_reconciled((chunk, deletes)) == 0
        assert orders.deleted_rows()[chunk.head] == 1
        assert marks(orders) == {1: ("first", AT), 2: ("repaired", None)}
        assert step > 10
        return
    raise AssertionError("the load never ended")


def test_a_passing_conflict_is_tried_again(orders: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.load(orders.chunk([order(1, 5), order(2, 5)]))
    chunk, deletes = orders.reconciled([order(1, 5)], [order(2, 1, "repaired")])
    with orders.warehouse.open() as target:
        commit, conflicts = target._commit, iter(range(2))

        def conflicted() -> None:
            for _ in conflicts:
                raise PassingConflict("conflict with another transaction")
            commit()

        monkeypatch.setattr(target, "_commit", conflicted)
        assert target.load(orders.batch(chunk, deletes=deletes, wins=True)) == 1
    assert orders.rows() == [order(2, 1, "repaired")]
    assert orders.deleted_rows()[chunk.head] == 1


def test_three_loaders_at_once_delete_once(warehouse: Warehouse, orders: Loads) -> None:
    orders.load(orders.chunk([order(n, 5) for n in range(50)]))
    chunk, deletes = orders.reconciled(
        [order(n, 5) for n in range(40)], [order(45, 1, "repaired")], deleted_at="_deleted_at"
    )
    batch = orders.batch(chunk, deletes=deletes, wins=True)
    table = structs.replace(ORDERS, deleted_at="_deleted_at")
    barrier = threading.Barrier(3)

    def load(_: int) -> int:
        with warehouse.open() as target:
            barrier.wait()
            target.prepare(table)
            return target.load(structs.replace(batch, table=table))

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(load, range(3))) == [0, 0, 1]
    assert orders.deleted_rows()[chunk.head] == 40
    left = sorted(number for number, (_, mark) in marks(orders).items() if mark is None)
    assert left == list(range(40, 50))


# Another order


@pytest.mark.parametrize("version", ["update_at", None])
def test_rows_that_come_late_stay_deleted(warehouse: Warehouse, version: str | None) -> None:
    """A manual watermark left the first manifest out; it is loaded after the reconciliation."""
    loads = Loads(warehouse, structs.replace(ORDERS, version=version))
    late = loads.chunk([order(1, 5), order(2, 5), order(3, 7, "only"), order(4, None)])
    loads.load(loads.chunk([order(1, 5), order(9, 5)]))
    chunk, deletes = loads.reconciled([order(1, 5), order(2, 6), order(3, 6), order(4, 1)])
    loads.load_reconciled((chunk, deletes))
    pending = structs.replace(deletes, head=ManifestId(1, 4), paths=("deletes/none.parquet",))
    loads.load(late, deleted_later=(deletes, pending))
    assert loads.rows() == [order(9, 5)]


@pytest.mark.parametrize("version", ["update_at", None])
def test_deletes_that_come_late_give_way(warehouse: Warehouse, version: str | None) -> None:
    loads = Loads(warehouse, structs.replace(ORDERS, version=version))
    loads.load(loads.chunk([order(1, 5), order(2, 5)]))
    found = loads.reconciled([order(1, 5), order(2, 5)], [order(3, 5, "repaired")])
    loads.load(loads.chunk([order(2, 6, "came back"), order(3, 6, "newer")]))
    loads.load_reconciled(found)
    stays = [] if version else [order(1, 5)]  # the next reconciliation removes it
    assert loads.rows() == [*stays, order(2, 6, "came back"), order(3, 6, "newer")]


@pytest.mark.parametrize("deleted_at", [None, "_deleted_at"], ids=["hard", "soft"])
def test_a_replay_ends_in_the_same_state(orders: Loads, deleted_at: str | None) -> None:
    rows: Any = None
    table = structs.replace(ORDERS, deleted_at=deleted_at)
    first = orders.chunk([order(n, 5) for n in (1, 2, 3)])
    found = orders.reconciled(
        [order(1, 5), order(2, 5)], [order(3, 1, "repaired")], deleted_at=deleted_at
    )
    last = orders.chunk([order(2, 6, "came back")])
    for epoch in (1, 2, 3):
        if epoch == 3:  # the target is lost
            orders.warehouse.query("DROP TABLE {schema}.orders")
        orders.load(first, load_epoch=epoch, table=table)
        orders.load_reconciled(found, load_epoch=epoch)
        orders.load(last, load_epoch=epoch, table=table)
        again = orders.rows(MARKED if deleted_at else ORDERS)
        rows = rows or again
        assert again == rows
        assert orders.deleted_rows(epoch)[found[0].head] == 2
    assert len(rows) == (3 if deleted_at else 2)


# Failures


def test_another_number_of_keys_than_the_manifest_names_is_refused(orders: Loads) -> None:
    orders.load(orders.chunk([order(1, 5)]))
    chunk, deletes = orders.reconciled([order(1, 5)])
    with pytest.raises(FloodmarkError, match="lists 2 deleted keys, but 1 were found"):
        orders.load_reconciled((chunk, structs.replace(deletes, keys=2)))
    orders.warehouse.lake.open().delete(deletes.paths[0])
    with pytest.raises(FloodmarkError, match=deletes.paths[0].rpartition("/")[2]):
        orders.load_reconciled((chunk, deletes))
    assert orders.rows() == [order(1, 5)]
    assert chunk.head not in orders.deleted_rows()


def test_a_ledger_of_an_earlier_version_gets_the_count(orders: Loads) -> None:
    orders.load(orders.chunk([order(1, 5)]))
    orders.warehouse.query(f"ALTER TABLE {{schema}}.{LEDGER} DROP COLUMN deleted_rows")
    assert orders.deleted_rows() == {ManifestId(1, 1): 0}
    orders.load_reconciled(orders.reconciled([order(1, 5)]))
    assert orders.deleted_rows() == {ManifestId(1, 1): 0, ManifestId(1, 2): 1}
