"""Watermarks of older systems: every place, every spelling, every kind of document."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli.main import run
from floodmark.errors import CorruptDocument, StateError, StateLost
from floodmark.model import lake_layout
from floodmark.model.notice import Notice
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.state.legacy_watermarks import FOLDERS, any_case
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore
from scenarios import TABLE, Lake, land, new_lake, open_store, snapshot, use_test_keys, write_config

MOMENT = datetime(2025, 8, 14, 15, 30, 22, tzinfo=UTC)

# As in seed 001, but for the table's name.
FLAT: dict[str, Any] = {
    "last_mysql_extraction_time": "2025-08-14T16:45:33.123456Z",
    "last_mysql_data_timestamp": "2025-08-14T15:30:22Z",
    "mysql_rows_extracted": 1250000,
    "mysql_status": "success",
    "last_redshift_load_time": "2025-08-14T17:12:45.654321Z",
    "redshift_rows_loaded": 1250000,
    "redshift_status": "success",
    "backup_strategy": "sequential",
    "s3_file_count": 250,
    "processed_s3_files": ["s3://bucket/path/file1.parquet"],
    "last_error": None,
    "created_at": "2025-08-14T20:58:18.585905Z",
    "updated_at": "2025-08-14T22:45:33.970251Z",
    "metadata": {"manual_watermark": False, "total_processing_time_seconds": 4320},
}
# As in seed 003.
MANUAL: dict[str, Any] = {
    "last_mysql_data_timestamp": "2025-08-09 20:00:01",
    "last_mysql_extraction_time": "2025-08-14 15:30:45",
    "mysql_status": "success",
    "redshift_status": "pending",
    "backup_strategy": "manual_cli",
    "metadata": {"created_at": "2025-08-14T15:30:45Z", "updated_at": "2025-08-14T15:30:45Z"},
}
# As in seed 000.
NESTED: dict[str, Any] = {
    "version": "2.0",
    "mysql_state": {"last_id": 210050, "status": "success", "total_rows": 50},
    "redshift_state": {"status": "pending", "total_rows": 0},
}

DOTTED, UNDERSCORED = "shop.orders", "shop_orders"
NAMES = [
    DOTTED,
    UNDERSCORED,
    *(
        f"{scope}{sep}{name}"
        for scope in ("US_PROD", "us_prod")
        for sep in ":._"
        for name in (DOTTED, UNDERSCORED)
    ),
]


def put(objects: ObjectStore, key: str, document: object, **more: object) -> None:
    content = {**document, **more} if isinstance(document, dict) else document
    objects.put(key, json.dumps(content).encode())


def test_the_list_of_places_is_that_of_the_specification() -> None:
    assert set(FOLDERS) == {"watermarks/", "watermark/tables/", "watermarks/v2/"}
    assert set(any_case(TABLE)) == set(NAMES)


@pytest.mark.parametrize("named", [None, DOTTED, UNDERSCORED, "US_PROD:shop.orders"])
@pytest.mark.parametrize(("folder", "name"), list(product(FOLDERS, NAMES)))
def test_every_place_and_spelling_is_found(folder: str, name: str, named: str | None) -> None:
    for document, position, rows in (
        (FLAT, Position(MOMENT), 1250000),
        (NESTED, Position(id=210050), 50),
    ):
        objects = MemoryObjectStore()
        key = f"{folder}{name}.json"
        put(objects, key, document, **({"table_name": named} if named else {}))
        before = objects.get(key)
        watermark = open_store(objects, known=(TABLE,)).get(TABLE)
        assert watermark is not None
        assert watermark.position == position
        assert watermark.table_name == "US_PROD:shop.orders"
        imported = watermark.metadata.imported_from
        assert imported is not None
        assert (imported.key, imported.rows_reported) == (key, rows)
        assert watermark.mysql_state.total_rows == 0, "what others counted is not ours"
        assert objects.get(key) == before, "older documents are never changed"


@pytest.mark.parametrize("kind", ["local", "ministack"])
def test_every_place_is_found_in_a_real_lake(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_test_keys(monkeypatch)
    for number, (folder, name) in enumerate(product(FOLDERS, NAMES)):
        lake = new_lake(kind, request, tmp_path / str(number))
        put(lake.open(), f"{folder}{name}.json", FLAT)
        watermark = open_store(lake.open()).get(TABLE)
        assert watermark is not None
        assert watermark.position == Position(MOMENT)


def test_a_manual_watermark_stays_manual() -> None:
    objects = MemoryObjectStore()
    put(objects, "watermark/tables/shop_orders.json", MANUAL)
    watermark = open_store(objects).get(TABLE)
    assert watermark is not None
    assert watermark.position == Position(datetime(2025, 8, 9, 20, 0, 1, tzinfo=UTC))
    assert watermark.backup_strategy == "manual_cli"
    assert watermark.metadata.manual_watermark
    assert watermark.metadata.manual_set_at == datetime(2025, 8, 14, 15, 30, 45, tzinfo=UTC)


def test_the_one_furthest_behind_wins_and_all_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(folder=str(tmp_path / "lake"))
    objects = lake.open()
    put(objects, "watermarks/v2/US_PROD:shop.orders.json", FLAT)
    put(objects, "watermarks/shop.orders.json", MANUAL)
    arguments = ["-t", "shop.orders", "--config", write_config(tmp_path, lake)]

    assert run(["watermark", "get", *arguments, "--json"]) == 0

    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["mysql_state"]["last_timestamp"] == "2025-08-09T20:00:01Z"
    assert document["metadata"]["imported_from"]["key"] == "watermarks/shop.orders.json"
    warnings = [line for line in captured.err.splitlines() if line.startswith("warning:")]
    assert len(warnings) == 1
    for named in (
        "watermarks/shop.orders.json (2025-08-09 20:00:01)",
        "watermarks/v2/US_PROD:shop.orders.json (2025-08-14 15:30:22)",
    ):
        assert named in warnings[0]

    assert run(["watermark", "get", *arguments]) == 0
    captured = capsys.readouterr()
    assert "Imported From: watermarks/shop.orders.json" in captured.out
    assert captured.err == "", "adopted once, and not talked about again"
    assert run(["watermark", "history", *arguments]) == 0
    assert "import: from watermarks/shop.orders.json" in capsys.readouterr().out


def test_one_without_a_position_is_behind_all_others() -> None:
    """An older system's reset, perhaps: what another spelling remembers would skip everything."""
    objects = MemoryObjectStore()
    put(objects, "watermarks/v2/shop.orders.json", FLAT)
    put(objects, "watermarks/shop.orders.json", NESTED)  # cannot be compared with the first
    put(objects, "watermark/tables/shop_orders.json", FLAT | {"last_mysql_data_timestamp": None})
    notices: list[Notice] = []
    watermark = open_store(objects, notices=notices).get(TABLE)
    assert watermark is not None
    assert watermark.position == START
    assert "using watermark/tables/shop_orders.json (the start), which" in notices[-1].message
    for named in (
        "watermarks/v2/shop.orders.json (2025-08-14 15:30:22)",
        "watermarks/shop.orders.json (id 210050)",
    ):
        assert named in notices[-1].message


