"""A lake in a local folder: names of any length, and private files."""

import io
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.config.models import LakeSettings
from floodmark.errors import StorageError, StorageUnavailable
from floodmark.model import lake_layout
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.table import TableName
from floodmark.storage.local import LocalObjectStore
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore
from floodmark.storage.s3 import S3ObjectStore
from floodmark.warehouse.duckdb import DuckdbTarget
from floodmark.warehouse.lake_reader import LakeFiles
from floodmark.warehouse.sql_dialect import STAGING
from floodmark.worker.lake_writer import open_files
from scenarios import open_store, use_test_keys

CJK = (
    "受注明細履歴一覧表示用集計結果保存先候補管理台帳補助情報付加価値税率変更適用日別地域別担当者別"
)
LONG = TableName("A", CJK[:40], CJK)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def seen(objects: ObjectStore, prefix: str) -> list[object]:
    found = objects.list_objects(prefix)
    return [[info.key for info in found], objects.list_folders(prefix)]


def test_any_table_name_can_be_stored(tmp_path: Path) -> None:
    objects = LocalObjectStore(str(tmp_path / "lake"))
    store = open_store(objects)
    names = [("..", ".."), ("../..", "a/b"), (".", "x\\y"), ("d", "T"), ("d", "t"), ("-", " .")]
    names += [("a\n", "b\0"), (CJK[:40], CJK[:-1]), (CJK[:26], "t"), ("t", CJK[:27])]
    tables = [LONG, *(TableName("A", schema, name) for schema, name in names)]
    for table in tables:
        with store.lease(table):
            store.update(table, lambda now: now)
        found = open_store(objects).get(table)
        assert found is not None
        assert found.table_name == str(table)
        assert [copy.problem for copy in store.copies.daily(table)] == [None]
        assert [copy.problem for copy in store.copies.sessions(table)] == [None]
    keys = [info.key for info in objects.list_objects(lake_layout.PRIMARIES)]
    assert {lake_layout.table_of_primary(key) for key in keys} == {*tables}
    assert os.listdir(tmp_path) == ["lake"]


PARTS = st.sampled_from(
    ["a", "b", "-", "x" * 249, "x" * 250, "x" * 255]
)  # our names never contain a `~`
LONG_PARTS = st.builds(
    lambda n, c, end: "x" * n + c + end, st.integers(245, 760), st.sampled_from("-./a"), PARTS
)
KEYS = st.lists(PARTS | LONG_PARTS, min_size=1, max_size=3).map("/".join)


@settings(max_examples=60)
@given(st.lists(KEYS, min_size=1, max_size=6))
def test_long_names_are_listed_as_in_other_stores(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str]
) -> None:
    local = LocalObjectStore(str(tmp_path_factory.mktemp("lake")))
    memory = MemoryObjectStore()
    ours = [key for key in keys if "//" not in key and not any(p[0] == "." for p in key.split("/"))]
    for key in ours:
        if any(key.startswith(f"{other}/") or other.startswith(f"{key}/") for other in ours):
            continue  # a file system cannot have an object and a folder of the same name
        local.put(key, key.encode())
        memory.put(key, key.encode())
    for prefix in {"", *(f"{key.partition('/')[0]}/" for key in ours if "/" in key)}:
        assert seen(local, prefix) == seen(memory, prefix)
    for info in memory.list_objects(""):
        assert local.get(info.key) == memory.get(info.key)
        local.delete(info.key)
    assert list(local.list_objects("")) == []


def test_data_files_with_long_names_are_found(tmp_path: Path) -> None:
    key = f"{lake_layout.data_files(LONG)}a.parquet"
    file = open_files(LakeSettings(url=str(tmp_path)))(key)
    file.write(b"data")
    file.finish()
    objects = LocalObjectStore(str(tmp_path))
    assert objects.get(key).data == b"data"
    local = LakeFiles(objects, str(tmp_path)).local_path(key)
    assert local is not None
    assert Path(local).read_bytes() == b"data"


def modes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in [folder, *folder.rglob("*")]
    }


def write_some(lake: Path) -> None:
    LocalObjectStore(str(lake)).put("a/b", b"data")
    LocalObjectStore(str(lake)).put_if_absent("c/d", b"data")
    file = open_files(LakeSettings(url=str(lake)))("e/f.parquet")
    file.write(b"data")
    file.finish()


