"""`sync --redshift-only --adopt`: Parquet files that older systems left without a manifest."""

import io
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import processes
from floodmark.config.models import (
    DuckdbConnection,
    MysqlConnection,
    TableSettings,
)
from floodmark.config.secret import Secret
from floodmark.errors import BusyError
from floodmark.model.lake_layout import data_file_key
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.state import operator_changes
from floodmark.state.legacy_files import is_legacy_file
from floodmark.sync.adopt import Adoption, AdoptionResult, adopt_files
from pipelines import Ended, Pipeline, ask_once
from processes import Doom, DoomedObjectStore
from scenarios import Lake, open_store
from warehouses import Warehouse, name_target, new_warehouse

pytestmark = pytest.mark.enough_on("mysql")  # it is about files in the lake

New = Callable[..., Pipeline]

COLUMNS = (
    "id BIGINT PRIMARY KEY, amount DECIMAL(12,4), note VARCHAR(20), seen TIMESTAMP(6) NULL,"
    " update_at DATETIME NOT NULL, KEY (update_at, id)"
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.decimal128(12, 4)),
        ("note", pa.string()),
        ("seen", pa.timestamp("us", "UTC")),
        ("update_at", pa.timestamp("us")),
    ]
)
JUNE = datetime(2025, 6, 1, 12, 30, 15)  # noqa: DTZ001 - a DATETIME has no zone
LOAD = ("sync", "-p", "main", "--redshift-only", "--adopt")


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "amount": Decimal("12.3456"),
        "note": f"note {number}",
        "seen": JUNE.replace(tzinfo=UTC, microsecond=123456),
        "update_at": JUNE,
        **changes,
    }


def parquet(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink, **options)
    return sink.getvalue()


def other(name: str, kind: pa.DataType) -> pa.Schema:
    return SCHEMA.set(SCHEMA.get_field_index(name), pa.field(name, kind))


def new(pipeline: New, **options: Any) -> Pipeline:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, **options)
    ask_once(it, f"CREATE TABLE t ({COLUMNS})")
    return it


def put(it: Pipeline, name: str, data: bytes, *, hours: float | None = None) -> str:
    """Write a file as an older system did; `hours` from now say when."""
    key = f"incremental/{it.schema}.t/{name}"
    it.lake.open().put(key, data)
    if hours is not None:
        assert it.lake.folder is not None
        moment = time.time() + hours * 3600
        os.utime(Path(it.lake.folder) / key, (moment, moment))
    return key


def set_by_hand(it: Pipeline, moment: datetime) -> None:
    operator_changes.set_position(open_store(it.lake.open()), it.table(), Position(moment))


