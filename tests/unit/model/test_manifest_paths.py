"""A manifest may refer only to data files of its lake; any other path is damage."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from floodmark.cli.main import run
from floodmark.errors import CorruptLog, IllegalTransition, StorageError
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import _digest
from floodmark.model.load_transitions import loaded
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest
from floodmark.model.table import TableName
from floodmark.model.watermark import empty_watermark
from floodmark.state.lake_validation import validate
from floodmark.storage.local import LocalObjectStore
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore
from floodmark.warehouse.lake_reader import LakeFiles
from scenarios import TABLE, Lake, land, open_store, write_config

FIRST = ManifestId(1, 1)
OTHER = TableName("US_PROD", "shop", "payments")
LEADS_ELSEWHERE = [
    "/etc/data.parquet",
    "../outside.parquet",
    "incremental/US_PROD/shop.orders/../../../outside.parquet",
    "incremental//US_PROD/shop.orders/a.parquet",
    "./incremental/US_PROD/shop.orders/a.parquet",
    "s3://another-bucket/a.parquet",
    "watermarks/v2/US_PROD/shop.orders.json",
    "watermarks/v2/a.parquet",
    "manifests/US_PROD/shop.orders/00000001/00000001.json",
    "loads/copies/a.parquet",
    "quarantine/US_PROD/shop.orders/a.parquet",
    "incremental/a\n.parquet",
    "",
]


def forge(objects: ObjectStore, **changes: object) -> None:
    """Change a chunk and recompute its checksum, as anyone with write access could."""
    key = lake_layout.manifest(TABLE, FIRST)
    document = json.loads(objects.get(key).data)
    document["change"].update(changes)
    document["checksum"] = _digest(document)
    objects.put(key, msgspec.json.encode(document))


def files_at(objects: ObjectStore, path: str) -> list[dict[str, object]]:
    document = json.loads(objects.get(lake_layout.manifest(TABLE, FIRST)).data)
    return [file | {"path": path} for file in document["change"]["files"]]


@pytest.mark.parametrize("place", ["files", "quarantine"])
@pytest.mark.parametrize("path", LEADS_ELSEWHERE)
def test_a_path_outside_the_data_files_is_damage(path: str, place: str) -> None:
    if place == "quarantine" and path.startswith("quarantine/"):
        path = "incremental/US_PROD/shop.orders/a.parquet"  # not a quarantine path
    objects = MemoryObjectStore()
    land(open_store(objects), rows=3, name="first")
    forge(objects, **{place: files_at(objects, path)})
    store = open_store(objects)
    with pytest.raises(CorruptLog, match="is not a data file of this lake") as caught:
        store.log.read(TABLE, FIRST)
    assert repr(path) in caught.value.message
    assert "\n" not in caught.value.message
    assert any(repr(path) in found for found in validate(store, TABLE).differences)


def deletes_at(objects: ObjectStore, path: str) -> dict[str, object]:
    return {"deletes": files_at(objects, path), "deleted": 3, "missing": 1}


@pytest.mark.parametrize("path", [*LEADS_ELSEWHERE, "incremental/US_PROD/shop.orders/a.parquet"])
def test_a_path_outside_the_deletes_is_damage(path: str) -> None:
    objects = MemoryObjectStore()
    land(open_store(objects), rows=3, name="first")
    forge(objects, reconciled=deletes_at(objects, path))
    with pytest.raises(CorruptLog, match="is not a data file of this lake"):
        open_store(objects).log.read(TABLE, FIRST)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"primary_key": []}, "rows without a key"),
        ({"reload": True}, "rows without a key"),
        ({"adopted": True}, "rows without a key"),
        ({"end": {"id": 9}}, "moves the position"),
        ({"deleted": 2}, "lists 2 deleted keys"),
        ({"deleted_at": "ID"}, "which is a column of the source"),
        ({}, None),
    ],
)
def test_a_reconciliation_that_cannot_be_loaded_is_damage(
    changes: dict[str, Any], problem: str | None
) -> None:
    """And nobody can commit one."""
    objects = MemoryObjectStore()
    land(open_store(objects), rows=3, name="first")
    found = deletes_at(objects, "deletes/US_PROD/shop.orders/a.parquet")
    found |= {name: changes.pop(name) for name in ("deleted", "deleted_at") if name in changes}
    column = {"name": "id", "type": "int", "nullable": False, "arrow": "int32"}
    whole = {"primary_key": ["id"], "columns": [column], "start": {"id": 3}, "end": {"id": 3}}
    forge(objects, reconciled=found, **{**whole, **changes})
    store = open_store(objects)
    if problem is None:
        assert store.log.read(TABLE, FIRST)
        return
    with pytest.raises(CorruptLog, match=problem):
        store.log.read(TABLE, FIRST)
    document = json.loads(objects.get(lake_layout.manifest(TABLE, FIRST)).data)
    with pytest.raises(IllegalTransition, match=problem):
        store.log.append(TABLE, msgspec.convert(document, Manifest))


@pytest.mark.parametrize(
    "path",
    [
        "incremental/US_PROD/shop.orders/year=2025/a.parquet",
        "incremental/US_PROD/shop.before/a.parquet",  # its name before a move
        "exports/shop_orders/part-0000.snappy.parquet",  # an older system's
    ],
)
def test_where_data_may_be(path: str) -> None:
    objects = MemoryObjectStore()
    land(open_store(objects), rows=3, name="first")
    forge(objects, files=files_at(objects, path))
    assert open_store(objects).log.read(TABLE, FIRST)


@pytest.mark.parametrize("kind", ["decimal128(1, 1)); DROP TABLE x; --", "evil", "", "int32 "])
def test_an_unknown_type_is_damage(kind: str) -> None:
    objects = MemoryObjectStore()
    land(open_store(objects), rows=3, name="first")
    forge(objects, columns=[{"name": "a", "type": "int", "nullable": True, "arrow": kind}])
    with pytest.raises(CorruptLog, match="the unknown type"):
        open_store(objects).log.read(TABLE, FIRST)


@pytest.mark.parametrize("path", LEADS_ELSEWHERE[:5])
def test_files_are_looked_for_in_the_lake_alone(path: str, tmp_path: Path) -> None:
    (tmp_path / "outside.parquet").touch()
    files = LakeFiles(MemoryObjectStore(), str(tmp_path / "lake"))
    with pytest.raises(StorageError, match="is not an object key"):
        files.local_path(path)


@pytest.mark.parametrize(
    "path", ["../outside.parquet", f"{lake_layout.data_files(OTHER)}a.parquet"]
)
def test_nothing_else_is_removed(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(folder=str(tmp_path / "lake"))
    write_config(tmp_path, lake)
    monkeypatch.chdir(tmp_path)
    objects = LocalObjectStore(str(tmp_path / "lake"))
    store = open_store(objects)
    land(store, rows=3, name="first")
    victim = (tmp_path / "lake" / path).resolve()
    victim.parent.mkdir(parents=True, exist_ok=True)
    victim.write_text("!")
    store.take_over(OTHER, empty_watermark(OTHER, "s", store.now()))
    store.update(
        TABLE, lambda w: loaded(w, through=FIRST, total_rows=3, session_rows=3, now=store.now())
    )
    forge(objects, files=files_at(objects, path))
    for force in ([], ["--force"]):
        assert run(["s3clean", "clean", "-t", "shop.orders", *force]) == 1
        said = capsys.readouterr().err
        assert "unexpected" not in said
        assert path in said or f"names files of {OTHER}" in said
    assert victim.exists()