def test_those_without_a_position_alone_say_nothing() -> None:
    objects = MemoryObjectStore()
    for folder in FOLDERS:
        put(objects, f"{folder}shop.orders.json", FLAT | {"last_mysql_data_timestamp": None})
    assert open_store(objects).get(TABLE) is None


def test_the_furthest_behind_by_time_takes_the_least_id() -> None:
    """By a cursor of ids alone, the one that is ahead in time may be the one behind."""
    objects = MemoryObjectStore()
    for folder, day, number in (("watermarks/v2/", 9, 400), ("watermarks/", 1, 500)):
        state = {"last_timestamp": f"2025-08-0{day} 00:00:00", "last_id": number}
        put(objects, f"{folder}shop.orders.json", {"mysql_state": state})
    watermark = open_store(objects).get(TABLE)
    assert watermark is not None
    assert watermark.position == Position(datetime(2025, 8, 1, tzinfo=UTC), 400)
    imported = watermark.metadata.imported_from
    assert imported is not None
    assert imported.key == "watermarks/shop.orders.json"


def test_incomparable_legacy_watermarks_are_left_to_the_operator() -> None:
    objects = MemoryObjectStore()
    put(objects, "watermarks/shop.orders.json", NESTED)
    put(objects, "watermarks/v2/shop.orders.json", FLAT)
    before = snapshot(objects)
    with pytest.raises(StateError, match="neither is clearly behind") as caught:
        open_store(objects).get(TABLE)
    for named in ("watermarks/shop.orders.json", "watermarks/v2/shop.orders.json"):
        assert named in caught.value.message
    assert "watermark set" in (caught.value.hint or "")
    assert snapshot(objects) == before