@pytest.mark.usefixtures("umask")
def test_a_new_lake_is_private(tmp_path: Path) -> None:
    write_some(tmp_path / "new" / "lake")
    found = modes(tmp_path / "new")
    assert {mode for name, mode in found.items() if "/" not in name} == {0o700}
    assert {mode & 0o077 for mode in found.values()} == {0}


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    ("root", "folders", "files"),
    [
        (0o700, 0o700, 0o600),
        (0o750, 0o750, 0o640),
        (0o2770, 0o2770, 0o660),
        (0o755, 0o755, 0o644),
        (0o777, 0o775, 0o664),
    ],
)
def test_new_files_inherit_the_lakes_permissions(
    root: int, folders: int, files: int, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(root)
    write_some(lake)
    found = modes(lake)
    assert found.pop(".") == root
    assert {name: mode for name, mode in found.items() if "/" not in name} == dict.fromkeys(
        [".tmp", "a", "c", "e"], folders
    )
    assert {name: mode for name, mode in found.items() if "/" in name} == dict.fromkeys(
        ["a/b", "c/d", "e/f.parquet"], files
    )


@pytest.mark.usefixtures("umask")
def test_a_new_database_is_private(tmp_path: Path) -> None:
    path = tmp_path / "warehouse.duckdb"
    objects = MemoryObjectStore()
    DuckdbTarget(str(path), objects, local_root=None).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    DuckdbTarget(str(path), objects, local_root=None).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("folder", ["lake", "la[k]e", "la*"])
def test_a_name_is_not_a_glob_pattern(folder: str, tmp_path: Path) -> None:
    """An older system's file may have a name that is a pattern matching others."""
    objects = LocalObjectStore(str(tmp_path / folder))
    for name, number in (("part-*", 1), ("part-2", 2), ("part-[2]", 3), ("part-?", 4)):
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), sink)
        objects.put(f"{name}.parquet", sink.getvalue())
    target = DuckdbTarget(":memory:", objects, local_root=str(tmp_path / folder))
    column = Column("id", "bigint", False, "int64")
    table = TargetTable(name="t", columns=(column,), primary_key=(), version=None)
    for name, number in (("part-*", 1), ("part-2", 2), ("part-[2]", 3), ("part-?", 4)):
        assert target._stage(table, [f"{name}.parquet"]) == 1
        assert target._query(f"SELECT id FROM {STAGING}") == [(number,)]
    target.close()


def test_a_key_too_long_for_s3_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    use_test_keys(monkeypatch)
    store = S3ObjectStore("bucket", "p" * 20, endpoint="http://127.0.0.1:1")
    table = TableName("A", CJK[:45] + CJK[:19], CJK[:45] + CJK[:19])
    with pytest.raises(StorageError, match=r"has 1,\d\d\d bytes; S3 allows at most 1,024"):
        store.put(lake_layout.primary(table), b"")
    with pytest.raises(StorageUnavailable):  # the request is sent, but there is no server
        store.put(lake_layout.primary(LONG), b"")


def test_the_program_writes_private_files(tmp_path: Path) -> None:
    script = "import os, sys; os.umask(0); sys.argv[1:] = ['--version']\n"
    script += "import atexit; atexit.register(lambda: print(oct(os.umask(0))))\n"
    script += "from floodmark.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1] == "0o77"


@pytest.mark.parametrize("kind", ["link", "dangling link", "file"])
def test_unfinished_files_are_kept_in_a_folder_of_the_lake_only(tmp_path: Path, kind: str) -> None:
    lake, elsewhere = tmp_path / "lake", tmp_path / "elsewhere"
    lake.mkdir()
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"x")
    if kind == "file":
        (lake / ".tmp").touch()
    else:
        (lake / ".tmp").symlink_to(elsewhere if kind == "link" else tmp_path / "new")
    store = LocalObjectStore(str(lake))
    create = open_files(LakeSettings(url=str(lake)))
    for use in (
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.remove_unfinished("", datetime.max.replace(tzinfo=UTC)),
        lambda: create("a"),
    ):
        with pytest.raises(StorageError) as caught:
            use()
        said = "not a folder" if kind == "file" else "a symbolic link"
        assert caught.value.message == f"{lake}/.tmp is {said}"
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]
    assert not (tmp_path / "new").exists()


def test_a_place_that_takes_no_folders_is_reported() -> None:
    """The kernel says of it what it says of a missing parent."""
    with pytest.raises(StorageError, match="No such file or directory"):
        LocalObjectStore("/proc/floodmark").put("a/b", b"x")


def test_only_regular_files_are_objects(tmp_path: Path) -> None:
    store = LocalObjectStore(str(tmp_path))
    store.put("d/a.parquet", b"x")
    os.mkfifo(tmp_path / "d" / "b.parquet")
    (tmp_path / "d" / "c.parquet").symlink_to("b.parquet")
    (tmp_path / "d" / "d.parquet").symlink_to("missing")
    (tmp_path / "d" / "e.parquet").symlink_to("a.parquet")
    assert [found.key for found in store.list_objects("")] == ["d/a.parquet", "d/e.parquet"]