def loaded(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    names = ", ".join(SCHEMA.names)
    return sorted(warehouse.query(f"SELECT {names} FROM {{schema}}.t"))


def values(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(one[name] for name in SCHEMA.names) for one in rows]


@pytest.mark.follows_hint("set a time before it: floodmark watermark set -t …")
@pytest.mark.parametrize("kind", ["duckdb", "postgres", "redshift"])
def test_files_after_a_manual_watermark_are_adopted_once(
    pipeline: New, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """Seed 003; in the types in which pandas and Spark leave them."""
    it = new(pipeline, lake="ministack" if kind == "redshift" else "local")
    warehouse = new_warehouse(kind, request, tmp_path)
    name_target(it.config, warehouse.connection)
    put(it, "before.parquet", parquet([row(9)]))
    time.sleep(1.1)  # an object store keeps seconds
    moment = datetime.now(UTC)
    time.sleep(1.1)
    exact = put(it, "a/exact.parquet", parquet([row(1)], compression="snappy"))
    nanoseconds = other("update_at", pa.timestamp("ns"))
    put(it, "pandas.parquet", parquet([row(2)], nanoseconds, version="2.6"))
    put(it, "milliseconds.parquet", parquet([row(3)], other("update_at", pa.timestamp("ms"))))
    put(it, "wide.parquet", parquet([row(4)], other("amount", pa.decimal128(20, 6))))
    put(it, "order.parquet", parquet([row(5)], pa.schema(reversed(list(SCHEMA)))))
    put(it, "small.parquet", parquet([row(6)], store_decimal_as_integer=True))
    put(it, "texts.parquet", parquet([row(7)], other("note", pa.large_string())))
    set_by_hand(it, moment)
    before = it.watermark()

    ended = it.call(*LOAD, "--json")
    assert ended.code == 0, ended
    assert (ended.table["adopted_files"], ended.table["adopted_rows"]) == (7, 7)
    assert (ended.table["loaded_rows"], ended.table["left_out_files"]) == (7, 1)
    assert f"files after {moment:%Y-%m-%d %H:%M:%S}" in ended.err
    assert "1 files of an older system are outside the time window" in ended.err
    expected = values(*map(row, range(1, 8)))
    assert [plain(found) for found in loaded(warehouse)] == expected
    after = it.watermark()
    assert after.position == before.position
    assert after.metadata.manual_set_at == before.metadata.manual_set_at
    assert (after.backup_strategy, after.mysql_state.status) == ("manual_cli", "pending")
    assert (after.mysql_state.total_rows, after.mysql_state.s3_file_count) == (7, 7)
    assert exact in it.named_files()

    again = it.call(*LOAD, "--json")
    assert again.code == 0, again
    assert (again.table["adopted_files"], again.table["loaded_rows"]) == (0, 0)
    assert it.call("watermark", "validate").code == 0
    listed = it.call("s3clean", "list", "-t", f"{it.schema}.t", "--json").value
    assert [file["state"] for file in listed] == ["loaded"] * 7
    assert "adopted: " in it.call("watermark", "history", "-t", f"{it.schema}.t").out
    it.call("watermark", "reset", "-t", f"{it.schema}.t", "--redshift-only", "--force")
    assert it.call("sync", "-p", "main", "--redshift-only", "--json").table["loaded_rows"] == 7
    assert [plain(found) for found in loaded(warehouse)] == expected


def plain(found: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
        for value in found
    )


def test_without_a_manual_watermark_files_around_the_last_extraction_are_adopted(
    pipeline: New,
) -> None:
    it = new(pipeline, settings="loading: {adopt_hours: 2.5}")
    ask_once(it, "INSERT INTO t VALUES (1, 1, 'newer', NULL, '2025-07-01')")
    assert it.synced()["rows"] == 1
    for number, hours in enumerate([-2.6, -2.4, 2.4, 2.6], start=1):
        put(it, f"{number}.parquet", parquet([row(1), row(number)]), hours=hours)
    before = it.watermark()
    plan = it.call(*LOAD, "--dry-run", "--json").value[0]
    assert plan["adopt"] == {"files": 2, "left_out": 2}
    assert it.watermark() == before
    ended = it.call(*LOAD, "--json")
    assert ended.code == 0, ended
    assert "Using session-based incremental DuckDB loading: files from" in ended.err
    assert (ended.table["adopted_rows"], ended.table["left_out_files"]) == (4, 2)
    notes = [found[2] for found in loaded(duckdb(it))]
    assert notes == ["newer", "note 2", "note 3"], "what is newer stays"
    after = it.watermark()
    assert after.mysql_state.last_extraction_time == before.mysql_state.last_extraction_time
    assert after.mysql_state.status == "success"


def duckdb(it: Pipeline) -> Warehouse:
    return Warehouse(DuckdbConnection(path=str(it.folder / "warehouse.duckdb")), it.lake)


@pytest.mark.parametrize("manual", [True, False])
def test_if_the_filter_leaves_none_that_is_a_failure(pipeline: New, *, manual: bool) -> None:
    it = new(pipeline)
    ask_once(it, "INSERT INTO t VALUES (1, 1, 'newer', NULL, '2025-07-01')")
    assert it.call("sync", "-p", "main").code == 0
    for number in (1, 2):
        put(it, f"{number}.parquet", parquet([row(number)]), hours=-20 + number)
    if manual:
        set_by_hand(it, datetime.now(UTC) - timedelta(hours=1))
    ended = it.call(*LOAD)
    assert ended.code == 1
    assert "Found 2 files, filtered to 0 files for loading: the newest was created" in ended.out
    newest = datetime.now(UTC) - timedelta(hours=18)
    assert f"created at {newest:%Y-%m-%d %H}" in ended.out
    assert "watermark set" in ended.err
    assert it.watermark().redshift_state.status == "failed"
    assert it.watermark().metadata.manual_watermark == manual


@pytest.mark.follows_hint("set that time: floodmark watermark set -t …")
def test_a_table_that_was_never_extracted_needs_a_time(pipeline: New) -> None:
    it = new(pipeline)
    put(it, "1.parquet", parquet([row(1)]))
    mentioned = it.call("sync", "-p", "main", "--redshift-only")
    assert "1 Parquet file without a manifest; --adopt loads them" in mentioned.err
    ended = it.call(*LOAD)
    assert ended.code == 1
    assert "Found 1 files, but no time from which to adopt them" in ended.out
    assert it.call("sync", "-p", "main", "--adopt").code == 2
    set_by_hand(it, JUNE.replace(tzinfo=UTC))
    assert it.call(*LOAD, "--json").table["loaded_rows"] == 1


# What does not fit

MISMATCHES: dict[str, tuple[bytes, str]] = {
    "a column too few": (
        parquet([row(1)], SCHEMA.remove(1)),
        "amount is missing in the file, but decimal128(12, 4) in the source",
    ),
    "a column too many": (
        parquet([row(1, batch=1)], SCHEMA.append(pa.field("batch", pa.int32()))),
        "batch exists in the file (int32) but not in the source",
    ),
    "a moment for a DATETIME": (
        parquet(
            [row(1, update_at=JUNE.replace(tzinfo=UTC))],
            other("update_at", pa.timestamp("us", "UTC")),
        ),
        "update_at is timestamp[us, tz=UTC] in the file, but timestamp[us] in the source",
    ),
    "a number that may be rounded": (
        parquet([row(1, amount=1.1)], other("amount", pa.float64())),
        "amount is double in the file, but decimal128(12, 4) in the source",
    ),
    "a value that is too large": (
        parquet([row(1, amount=Decimal("1e12"))], other("amount", pa.decimal128(20, 2))),
        "amount has a value that is not decimal128(12, 4)",
    ),
    "less than a microsecond": (
        parquet([row(1, update_at=1)], other("update_at", pa.timestamp("ns")), version="2.6"),
        "update_at has a value that is not timestamp[us]",
    ),
    "a key that is NULL": (
        parquet([row(None)]),  # type: ignore[arg-type]
        "id is in the primary key, but NULL in 1 of ",
    ),
    "no Parquet at all": (b"PAR1 or so", "not a readable Parquet file"),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_what_does_not_fit_is_refused_with_both_sides(pipeline: New, case: str) -> None:
    it = new(pipeline)
    data, message = MISMATCHES[case]
    put(it, "1_fits.parquet", parquet([row(7)]))
    put(it, "2_does_not.parquet", data)
    set_by_hand(it, JUNE.replace(tzinfo=UTC))
    files = {info.key for info in it.lake.open().list_objects("incremental/")}
    ended = it.call(*LOAD)
    assert ended.code == 1
    assert f"2_does_not.parquet does not fit PROD:{it.schema}.t: {message}" in ended.out
    assert len(it.chunks()) == 0, "all or none"
    assert {info.key for info in it.lake.open().list_objects("incremental/")} == files


# Whose files they are


def test_our_own_orphans_are_never_adopted(pipeline: New) -> None:
    it = new(pipeline)
    set_by_hand(it, JUNE.replace(tzinfo=UTC))
    ours = data_file_key(it.table(), "20250801_101112_abcdef", 12, 3, 4, 5)
    strays = [
        ours,
        f"incremental/{it.schema}.t/{ours.rpartition('/')[2]}",
        f"incremental/{it.schema}.t/_temporary/0/part-0.parquet",
        f"incremental/{it.schema}.t/_SUCCESS",
        f"incremental/{it.schema}.t/1.parquet.crc",
        f"incremental/{it.schema}.tt/1.parquet",
        "incremental/1.parquet",
    ]
    for key in strays:
        it.lake.open().put(key, parquet([row(1)]))
    ended = it.call(*LOAD, "--json")
    assert ended.code == 0, ended
    assert ended.table["adopted_files"] == 0
    foreign = f"incremental/PROD/{it.schema}.t/2025/export.parquet"
    it.lake.open().put(foreign, parquet([row(2)]))
    assert it.call(*LOAD, "--json").table["adopted_rows"] == 1
    assert it.named_files() == {foreign}
    elsewhere = it.call(*LOAD[:3], "--redshift-only", "--adopt-from", "incremental/", "--json")
    assert elsewhere.code == 0, elsewhere
    assert f"incremental/{it.schema}.tt/1.parquet" in it.named_files()


def test_every_name_that_our_tasks_give_is_known_as_ours() -> None:
    table = TableName("A_b", "sch$ema", "tä-ble 1")
    for suffix in ("0a1b2c", "ffffff"):
        for numbers in ((1, 0, 0, 0), (123_456_789, 99_999, 12, 3)):
            assert not is_legacy_file(data_file_key(table, f"20261115_000000_{suffix}", *numbers))


def test_without_a_key_nothing_is_adopted(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: update_at}"})
    ask_once(it, f"CREATE TABLE t ({COLUMNS.replace(' PRIMARY KEY', '')})")
    put(it, "1.parquet", parquet([row(1)]))
    set_by_hand(it, JUNE.replace(tzinfo=UTC))
    ended = it.call(*LOAD)
    assert ended.code == 1
    assert "has no primary key: adopted rows" in ended.out


def test_a_folder_that_may_be_another_tables_is_refused(pipeline: New) -> None:
    it = new(pipeline)
    config = Path(it.config)
    text = config.read_text()
    source = json.dumps({"type": "mysql", **it.source})
    text = text.replace("connections:\n", f"connections:\n  OTHER: {source}\n")
    more = (
        "  more:\n    source: OTHER\n    target: warehouse\n"
        f"    tables: {{{it.schema}.t: {{target_name: u}}}}\n"
    )
    config.write_text(text.rstrip() + "\n" + more)
    put(it, "1.parquet", parquet([row(1)]))
    set_by_hand(it, JUNE.replace(tzinfo=UTC))
    ended = it.call(*LOAD)
    assert ended.code == 1
    assert f"may belong to OTHER:{it.schema}.t or PROD:{it.schema}.t" in ended.out
    folder = f"incremental/{it.schema}.t"
    ended = it.call(*LOAD, "--adopt-from", folder, "--json")
    assert ended.table["adopted_rows"] == 1


# Faults


def adopt(
    lake: Lake, source: dict[str, Any], table: TableName, objects: Any = None
) -> AdoptionResult:
    adoption = Adoption(
        store=open_store(objects or lake.open()),
        warehouse_of=lambda _: "DuckDB",
        hours=10,
        most_bytes=1,  # a manifest for every file
        most_file_bytes=1 << 30,
        session_id=f"20260101_000000_{os.urandom(3).hex()}",
    )
    connection = MysqlConnection(**{**source, "password": Secret(source["password"])})
    return adopt_files(adoption, table, connection, TableSettings(cursor=["update_at", "id"]))


def adopt_and_die(lake: Lake, source: dict[str, Any], table: TableName, step: int) -> None:
    adopt(lake, source, table, DoomedObjectStore(lake.open(), Doom(step, "after")))


def adopt_beside_others(lake: Lake, source: dict[str, Any], table: TableName, answer: Any) -> None:
    answer.send("ready")
    answer.recv()
    try:
        answer.send(adopt(lake, source, table).files)
    except BusyError:
        answer.send(0)


def with_files(it: Pipeline, folder: str) -> Lake:
    """A lake of its own with three files, one of which must be written again."""
    lake = Lake(folder=str(it.folder / folder))
    schemas = [SCHEMA, other("update_at", pa.timestamp("ms")), SCHEMA]
    for number, schema in enumerate(schemas):
        key = f"incremental/{it.schema}.t/{number}.parquet"
        lake.open().put(key, parquet([row(number)], schema))
    operator_changes.set_position(
        open_store(lake.open()), it.table(), Position(JUNE.replace(tzinfo=UTC))
    )
    return lake


def check_adopted(it: Pipeline, lake: Lake) -> None:
    there = replace(it, lake=lake)
    assert sorted(there.ids().items()) == [(0, 1), (1, 1), (2, 1)]
    assert there.findings().differences == ()


def test_an_adoption_may_be_killed_anywhere(pipeline: New) -> None:
    it = new(pipeline)
    for step in range(2, 300, 5):
        lake = with_files(it, f"lake{step}")
        process = processes.start(adopt_and_die, lake, dict(it.source), it.table(), step)
        process.join(timeout=60)
        assert process.exitcode in (0, -signal.SIGKILL)
        done = adopt(lake, dict(it.source), it.table()).files
        assert 0 <= done <= 3
        check_adopted(it, lake)
        if process.exitcode == 0:
            assert done == 0
            assert step > 30
            return
    raise AssertionError("the adoption never ended")


def test_of_two_that_adopt_at_once_one_does(pipeline: New) -> None:
    it = new(pipeline)
    lake = with_files(it, "shared")
    ends = [processes.pipe() for _ in range(3)]
    runs = [
        processes.start(adopt_beside_others, lake, dict(it.source), it.table(), theirs)
        for _, theirs in ends
    ]
    assert all(ours.recv() == "ready" for ours, _ in ends)
    for ours, _ in ends:
        ours.send("go")
    assert sorted(ours.recv() for ours, _ in ends) == [0, 0, 3]
    for run in runs:
        run.join(timeout=60)
    check_adopted(it, lake)


def test_next_extraction_starts_at_the_manual_position(pipeline: New) -> None:
    it = new(pipeline)
    put(it, "1.parquet", parquet([row(1), row(2)]))
    set_by_hand(it, JUNE.replace(tzinfo=UTC))
    ended: Ended = it.call(*LOAD, "--json")
    assert ended.table["loaded_rows"] == 2
    ask_once(it, "INSERT INTO t VALUES (2, 1, 'changed', NULL, '2025-07-01')")
    assert it.call("sync", "-p", "main", "--json").table["loaded_rows"] == 1
    assert [found[2] for found in loaded(duckdb(it))] == ["note 1", "changed"]
    assert it.call("watermark", "validate").code == 0


def test_after_a_reset_files_are_adopted_again(pipeline: New) -> None:
    it = new(pipeline)
    ask_once(it, "INSERT INTO t (id, update_at) VALUES (1, '2025-06-01')")
    assert it.call("sync", "-p", "main").code == 0
    put(it, "old.parquet", parquet([row(2)]))
    put(it, "odd.parquet", parquet([row(3)], other("id", pa.int32())))
    assert it.call(*LOAD, "--json").table["adopted_files"] == 2
    assert it.call("watermark", "reset", "-t", f"{it.schema}.t", "--force").code == 0
    (it.folder / "warehouse.duckdb").unlink()
    assert it.call("sync", "-p", "main", "--json").table["loaded_rows"] == 1
    for files in (2, 0):
        ended = it.call(*LOAD, "--json")
        assert (ended.code, ended.table["adopted_files"], ended.table["loaded_rows"]) == (
            0,
            files,
            files,
        )
    assert it.call("watermark", "validate").code == 0
    cleaned = it.call("s3clean", "list", "-t", f"{it.schema}.t", "--json")
    assert {file["state"] for file in cleaned.value} == {"loaded"}


@pytest.mark.follows_hint("'loading: {adopt_mb: …}'")
@pytest.mark.parametrize("as_it_is", [True, False], ids=["as it is", "unpacked"])
def test_a_file_that_is_too_large_is_named_and_left(pipeline: New, *, as_it_is: bool) -> None:
    it = new(pipeline, settings="loading: {adopt_mb: 1}")
    moment = datetime.now(UTC)
    count = 1 if as_it_is else 30_000  # the same text compresses to nothing
    note = os.urandom(600_000).hex() if as_it_is else "x" * 20
    key = put(it, "large.parquet", parquet([row(n, note=note) for n in range(count)]))
    set_by_hand(it, moment - timedelta(hours=1))
    ended = it.call(*LOAD)
    said = " ".join((ended.out + ended.err).split())
    assert ended.code == 1, ended
    assert f"{key} does not fit" in said
    assert ("it has 1 MB, more than 1 MB" if as_it_is else "30,000 rows take") in said
    assert "'loading: {adopt_mb: …}'" in said
    config = Path(it.config)
    config.write_text(config.read_text().replace("adopt_mb: 1", "adopt_mb: 5"))
    assert it.call(*LOAD).code == 0


def test_adopted_files_hide_no_change_of_a_column(pipeline: New) -> None:
    it = new(pipeline)
    insert = "INSERT INTO t (id, note, update_at) VALUES"
    ask_once(it, f"{insert} (1, '1 old', '2025-06-01'), (2, '2 old', '2025-06-01')")
    assert it.call("sync", "-p", "main").code == 0
    ask_once(it, "UPDATE t SET note = LEFT(note, 2)")
    ask_once(it, "ALTER TABLE t MODIFY note VARCHAR(2)")
    put(it, "orders_20250601_120000.parquet", parquet([row(9, note="9")]))
    assert it.call(*LOAD).code == 0
    ask_once(it, f"{insert} (3, '3', '2025-06-02')")
    ended = it.call("sync", "-p", "main")
    assert (ended.code, "note was varchar(20)" in " ".join(ended.out.split())) == (1, True), ended