LEFT, RIGHT = TableName("US_PROD", "a", "b_c"), TableName("US_PROD", "a_b", "c")
ELSEWHERE = TableName("EU_PROD", "shop", "orders")


def test_an_underscored_name_that_fits_two_tables_is_taken_for_neither() -> None:
    objects = MemoryObjectStore()
    put(objects, "watermarks/a_b_c.json", FLAT)
    for table in (LEFT, RIGHT):
        with pytest.raises(StateError, match=r"may belong to US_PROD:a\.b_c or US_PROD:a_b\.c"):
            open_store(objects, known=(LEFT, RIGHT)).get(table)
    assert open_store(objects, known=(LEFT,)).get(LEFT) is not None


def test_an_underscored_name_is_settled_by_the_document() -> None:
    objects = MemoryObjectStore()
    put(objects, "watermarks/a_b_c.json", FLAT, table_name="a_b.c")
    store = open_store(objects, known=(LEFT, RIGHT))
    assert store.get(LEFT) is None
    assert store.get(RIGHT) is not None


def test_a_lower_cased_name_is_found_whatever_the_case_of_the_table() -> None:
    claim = TableName("US_PROD_RO_SSH", "Settlement", "Claim")
    objects = MemoryObjectStore()
    put(objects, "watermarks/v2/us_prod_ro_ssh_settlement_claim.json", FLAT)
    watermark = open_store(objects, known=(claim, TABLE)).get(claim)
    assert watermark is not None
    assert watermark.position == Position(MOMENT)


SMALL, LARGE = TableName("PROD", "shop", "orders"), TableName("PROD", "Shop", "Orders")


@pytest.mark.parametrize("name", ["shop.orders", "prod_shop_orders"])
@pytest.mark.parametrize("named", [None, "shop.orders", "prod:shop.orders"])
def test_a_lower_cased_name_that_fits_two_tables_is_taken_for_neither(
    name: str, named: str | None
) -> None:
    objects = MemoryObjectStore()
    put(objects, f"watermarks/{name}.json", FLAT, **({"table_name": named} if named else {}))
    for table in (SMALL, LARGE):
        with pytest.raises(
            StateError, match=r"may belong to PROD:Shop\.Orders or PROD:shop\.orders"
        ):
            open_store(objects, known=(SMALL, LARGE)).get(table)


@pytest.mark.parametrize("owner", [SMALL, LARGE])
def test_a_lower_cased_name_is_settled_by_the_document(owner: TableName) -> None:
    objects = MemoryObjectStore()
    put(objects, "watermarks/prod_shop_orders.json", FLAT, table_name=str(owner))
    store = open_store(objects, known=(SMALL, LARGE))
    assert [table for table in (SMALL, LARGE) if store.get(table)] == [owner]


def test_an_unscoped_name_with_two_scopes_is_taken_for_neither() -> None:
    objects = MemoryObjectStore()
    put(objects, "watermarks/shop.orders.json", FLAT)
    for table in (TABLE, ELSEWHERE):
        with pytest.raises(StateError, match=r"may belong to EU_PROD:shop\.orders or US_PROD"):
            open_store(objects, known=(TABLE, ELSEWHERE)).get(table)


