"""A manual watermark and `--redshift-only`; a target that lost what it had; another key."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from msgspec import structs

from floodmark.config.models import (
    Connection,
    DuckdbConnection,
    PostgresConnection,
    RedshiftConnection,
)
from floodmark.errors import FloodmarkError
from floodmark.model.load_transitions import loaded
from floodmark.model.log_state import ManifestId
from floodmark.model.notice import Notice
from floodmark.model.position import Position
from floodmark.model.watermark import Watermark
from floodmark.state import operator_changes
from floodmark.state.watermark_store import WatermarkStore
from floodmark.warehouse.sql_dialect import LEDGER
from floodmark.warehouse.sql_target import SqlTarget
from pipelines import Pipeline, ask_once
from scenarios import open_store
from sources import SourceTable, Struck, check_loaded, load, source_tables
from warehouses import Warehouse, name_target, new_warehouse

NOON = datetime(2025, 9, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ALONE, TOGETHER = 1, 10**9


def store_at(warehouse: Warehouse, moment: datetime) -> WatermarkStore:
    return open_store(warehouse.lake.open(), clock=lambda: moment)


def extract_at(warehouse: Warehouse, table: SourceTable, moment: datetime, rows: int) -> None:
    """Let the source grow, and commit that as one chunk at some time."""
    table.change(Random(rows), inserts=rows)
    table.extract(store_at(warehouse, moment), chunk_rows=1000)


def set_at(warehouse: Warehouse, table: SourceTable, moment: datetime) -> None:
    operator_changes.set_position(open_store(warehouse.lake.open()), table.name, Position(moment))


def stand(warehouse: Warehouse, table: SourceTable) -> Watermark:
    watermark = open_store(warehouse.lake.open()).get(table.name)
    assert watermark is not None
    return watermark


def test_what_was_created_before_the_manual_timestamp_stays_pending(warehouse: Warehouse) -> None:
    single, *_ = source_tables()
    for hour, rows in enumerate([3, 4, 5]):
        extract_at(warehouse, single, NOON + hour * HOUR, rows)
    set_at(warehouse, single, NOON + HOUR)
    before = stand(warehouse, single)
    notices: list[Notice] = []
    for again in (False, True):
        result = load(warehouse, single, batch_bytes=ALONE, load_only=True, report=notices.append)
        assert (result.rows, result.manifests) == ((0, 0) if again else (5, 1))
        assert (result.left_out_manifests, result.left_out_rows) == (2, 7)
        assert "loading: files after 2025-09-01 13:00:00" in notices[-1].message
    after = stand(warehouse, single)
    assert len(warehouse.rows(single.target)) == after.redshift_state.total_rows == 5
    assert after.loaded_head == ManifestId(1, 0)  # never further than what is whole
    assert after.redshift_state.status == "pending"
    assert after.log_state == before.log_state  # stage 1 is as the operator left it
    assert after.metadata.manual_watermark
    assert after.backup_strategy == "manual_cli"
    assert load(warehouse, single, batch_bytes=TOGETHER).rows == 7
    check_loaded(warehouse, single)


def test_manual_watermark_does_not_limit_a_full_sync(warehouse: Warehouse) -> None:
    single, *_ = source_tables()
    extract_at(warehouse, single, NOON, 3)
    set_at(warehouse, single, NOON + HOUR)
    result = load(warehouse, single, batch_bytes=TOGETHER)
    assert (result.rows, result.left_out_manifests) == (3, 0)
    check_loaded(warehouse, single)


def test_if_the_filter_leaves_none_that_is_a_failure(warehouse: Warehouse) -> None:
    single, *_ = source_tables()
    extract_at(warehouse, single, NOON, 3)
    set_at(warehouse, single, NOON + HOUR)
    with pytest.raises(FloodmarkError) as caught:
        load(warehouse, single, batch_bytes=TOGETHER, load_only=True)
    assert "Found 1 files, filtered to 0 files for loading" in caught.value.message
    assert "the newest was created at 2025-09-01 12:00:00" in caught.value.message
    assert "watermark set" in str(caught.value.hint)
    after = stand(warehouse, single)
    assert after.redshift_state.status == "failed"
    assert after.metadata.manual_watermark
    set_at(warehouse, single, NOON - HOUR)
    assert load(warehouse, single, batch_bytes=TOGETHER, load_only=True).rows == 3
    check_loaded(warehouse, single)


def test_reset_then_set_then_load_what_is_in_the_lake(warehouse: Warehouse) -> None:
    """Seed 003: load existing files after a timestamp, and keep the manual watermark."""
    single, *_, keyless = source_tables()
    for table in (single, keyless):
        for hour, rows in enumerate([3, 4, 5]):
            extract_at(warehouse, table, NOON + hour * HOUR, rows)
        load(warehouse, table, batch_bytes=TOGETHER)
        operator_changes.reset(open_store(warehouse.lake.open()), table.name, ["extract", "load"])
        set_at(warehouse, table, NOON)
    result = load(warehouse, single, batch_bytes=TOGETHER, load_only=True)
    assert (result.rows, result.left_out_rows) == (9, 3)
    after = stand(warehouse, single)
    assert (after.redshift_state.total_rows, after.redshift_state.status) == (9, "success")
    assert after.loaded_head == after.head
    assert after.metadata.manual_watermark
    assert len(warehouse.rows(single.target)) == 12  # one row a key
    result = load(warehouse, keyless, batch_bytes=TOGETHER, load_only=True)
    assert (result.rows, result.left_out_rows) == (0, 12)
    for table in (single, keyless):
        operator_changes.reset(open_store(warehouse.lake.open()), table.name, ["extract", "load"])
        table.extract(open_store(warehouse.lake.open()), chunk_rows=5)
        load(warehouse, table, batch_bytes=TOGETHER)
        check_loaded(warehouse, table)


# A target that was lost


def lose(warehouse: Warehouse, table: SourceTable) -> None:
    for name in (LEDGER, table.target.name):
        warehouse.query(f'DROP TABLE {{schema}}."{name}"')


def test_a_lost_target_is_noticed_though_nothing_is_new(warehouse: Warehouse) -> None:
    single, *_ = source_tables()
    extract_at(warehouse, single, NOON, 3)
    load(warehouse, single, batch_bytes=TOGETHER)
    lose(warehouse, single)
    notices: list[Notice] = []
    load(warehouse, single, batch_bytes=TOGETHER, load_only=True, report=notices.append)
    assert "has lost loaded rows" in notices[0].message
    check_loaded(warehouse, single)


def test_without_a_key_rows_of_which_the_ledger_is_lost_are_not_loaded_twice(
    warehouse: Warehouse,
) -> None:
    *_, keyless = source_tables()
    extract_at(warehouse, keyless, NOON, 3)
    load(warehouse, keyless, batch_bytes=TOGETHER)
    warehouse.query(f"DROP TABLE {{schema}}.{LEDGER}")
    for _ in range(2):
        with pytest.raises(FloodmarkError, match=r"keyless has 3 rows, .* lists 0") as it:
            load(warehouse, keyless, batch_bytes=TOGETHER, load_only=True)
        assert "empty keyless" in str(it.value.hint)
    warehouse.query('DELETE FROM {schema}."keyless"')
    operator_changes.reset(open_store(warehouse.lake.open()), keyless.name, ["load"])
    load(warehouse, keyless, batch_bytes=TOGETHER, load_only=True)
    check_loaded(warehouse, keyless)


def test_dropped_table_is_not_silently_restarted(warehouse: Warehouse) -> None:
    single, *_ = source_tables()
    extract_at(warehouse, single, NOON, 3)
    load(warehouse, single, batch_bytes=TOGETHER)
    warehouse.query(f'DROP TABLE {{schema}}."{single.target.name}"')
    extract_at(warehouse, single, NOON + HOUR, 2)
    with pytest.raises(FloodmarkError, match=r"has no table single, .* 3 loaded rows") as caught:
        load(warehouse, single, batch_bytes=TOGETHER)
    assert "watermark reset -t A:shop.single --load-only" in str(caught.value.hint)
    assert stand(warehouse, single).redshift_state.status == "failed"
    operator_changes.reset(open_store(warehouse.lake.open()), single.name, ["load"])
    load(warehouse, single, batch_bytes=TOGETHER)
    check_loaded(warehouse, single)


def test_a_lost_target_is_noticed_if_it_knew_of_nothing_but_quarantine(
    warehouse: Warehouse,
) -> None:
    single, *_ = source_tables()
    extract_at(warehouse, single, NOON, 3)
    load(warehouse, single, batch_bytes=TOGETHER)
    lose(warehouse, single)
    open_store(warehouse.lake.open()).update(
        single.name,
        lambda now: loaded(
            now,
            through=now.loaded_head,
            total_rows=0,
            quarantined_rows=3,
            session_rows=0,
            now=NOON,
        ),
    )
    load(warehouse, single, batch_bytes=TOGETHER, load_only=True)
    check_loaded(warehouse, single)


def test_what_a_reset_emptied_is_loaded_again_after_a_restore(warehouse: Warehouse) -> None:
    *_, keyless = source_tables()
    extract_at(warehouse, keyless, NOON, 5)
    load(warehouse, keyless, batch_bytes=TOGETHER)
    operator_changes.reset(open_store(warehouse.lake.open()), keyless.name, ["load"])
    load(warehouse, keyless, batch_bytes=TOGETHER)
    check_loaded(warehouse, keyless)
    operator_changes.prepare_restore(
        open_store(warehouse.lake.open()), keyless.name, ManifestId(1, 1)
    ).commit()
    load(warehouse, keyless, batch_bytes=TOGETHER)
    check_loaded(warehouse, keyless)


@pytest.mark.parametrize("number", [0, 3], ids=["with a key", "without"])
def test_a_run_that_dies_while_it_fills_a_lost_target_loses_nothing(
    warehouse: Warehouse, number: int
) -> None:
    table = source_tables()[number]
    for hour in range(4):
        extract_at(warehouse, table, NOON + hour * HOUR, 3)
    load(warehouse, table, batch_bytes=ALONE)
    lose(warehouse, table)
    # DuckDB fills a new table in one transaction of any size.
    before = 0 if isinstance(warehouse.connection, DuckdbConnection) else 2

    def arm(target: SqlTarget) -> None:
        whole, count = target._load_once, 0

        def limited(batch: object) -> int:
            nonlocal count
            count += 1
            if count > before:
                raise Struck("struck")
            return whole(batch)  # type: ignore[arg-type]

        target._load_once = limited  # type: ignore[method-assign]

    with pytest.raises(Struck):
        load(warehouse, table, batch_bytes=ALONE, load_only=True, arm=arm)
    assert stand(warehouse, table).loaded_head == ManifestId(1, before)
    load(warehouse, table, batch_bytes=ALONE)
    check_loaded(warehouse, table)


# Another key


BOTH, ONE, NONE = ("code", "id"), ("id",), ()


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (BOTH, ONE, r"from \(code, id\) to \(id\)"),
        (BOTH, NONE, r"from \(code, id\) to nothing"),
        (NONE, BOTH, r"from nothing to \(code, id\)"),
    ],
)
def test_rows_of_another_key_are_refused(
    warehouse: Warehouse, before: tuple[str, ...], after: tuple[str, ...], shown: str
) -> None:
    """By the new key a row that changed would not be found, and be duplicated."""
    table = source_tables()[1]
    table.change(Random(1), inserts=5)
    table.key = before
    table.extract(open_store(warehouse.lake.open()), chunk_rows=5)
    load(warehouse, table, batch_bytes=TOGETHER)
    table.key = BOTH
    table.change(Random(2), inserts=0, updates=2)
    table.key = after
    table.extract(open_store(warehouse.lake.open()), chunk_rows=5)
    with pytest.raises(FloodmarkError, match=shown) as caught:
        load(warehouse, table, batch_bytes=TOGETHER)
    assert "watermark reset -t A:shop.composite --force'" in str(caught.value.hint)
    assert len(warehouse.rows(table.target)) == 5
    operator_changes.reset(open_store(warehouse.lake.open()), table.name, ["load"])
    with pytest.raises(FloodmarkError, match=shown):  # both are to be loaded now
        load(warehouse, table, batch_bytes=TOGETHER)
    warehouse.query('DROP TABLE {schema}."composite"')
    operator_changes.reset(open_store(warehouse.lake.open()), table.name, ["extract", "load"])
    table.extract(open_store(warehouse.lake.open()), chunk_rows=2)
    load(warehouse, table, batch_bytes=TOGETHER)
    check_loaded(warehouse, table)


# The command


@pytest.mark.parametrize("kind", ["duckdb", "postgres", "redshift"])
def test_failed_load_is_completed_without_reading_again(
    pipeline: Callable[..., Pipeline], request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """Seed 001: stage 1 done, stage 2 fails; the next run skips the one and does the other."""
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"}, lake="ministack" if kind == "redshift" else "local"
    )
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL)")
    ask_once(it, "INSERT INTO t VALUES (1, '2025-06-01'), (2, '2025-06-02')")
    warehouse = new_warehouse(kind, request, tmp_path)
    good = Path(it.config).read_text()
    wrong: Connection = PostgresConnection(port=1, database="none", user="nobody")
    if isinstance(
        warehouse.connection, RedshiftConnection
    ):  # whose lakes have a codec of their own
        wrong = structs.replace(warehouse.connection, port=1)
    name_target(it.config, wrong)
    failed = it.call("sync", "-p", "main", "--json")
    assert (failed.code, failed.table["rows"], failed.table["loaded_rows"]) == (1, 2, 0)
    watermark = it.watermark()
    assert watermark.mysql_state.status == "success"
    assert watermark.redshift_state.status == "failed"
    assert "cannot connect to" in str(watermark.redshift_state.error)
    Path(it.config).write_text(good)
    name_target(it.config, warehouse.connection)
    for rows in (2, 0):
        ended = it.call("sync", "-p", "main", "--json")
        assert ended.code == 0, ended
        assert (ended.table["rows"], ended.table["loaded_rows"]) == (0, rows)
        found = warehouse.query("SELECT id FROM {schema}.t")
        assert sorted(found) == [(1,), (2,)]
    state = it.watermark().redshift_state
    assert (state.status, state.total_rows, state.error) == ("success", 2, None)


@pytest.mark.follows_hint("set it to before the files: floodmark watermark set -t …")
def test_the_command_says_what_it_loads_and_leaves_out(
    pipeline: Callable[..., Pipeline],
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL)")
    ask_once(it, "INSERT INTO t VALUES (1, '2025-06-01'), (2, '2025-06-02')")
    for _ in range(2):
        assert it.synced("--limit", "1")["rows"] == 1
    name, load_only = f"{it.schema}.t", ("sync", "-p", "main", "--redshift-only")
    moment = it.manifests()[0].created_at.isoformat()
    it.call("watermark", "set", "-t", name, "--timestamp", moment, "--force")
    plan = it.call(*load_only, "--dry-run", "--json").value[0]
    assert (plan["load"]["rows"], plan["left_out"]["rows"]) == (1, 1)
    ended = it.call(*load_only, "--json")
    assert (ended.table["loaded_rows"], ended.table["left_out_rows"]) == (1, 1)
    assert "left out 1 manifest of 1 row," in ended.err
    document = it.call("watermark", "get", "-t", name, "--json").value
    assert document["metadata"]["manual_watermark"]
    assert document["mysql_state"]["last_timestamp"] == moment.replace("+00:00", "Z")
    later = it.manifests()[1].created_at.isoformat()
    assert it.call("watermark", "set", "-t", name, "--timestamp", later, "--force").code == 0
    ended = it.call(*load_only)
    assert ended.code == 1
    assert "Found 1 files, filtered to 0 files for loading" in ended.out
    hint = " ".join(ended.err.split()).partition("hint: set it to before the files: floodmark ")[2]
    assert hint.endswith("--timestamp …")
    command = hint.removesuffix("…").split()
    assert it.call(*command, "2025-01-01", "--force").code == 0
    assert it.call(*load_only, "--json").table["loaded_rows"] == 1


def test_a_duckdb_file_that_is_gone_is_made_again(pipeline: Callable[..., Pipeline]) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL)")
    ask_once(it, "INSERT INTO t VALUES (1, '2025-06-01')")
    for _ in range(2):
        assert it.call("sync", "-p", "main", "--json").table["loaded_rows"] == 1
        (it.folder / "warehouse.duckdb").unlink()


def test_a_table_without_a_key_does_not_go_back_unasked(
    pipeline: Callable[..., Pipeline],
) -> None:
    it = pipeline({"t": "{cursor: update_at}"})
    ask_once(it, "CREATE TABLE t (id INT, update_at DATETIME NOT NULL)")
    ask_once(it, "INSERT INTO t VALUES (1, '2025-06-01')")
    assert it.call("sync", "-p", "main").code == 0
    name = f"{it.schema}.t"
    back = (
        ("set", "-t", name, "--timestamp", "2025-05-01"),
        ("reset", "-t", name, "--mysql-only"),
    )
    for command in back:
        for force in ((), ("--force",)):
            refused = it.call("watermark", *command, *force)
            assert refused.code == 2
            assert "has no primary key: the rows of chunk 1-1" in refused.err
            assert len(it.manifests()) == 1
    same = ("restore", "-t", name, "--from", "1-1")
    assert it.call("watermark", *same).code == 2  # nobody can be asked
    assert it.call("watermark", *same, "--force").code == 0
