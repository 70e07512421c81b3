"""`watermark validate` against ledger and target: every kind of difference, and its repair."""

import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import duckdb
import pytest
from msgspec import structs

import processes
from floodmark.errors import FloodmarkError
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal, unseal
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest
from floodmark.model.watermark import Watermark
from floodmark.state.lake_validation import Findings
from floodmark.sync.loading import Loading
from floodmark.sync.validate import repair_table, validate_table
from floodmark.warehouse.sql_dialect import LEDGER
from pipelines import Pipeline, ask_once
from processes import Doom, DoomedObjectStore
from scenarios import open_store, use_test_keys
from sources import SourceTable, check_loaded, load, source_tables
from warehouses import Warehouse, new_warehouse, quoted

ALONE = 1


def filled(warehouse: Warehouse, number: int = 0) -> SourceTable:
    """A table with three chunks of ten rows, all loaded."""
    table = source_tables()[number]
    table.change(Random(1), inserts=30)
    table.extract(open_store(warehouse.lake.open()), chunk_rows=10)
    load(warehouse, table, batch_bytes=ALONE)
    assert look(warehouse, table).differences == ()
    return table


def loading_of(warehouse: Warehouse, table: SourceTable) -> Loading:
    return Loading(
        store=open_store(warehouse.lake.open()),
        open_target=warehouse.open,
        target_name=table.target.name,
        session_id="20250801_000000_abcdef",
        batch_bytes=ALONE,
    )


def look(warehouse: Warehouse, table: SourceTable) -> Findings:
    loading = loading_of(warehouse, table)
    return validate_table(loading.store, table.name, loading)


def repair(warehouse: Warehouse, table: SourceTable) -> None:
    loading = loading_of(warehouse, table)
    repair_table(loading.store, table.name, loading)


def change_ledger(sql: str) -> Callable[[Warehouse, SourceTable], None]:
    def tamper(warehouse: Warehouse, table: SourceTable) -> None:
        warehouse.query(sql.replace("LEDGER", f"{{schema}}.{quoted(LEDGER)}"))

    return tamper


def claim(rows: int, sequence: int) -> Callable[[Warehouse, SourceTable], None]:
    """Let the watermark say something else of what is loaded."""

    def tamper(warehouse: Warehouse, table: SourceTable) -> None:
        objects = warehouse.lake.open()
        key = lake_layout.primary(table.name)
        watermark: Watermark = unseal(objects.get(key).data, Watermark, name=key)
        state = structs.replace(watermark.redshift_state, total_rows=rows, loaded_sequence=sequence)
        changed = structs.replace(
            watermark, redshift_state=state, revision=watermark.revision + 100
        )
        objects.put(key, seal(changed))

    return tamper


def replace_manifest(warehouse: Warehouse, table: SourceTable) -> None:
    objects = warehouse.lake.open()
    key = lake_layout.manifest(table.name, ManifestId(1, 2))
    manifest: Manifest = unseal(objects.get(key).data, Manifest, name=key)
    objects.put(key, seal(structs.replace(manifest, author="somebody else")))


def empty_target(warehouse: Warehouse, table: SourceTable) -> None:
    warehouse.query(f"DELETE FROM {{schema}}.{quoted(table.target.name)}")


def drop_target(warehouse: Warehouse, table: SourceTable) -> None:
    warehouse.query(f"DROP TABLE {{schema}}.{quoted(table.target.name)}")


def drop_everything(warehouse: Warehouse, table: SourceTable) -> None:
    drop_target(warehouse, table)
    warehouse.query(f"DROP TABLE {{schema}}.{quoted(LEDGER)}")