def test_an_unscoped_name_is_settled_by_the_document() -> None:
    objects = MemoryObjectStore()
    put(objects, "watermarks/shop.orders.json", FLAT, table_name="EU_PROD:shop.orders")
    store = open_store(objects, known=(TABLE, ELSEWHERE))
    assert store.get(TABLE) is None
    assert store.get(ELSEWHERE) is not None


@pytest.mark.follows_hint("set where … starts: floodmark watermark set -t … …")
def test_a_position_set_by_hand_is_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(folder=str(tmp_path / "lake"))
    put(lake.open(), "watermarks/shop_orders.json", "not an object")
    arguments = ["-t", "shop.orders", "--config", write_config(tmp_path, lake)]
    assert run(["watermark", "get", *arguments]) == 1
    assert run(["watermark", "set", *arguments, "--id", "7", "--force"]) == 0
    capsys.readouterr()
    assert run(["watermark", "get", *arguments]) == 0
    assert "Will start from: rows after id 7" in capsys.readouterr().out


CORRUPT: dict[str, bytes] = {
    "not JSON": b"{",
    "not text": b"\xff\xfe",
    "empty": b"",
    "a list": b"[]",
    "a number": b"5",
    "a time that is none": b'{"last_mysql_data_timestamp": "yesterday"}',
    "a time before the calendar": b'{"last_mysql_data_timestamp": "0001-01-01T00:00:00+05:00"}',
    "a position in the future": b'{"last_mysql_data_timestamp": "2999-01-01"}',
    "an extraction in the future": (
        b'{"last_mysql_data_timestamp": "2025-08-01", "last_mysql_extraction_time": "2999-01-01"}'
    ),
    "a negative id": b'{"mysql_state": {"last_id": -5}}',
    "an id that is none": b'{"mysql_state": {"last_id": "abc"}}',
    "a fractional id": b'{"mysql_state": {"last_id": 5.5}}',
    "an id that is a truth": b'{"mysql_state": {"last_id": true}}',
    "an id beyond 64 bits": b'{"mysql_state": {"last_id": 99999999999999999999999}}',
    "a list for an id": b'{"mysql_state": {"last_id": [1]}}',
    "a negative count": b'{"mysql_state": {"last_id": 5, "total_rows": -1}}',
}


@pytest.mark.parametrize("problem", CORRUPT)
def test_a_corrupt_one_is_reported_and_nothing_is_guessed(problem: str) -> None:
    objects = MemoryObjectStore()
    objects.put("watermarks/shop.orders.json", CORRUPT[problem])
    before = snapshot(objects)
    with pytest.raises(CorruptDocument, match=r"watermarks/shop\.orders\.json") as caught:
        open_store(objects).get(TABLE)
    assert caught.value.hint
    assert snapshot(objects) == before


def test_a_corrupt_one_beside_a_good_one_is_named() -> None:
    objects = MemoryObjectStore()
    objects.put("watermarks/v2/shop.orders.json", b"{")
    put(objects, "watermarks/shop.orders.json", FLAT)
    notices: list[Notice] = []
    watermark = open_store(objects, notices=notices).get(TABLE)
    assert watermark is not None
    assert watermark.position == Position(MOMENT)
    assert any("ignored: watermarks/v2/shop.orders.json" in one.message for one in notices)


def remove_old(objects: ObjectStore) -> None:
    objects.delete("watermarks/shop.orders.json")


def remove_copies(objects: ObjectStore) -> None:
    for folder in (lake_layout.PRIMARIES, lake_layout.DAILY, lake_layout.SESSIONS):
        for info in list(objects.list_objects(folder)):
            objects.delete(info.key)


def rewrite_old(objects: ObjectStore) -> None:
    put(objects, "watermarks/shop.orders.json", NESTED)


