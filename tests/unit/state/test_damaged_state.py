"""Any bytes in place of a state document are reported as damage, and nothing worse."""

import json
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.cli.main import run
from floodmark.errors import CorruptDocument, CorruptLog, FloodmarkError
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import _digest
from floodmark.model.timestamps import utc_now
from floodmark.model.watermark import same_content
from floodmark.state.conditional_writes import check_conditional_writes
from floodmark.state.recovery_records import Recovery
from floodmark.state.system_watermark import read_system_watermark
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.local import LocalObjectStore
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore
from scenarios import TABLE, Lake, land, open_store, write_config

DEEP = 100_000
DAMAGED = {
    "deep lists": b"[" * DEEP,
    "deep lists, closed": b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a long number": b'{"revision": ' + b"9" * 5000 + b"}",
    "no number": b'{"revision": NaN}',
    "infinite": b'{"revision": 1e999}',
    "twice": b'{"revision": 1, "revision": 2}',
    "not UTF-8": b'{"table_name": "\xff\xfe"}',
    "half a character": b'{"table_name": "\\ud800"}',
    "zeros": bytes(20_000_000),
    "nothing": b"",
}
damaged = pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())


def prepare(objects: ObjectStore) -> WatermarkStore:
    """Commit two chunks, and return the store of a run that has read nothing yet."""
    store = open_store(objects)
    land(store, rows=10, name="first")
    land(store, rows=20, name="second")
    return open_store(objects)


@damaged
def test_a_damaged_copy_is_skipped(data: bytes) -> None:
    objects = MemoryObjectStore()
    store = prepare(objects)
    before = store.get(TABLE, write_back=False)
    assert before is not None
    objects.put(lake_layout.primary(TABLE), data)
    for key in store.copies.daily_keys(TABLE):
        objects.put(key, data)
    after = open_store(objects).get(TABLE)
    assert after is not None
    assert same_content(after, before)


@damaged
def test_other_damaged_documents_stop_nothing(data: bytes) -> None:
    objects = MemoryObjectStore()
    store = prepare(objects)
    objects.put(lake_layout.lease(TABLE), data)
    objects.put(lake_layout.PROBED, data)
    objects.put(lake_layout.recovery(TABLE, utc_now(), "s"), data)
    check_conditional_writes(objects, utc_now, "tester")
    assert store.recoveries.of(TABLE) == []
    with store.lease(TABLE) as lease:
        lease.check()


@damaged
def test_damage_without_a_copy_is_reported(data: bytes) -> None:
    objects = MemoryObjectStore()
    store = prepare(objects)
    head = max(store.log.heads(TABLE))
    objects.put(lake_layout.SYSTEM, data)
    with pytest.raises(CorruptDocument, match=lake_layout.SYSTEM):
        read_system_watermark(objects, now=utc_now())
    objects.put(lake_layout.manifest(TABLE, head), data)
    with pytest.raises(CorruptLog, match=lake_layout.manifest(TABLE, head)):
        store.log.read(TABLE, head)


@damaged
def test_a_damaged_legacy_watermark_is_reported(data: bytes) -> None:
    objects = MemoryObjectStore()
    objects.put("watermarks/shop.orders.json", data)
    if data.startswith(b'{"revision": 1,'):
        assert open_store(objects).get(TABLE) is None  # valid JSON without a position
        return
    with pytest.raises(CorruptDocument, match=r"watermarks/shop\.orders\.json"):
        open_store(objects).get(TABLE)


@pytest.mark.parametrize("depth", [200, 900])
def test_deeply_nested_documents(depth: int) -> None:
    objects = MemoryObjectStore()
    value = b"[" * depth + b"]" * depth
    for key in ("last_id", "updated_at", "last_mysql_data_timestamp"):
        objects.put("watermarks/shop.orders.json", b'{"%s": %s}' % (key.encode(), value))
        with pytest.raises(CorruptDocument):
            open_store(objects).get(TABLE)
    objects.put("watermarks/shop.orders.json", b'{"table_name": %s}' % value)
    with suppress(CorruptDocument):
        assert open_store(objects).get(TABLE) is None  # another table's


MOMENTS = [
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999-14:00",
    "2025-01-01T00:00:00",
    "0000-01-01T00:00:00Z",
    "10000-01-01T00:00:00Z",
    "-001-01-01T00:00:00Z",
]
PLACES = [
    ("created_at",),
    ("updated_at",),
    ("mysql_state", "last_timestamp"),
    ("mysql_state", "last_extraction_time"),
    ("redshift_state", "last_load_time"),
    ("verified_state", "last_timestamp"),
    ("reconciled_state", "last_finished"),
    ("backup_metadata", "saved_at"),
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_time_out_of_range_is_damage(moment: str) -> None:
    objects = MemoryObjectStore()
    before = prepare(objects).get(TABLE, write_back=False)
    data = objects.get(lake_layout.primary(TABLE)).data
    for path in PLACES:
        document = json.loads(data)
        place = document if len(path) == 1 else document[path[0]]
        place[path[-1]] = moment
        document["checksum"] = _digest(document)
        objects.put(lake_layout.primary(TABLE), msgspec.json.encode(document))
        after = open_store(objects).get(TABLE)
        assert before is not None
        assert after is not None
        assert same_content(after, before)
        assert str(after.position)


@settings(max_examples=60)
@given(st.binary(max_size=300) | st.text('{}[]":,1e-nullNaN\\', max_size=60).map(str.encode))
def test_any_bytes_are_a_document_or_damage(data: bytes) -> None:
    objects = MemoryObjectStore()
    before = prepare(objects).get(TABLE, write_back=False)
    objects.put(lake_layout.primary(TABLE), data)
    objects.put(lake_layout.lease(TABLE), data)
    objects.put("watermarks/shop.orders.json", data)
    store = open_store(objects)
    after = store.get(TABLE)
    assert before is not None
    assert after is not None
    assert same_content(after, before)
    objects.put(lake_layout.manifest(TABLE, max(store.log.heads(TABLE))), data)
    with pytest.raises(FloodmarkError):
        store.log.read(TABLE, max(store.log.heads(TABLE)))


COMMANDS = ["list", "get -t shop.orders", "validate", "history -t shop.orders", "list --json"]


@pytest.mark.parametrize("name", ["deep lists", "deep objects", "not UTF-8", "half a character"])
def test_no_command_fails_with_a_traceback(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = LocalObjectStore(str(tmp_path / "lake"))
    prepare(objects)
    write_config(tmp_path, Lake(folder=str(tmp_path / "lake")))
    monkeypatch.chdir(tmp_path)
    for info in list(objects.list_objects("watermarks/")):
        objects.put(info.key, DAMAGED[name])
    for command in COMMANDS:
        assert run(["watermark", *command.split()]) in (0, 5)
        said = capsys.readouterr()
        assert "unexpected" not in said.err
        assert "Traceback" not in said.err
    assert [type(r) for r in open_store(objects).recoveries.of(TABLE)] == [Recovery]