# The change, the differences that are reported, and whether `--repair` fixes them.
DIFFERENCES: dict[str, tuple[Callable[[Warehouse, SourceTable], None], list[str], bool]] = {
    "another digest": (
        replace_manifest,
        ["manifest 1-2 is not the one that was loaded: its digest is"],
        False,
    ),
    "another number of rows": (
        change_ledger("UPDATE LEDGER SET row_count = 11 WHERE sequence = 2"),
        [
            "rows of manifest 1-2: 11 loaded in the ledger, 10 in the manifest",
            "rows loaded: 30 in the watermark, 31 in the ledger",
        ],
        False,
    ),
    "a ledger row is missing": (
        change_ledger("DELETE FROM LEDGER WHERE sequence = 2"),
        [
            "manifest 1-2 is loaded in the watermark, but not in the ledger",
            "rows loaded: 30 in the watermark, 20 in the ledger",
        ],
        True,
    ),
    "a ledger row of no manifest": (
        change_ledger("UPDATE LEDGER SET sequence = 9 WHERE sequence = 3"),
        [
            "manifest 1-9 is in the ledger, but not in the lake",
            "manifest 1-3 is loaded in the watermark, but not in the ledger",
        ],
        False,
    ),
    "the watermark is behind": (
        claim(10, 1),
        [
            "rows loaded: 10 in the watermark, 30 in the ledger",
            "loaded up to 1-1 in the watermark, but up to 1-3 in the ledger",
        ],
        True,
    ),
    "the watermark counts wrongly": (
        claim(0, 3),
        ["rows loaded: 0 in the watermark, 30 in the ledger"],
        True,
    ),
    "the target's table is empty": (
        empty_target,
        ["rows of single: 0 in the target, 30 loaded according to the ledger"],
        False,
    ),
    "the target's table is gone": (
        drop_target,
        ["the target has no table single, but its ledger has 30 loaded rows"],
        False,
    ),
    "the target is another": (
        drop_everything,
        [
            "manifest 1-1 is loaded in the watermark, but not in the ledger",
            "manifest 1-2 is loaded in the watermark, but not in the ledger",
            "manifest 1-3 is loaded in the watermark, but not in the ledger",
            "rows loaded: 30 in the watermark, 0 in the ledger",
        ],
        True,
    ),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_every_difference_is_named_and_its_repair_converges(
    warehouse: Warehouse, difference: str
) -> None:
    table = filled(warehouse)
    tamper, expected, can_be_repaired = DIFFERENCES[difference]
    tamper(warehouse, table)
    found = look(warehouse, table)
    assert len(found.differences) == len(expected), found.differences
    for text, start in zip(found.differences, expected, strict=True):
        assert text.startswith(start)
    held = None if "drop" in tamper.__name__ else warehouse.rows(table.target)
    repair(warehouse, table)
    after = look(warehouse, table).differences
    assert after == () if can_be_repaired else after
    repair(warehouse, table)
    assert look(warehouse, table).differences == after, "a second repair changes nothing"
    if held is not None:
        assert warehouse.rows(table.target) == held, "data is never touched"
    if can_be_repaired:
        load(warehouse, table, batch_bytes=ALONE)
        check_loaded(warehouse, table)


@pytest.mark.parametrize("sql", ["DELETE FROM {t}", "INSERT INTO {t} SELECT * FROM {t}"])
def test_without_a_key_rows_are_counted_exactly(warehouse: Warehouse, sql: str) -> None:
    table = filled(warehouse, 3)
    assert look(warehouse, table).target_rows == 30
    name = f"{{schema}}.{quoted(table.target.name)}"
    warehouse.query(sql.replace("{t}", name))
    (difference,) = look(warehouse, table).differences
    held = 0 if sql.startswith("DELETE") else 60
    assert difference == f"rows of keyless: {held} in the target, 30 loaded according to the ledger"


def test_the_same_ledger_row_twice_is_a_difference(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redshift keeps no key."""
    use_test_keys(monkeypatch)
    warehouse = new_warehouse("redshift", request, tmp_path)
    table = filled(warehouse)
    ledger = f"{{schema}}.{quoted(LEDGER)}"
    warehouse.query(f"INSERT INTO {ledger} SELECT * FROM {ledger} WHERE sequence = 2")
    assert "the ledger contains manifest 1-2 2 times" in look(warehouse, table).differences


def repair_and_die(warehouse: Warehouse, table: SourceTable, step: int) -> None:
    loading = loading_of(warehouse, table)
    objects = DoomedObjectStore(warehouse.lake.open(), Doom(step, "after"))
    store = open_store(objects)
    repair_table(store, table.name, structs.replace(loading, store=store))


@pytest.mark.parametrize("difference", ["the watermark is behind", "the target is another"])
def test_a_repair_may_be_killed_anywhere(
    request: pytest.FixtureRequest, tmp_path: Path, difference: str
) -> None:
    warehouse = new_warehouse("duckdb", request, tmp_path)
    for step in range(1, 100, 3):
        table = source_tables()[0]
        table = SourceTable(structs.replace(table.name, table=f"t{step}"), table.columns, table.key)
        table.change(Random(step), inserts=30)
        table.extract(open_store(warehouse.lake.open()), chunk_rows=10)
        load(warehouse, table, batch_bytes=ALONE)
        DIFFERENCES[difference][0](warehouse, table)
        process = processes.start(repair_and_die, warehouse, table, step)
        process.join(timeout=60)
        assert process.exitcode in (0, -signal.SIGKILL)
        repair(warehouse, table)
        assert look(warehouse, table).differences == ()
        load(warehouse, table, batch_bytes=ALONE)
        check_loaded(warehouse, table)
        if process.exitcode == 0:
            assert step > 10
            return
    raise AssertionError("the repair never ended")


def test_a_table_that_a_run_holds_is_left_alone(warehouse: Warehouse) -> None:
    table = filled(warehouse)
    claim(10, 1)(warehouse, table)
    with open_store(warehouse.lake.open()).lease(table.name):
        found = look(warehouse, table)
        assert found.differences == ()
        assert "is working on it" in found.remarks[-1]
        with pytest.raises(FloodmarkError, match="held by"):
            repair(warehouse, table)


# The command


@pytest.fixture
def synced(pipeline: Callable[..., Pipeline]) -> Pipeline:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL)")
    ask_once(it, "INSERT INTO t VALUES (1, '2025-06-01'), (2, '2025-06-02')")
    return it


def test_the_command_shows_what_is_loaded(synced: Pipeline) -> None:
    assert synced.call("watermark", "validate").code == 0  # before there is a target
    assert not (synced.folder / "warehouse.duckdb").exists(), "to look makes nothing"
    assert synced.call("sync", "-p", "main").code == 0
    shown = synced.call("watermark", "validate")
    assert "loaded 1 manifest, 2 rows; 2 rows in the target" in shown.out
    (synced.folder / "warehouse.duckdb").unlink()
    lost = synced.call("watermark", "validate")
    assert lost.code == 5
    assert "manifest 1-1 is loaded in the watermark, but not in the ledger" in lost.out
    assert synced.call("watermark", "validate", "--repair").code == 0
    assert synced.call("sync", "-p", "main", "--json").table["loaded_rows"] == 2
    assert synced.call("watermark", "validate").code == 0


def test_a_missing_target_table_is_named_with_the_way_out(synced: Pipeline) -> None:
    assert synced.call("sync", "-p", "main").code == 0
    with duckdb.connect(str(synced.folder / "warehouse.duckdb")) as database:
        database.execute("DROP TABLE t")
    ended = synced.call("watermark", "validate", "--repair")
    assert ended.code == 5
    assert "the target has no table t" in ended.out
    name, hint = f"PROD:{synced.schema}.t", " ".join(ended.out.split())
    assert f"hint: load it again: floodmark watermark reset -t {name} --load-only" in hint
    assert synced.call("watermark", "reset", "-t", name, "--load-only", "--force").code == 0
    assert synced.call("sync", "-p", "main", "--json").table["loaded_rows"] == 2
    assert synced.call("watermark", "validate").code == 0


def test_a_target_out_of_reach_is_no_clean_bill(synced: Pipeline) -> None:
    assert synced.call("sync", "-p", "main").code == 0
    config = Path(synced.config)
    nowhere = "{type: postgres, port: 1, database: none, user: nobody}"
    config.write_text(
        config.read_text().replace("{type: duckdb, path: ./warehouse.duckdb}", nowhere)
    )
    ended = synced.call("watermark", "validate", "--json")
    assert ended.code == 1
    assert "cannot connect to PostgreSQL" in ended.value[0]["unchecked"]
    assert "could not be checked" in ended.err
    assert synced.call("watermark", "validate", "--lake-only").code == 0


def test_a_missing_data_file_is_named_with_the_way_out(synced: Pipeline) -> None:
    assert synced.synced()["rows"] == 2
    synced.lake.open().delete(next(iter(synced.files())))
    ended = synced.call("watermark", "validate", "--repair")
    assert ended.code == 5
    assert "is missing" in ended.out
    name, hint = f"PROD:{synced.schema}.t", ended.out[ended.out.index("hint:") :]
    assert f"floodmark watermark reset -t {name}, then floodmark watermark set" in hint
    synced.call("watermark", "reset", "-t", name, "--force")
    moment = hint.split("'")[1]
    synced.call("watermark", "set", "-t", name, "--timestamp", moment, "--force")
    assert synced.call("sync", "-p", "main", "--json").table["loaded_rows"] == 2
    assert synced.call("watermark", "validate").code == 0