@pytest.mark.parametrize(
    "happenings",
    [[remove_old], [remove_copies], [remove_old, remove_copies], [rewrite_old, remove_copies]],
    ids=lambda happenings: "+".join(one.__name__ for one in happenings),
)
def test_an_adopted_position_is_ours_from_then_on(
    happenings: list[Callable[[ObjectStore], None]],
) -> None:
    objects = MemoryObjectStore()
    put(objects, "watermarks/shop.orders.json", FLAT)
    first = open_store(objects).get(TABLE)
    assert first is not None
    after_one = snapshot(objects)
    assert open_store(objects).get(TABLE) == first
    assert snapshot(objects) == after_one, "adopting again changes nothing"
    for happening in happenings:
        happening(objects)
    again = open_store(objects).get(TABLE)
    assert again is not None
    assert again.log_state == first.log_state
    assert [str(head) for head in open_store(objects).log.heads(TABLE)] == ["1-1"]


def test_legacy_watermark_does_not_hide_a_lost_one() -> None:
    objects = MemoryObjectStore()
    put(objects, "watermarks/shop.orders.json", NESTED)
    land(open_store(objects), rows=10, name="first")
    remove_copies(objects)
    for info in list(objects.list_objects(lake_layout.MANIFESTS)):
        objects.delete(info.key)
    with pytest.raises(StateLost):
        open_store(objects).get(TABLE)


def test_validating_without_repair_adopts_nothing() -> None:
    objects = MemoryObjectStore()
    put(objects, "watermarks/shop.orders.json", FLAT)
    before = snapshot(objects)
    watermark = open_store(objects).get(TABLE, write_back=False)
    assert watermark is not None
    assert watermark.position == Position(MOMENT)
    assert snapshot(objects) == before


def start_by_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    assert run(["watermark", "get", *arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    if "mysql_state" in document:
        return document["mysql_state"]["last_timestamp"], "own"
    return document["next_start"], document["next_start_by"]


def test_own_position_then_system_watermark_then_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(folder=str(tmp_path / "lake"))
    config = write_config(tmp_path, lake, "default_start: 2024-02-29 12:00:00\n")
    arguments = ["-t", "shop.payments", "--config", config]
    assert start_by_json(arguments, capsys) == ("2024-02-29T12:00:00Z", "default")

    lake.open().put("watermark/last_run_timestamp.txt", b"2025-07-01 06:30:00\n")
    assert start_by_json(arguments, capsys) == ("2025-07-01T06:30:00Z", "system watermark")
    assert run(["watermark", "get", "--config", config]) == 0
    assert "2025-07-01 06:30:00 (from watermark/last_run_timestamp.txt" in capsys.readouterr().out

    assert run(["watermark", "set", "aug4", "--force", "--config", config]) == 0
    capsys.readouterr()
    assert start_by_json(arguments, capsys) == ("2025-08-04T00:00:00Z", "system watermark")
    assert lake.open().get("watermark/last_run_timestamp.txt").data == b"2025-07-01 06:30:00\n"

    assert run(["watermark", "set", *arguments, "--timestamp", "2025-03-01", "--force"]) == 0
    capsys.readouterr()
    assert start_by_json(arguments, capsys) == ("2025-03-01T00:00:00Z", "own")
    assert run(["watermark", "get", *arguments]) == 0
    assert "Will start from: rows after 2025-03-01 00:00:00\n" in capsys.readouterr().out

    assert run(["watermark", "reset", *arguments, "--force"]) == 0
    capsys.readouterr()
    assert run(["watermark", "get", *arguments]) == 0
    assert "Will start from: 2025-08-04 00:00:00 (system watermark)" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"soon", b"", b"\xff", b"2999-01-01 00:00:00"])
def test_an_unusable_system_watermark_is_not_passed_over(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(folder=str(tmp_path / "lake"))
    lake.open().put("watermark/last_run_timestamp.txt", content)
    config = ["--config", write_config(tmp_path, lake)]
    for command in (["get"], ["get", "-t", "shop.orders"]):
        assert run(["watermark", *command, *config]) == 1
        error = capsys.readouterr().err
        assert "error: watermark/last_run_timestamp.txt" in error
        assert "hint:" in error
    assert run(["watermark", "set", "aug1", "--force", *config]) == 0
    capsys.readouterr()
    assert run(["watermark", "get", *config]) == 0
    assert "2025-08-01 00:00:00 (preset aug1" in capsys.readouterr().out
