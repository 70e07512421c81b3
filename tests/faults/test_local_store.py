"""A local folder among many processes, killed ones, missing permissions and a full disk."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from subprocess import PIPE

import pytest

import floodmark
from floodmark.errors import ObjectNotFound, StorageError, WriteConflict
from floodmark.storage.local import LocalObjectStore
from floodmark.storage.objects import StoredObject

SURROUNDINGS = {**os.environ, "PYTHONPATH": str(Path(floodmark.__file__).parents[1])}
PREAMBLE = """
import os, resource, sys
from floodmark.errors import *
from floodmark.storage.local import LocalObjectStore
store = LocalObjectStore(sys.argv[1])
"""


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python processes that have a `store` in a folder; none outlives the test."""
    processes = []

    def started(script: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command(script, folder, *arguments), env=SURROUNDINGS, stdout=PIPE, text=True
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        with process:
            process.kill()


def run(script: str, folder: Path) -> list[str]:
    """Run such a process to its end; returns the lines that it printed."""
    return subprocess.run(
        command(script, folder), env=SURROUNDINGS, stdout=PIPE, text=True, check=True
    ).stdout.splitlines()


def command(script: str, folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-c", PREAMBLE + script, str(folder), *arguments]


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()


INCREMENT = """
for _ in range(int(sys.argv[2])):
    while True:
        found = store.get("a/counter")
        try:
            store.put_if_match("a/counter", b"%d" % (int(found.data) + 1), found.etag)
            break
        except WriteConflict:
            pass
"""


def test_no_update_of_eight_processes_is_lost(tmp_path: Path, start: Start) -> None:
    store = LocalObjectStore(str(tmp_path))
    store.put("a/counter", b"0")
    processes = [start(INCREMENT, tmp_path, "60") for _ in range(8)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert store.get("a/counter").data == b"480"
    assert leftovers(tmp_path) == []


CREATE = """
won = 0
for number in range(200):
    try:
        store.put_if_absent(f"a/{number}", sys.argv[2].encode())
        won += 1
    except WriteConflict:
        pass
print(won)
"""


def test_each_key_is_created_by_one_of_four_processes(tmp_path: Path, start: Start) -> None:
    processes = [start(CREATE, tmp_path, str(number)) for number in range(4)]
    won = [int(process.communicate()[0]) for process in processes]
    assert sum(won) == 200
    store = LocalObjectStore(str(tmp_path))
    written = [store.get(info.key).data for info in store.list_objects("a/")]
    assert [written.count(b"%d" % number) for number in range(4)] == won


WRITE_LARGE_VALUES = """
import itertools
print("started", flush=True)
for number in itertools.count():
    data = f"{os.getpid()}.{number}.".encode() * 200_000
    store.put("a/put", data)
    store.put_if_absent(f"a/absent-{os.getpid()}-{number % 3}", data) if number < 3 else None
    try:
        store.put_if_match("a/match", data, store.get("a/match").etag)
    except WriteConflict:
        pass
"""


def is_whole(data: bytes) -> bool:
    """Whether this is one of the values written above, from its first to its last byte."""
    process, number, _ = data[:40].split(b".", 2)
    return data == b"%s.%s." % (process, number) * 200_000


def test_killed_writers_leave_nothing_torn(tmp_path: Path, start: Start) -> None:
    random = Random(5)
    store = LocalObjectStore(str(tmp_path))
    store.put("a/match", b"0.0." * 200_000)
    for _ in range(8):
        writers = [start(WRITE_LARGE_VALUES, tmp_path) for _ in range(3)]
        for writer in writers:
            first_line(writer)
        time.sleep(random.uniform(0.0, 0.08))
        for writer in writers:
            time.sleep(random.uniform(0.0, 0.02))
            check_every_object(store)
            writer.kill()
            writer.communicate()
            assert writer.returncode == -signal.SIGKILL
        check_every_object(store)
    assert leftovers(tmp_path)  # or this was no test
    assert all(info.key.startswith("a/") for info in store.list_objects(""))
    assert store.list_folders("") == ["a"]
    began = time.monotonic()
    store.put("a/put", b"after")
    store.put_if_match("a/match", b"after", store.get("a/match").etag)
    assert time.monotonic() - began < 5


def check_every_object(store: LocalObjectStore) -> None:
    for info in store.list_objects(""):
        assert is_whole(store.get(info.key).data), info.key


def leftovers(folder: Path) -> list[str]:
    return os.listdir(folder / ".tmp")


HOLD_THE_LOCK = """
import fcntl, time
folder = os.open(sys.argv[1] + "/a", os.O_RDONLY)
fcntl.flock(folder, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(60)
"""


def test_lock_of_a_dead_process_is_free(tmp_path: Path, start: Start) -> None:
    store = LocalObjectStore(str(tmp_path))
    store.put("a/b", b"before")
    holder = start(HOLD_THE_LOCK, tmp_path)
    assert first_line(holder) == "locked\n"
    writer = threading.Thread(target=lambda: store.put("a/b", b"after"))
    writer.start()
    writer.join(0.3)
    assert writer.is_alive()  # the lock is real
    assert store.get("a/b").data == b"before"  # readers do not wait
    holder.kill()
    holder.communicate()
    writer.join(5)
    assert store.get("a/b").data == b"after"


def test_other_folders_are_not_locked(tmp_path: Path, start: Start) -> None:
    store = LocalObjectStore(str(tmp_path))
    store.put("a/b", b"")
    holder = start(HOLD_THE_LOCK, tmp_path)
    assert first_line(holder) == "locked\n"
    store.put("b/c", b"x")
    store.put("a-b/c", b"x")
    assert holder.poll() is None


def test_delete_does_not_come_between_look_and_write(tmp_path: Path) -> None:
    deleter = threading.Thread(target=lambda: LocalObjectStore(str(tmp_path)).delete("a/b"))

    class Interrupted(LocalObjectStore):
        def get(self, key: str) -> StoredObject:
            found = super().get(key)
            deleter.start()
            deleter.join(0.3)
            return found

    etag = LocalObjectStore(str(tmp_path)).put("a/b", b"one")
    Interrupted(str(tmp_path)).put_if_match("a/b", b"two", etag)
    deleter.join()
    with pytest.raises(ObjectNotFound):
        LocalObjectStore(str(tmp_path)).get("a/b")


# Permissions: root may do anything, so a child does this as nobody.

AS_NOBODY = """
if os.geteuid() == 0:
    os.setuid(65534)
attempts = {
    "get": lambda: store.get("closed/object"),
    "list": lambda: list(store.list_objects("")),
    "list_folders": lambda: store.list_folders("closed-folder/"),
    "put": lambda: store.put("a/new", b""),
    "put_if_absent": lambda: store.put_if_absent("a/new", b""),
    "put_if_match": lambda: store.put_if_match("a/b", b"", store.get("a/b").etag),
    "delete": lambda: store.delete("a/b"),
}
for name, attempt in attempts.items():
    try:
        attempt()
        print(name, "done")
    except StorageError as error:
        print(name, type(error).__name__, error.hint)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def test_missing_permissions_are_denied(open_folder: Path) -> None:
    lake = open_folder / "lake"
    store = LocalObjectStore(str(lake))
    for key in ("a/b", "closed/object", "closed-folder/x/y"):
        store.put(key, b"kept")
    (lake / "closed/object").chmod(0)
    for folder, mode in {".tmp": 0o555, "a": 0o555, "closed-folder": 0, "": 0o555}.items():
        (lake / folder).chmod(mode)
    denied = "AccessDenied check the folder's owner and mode"
    methods = ["get", "list", "list_folders", "put", "put_if_absent", "put_if_match", "delete"]
    assert run(AS_NOBODY, lake) == [f"{method} {denied}" for method in methods]


def test_reading_needs_no_permission_to_write(open_folder: Path) -> None:
    lake = open_folder / "lake"
    lake.mkdir(mode=0o755)
    LocalObjectStore(str(lake)).put("a/b", b"data")
    for folder in (lake / ".tmp", lake / "a", lake):
        folder.chmod(0o555)
    script = """
if os.geteuid() == 0:
    os.setuid(65534)
print(store.get("a/b").data, [info.key for info in store.list_objects("")])
"""
    assert run(script, lake) == ["b'data' ['a/b']"]


# No room

WRITE_TOO_MUCH = """
for method in (
    lambda: store.put("a/b", bytes(8_000_000)),
    lambda: store.put_if_absent("a/c", bytes(8_000_000)),
    lambda: store.put_if_match("a/b", bytes(8_000_000), store.get("a/b").etag),
):
    try:
        method()
        print("done")
    except StorageError as error:
        print(type(error).__name__, error.message.rpartition(": ")[2], error.hint)
"""


def test_file_too_large_changes_nothing(tmp_path: Path) -> None:
    store = LocalObjectStore(str(tmp_path))
    store.put("a/b", b"before")
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
    assert run(limit + WRITE_TOO_MUCH, tmp_path) == ["StorageError File too large None"] * 3
    assert store.get("a/b").data == b"before"
    assert [info.key for info in store.list_objects("")] == ["a/b"]
    assert leftovers(tmp_path) == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = shutil.which("mount") or "mount"
    command = [mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tiny disk takes root")
    yield folder
    subprocess.run([shutil.which("umount") or "umount", str(folder)], check=True)


def test_full_disk_changes_nothing(tiny_disk: Path) -> None:
    store = LocalObjectStore(str(tiny_disk))
    store.put("a/b", b"before")
    expected = ["StorageError No space left on device make room on the disk"] * 3
    assert run(WRITE_TOO_MUCH, tiny_disk) == expected
    assert store.get("a/b").data == b"before"
    assert leftovers(tiny_disk) == []
    store.put("a/b", b"small things still fit")


# What else may lie in a folder


def test_folder_in_the_way(tmp_path: Path) -> None:
    store = LocalObjectStore(str(tmp_path))
    store.put("a/b/c", b"x")
    with pytest.raises(StorageError, match="a/b: Is a directory"):
        store.put("a/b", b"y")
    with pytest.raises(StorageError, match="a/b is a folder") as caught:
        store.put_if_absent("a/b", b"y")
    assert not isinstance(caught.value, WriteConflict)
    with pytest.raises(WriteConflict):
        store.put_if_match("a/b", b"y", "etag")
    assert [info.key for info in store.list_objects("")] == ["a/b/c"]
    assert leftovers(tmp_path) == []


def test_object_in_the_way_of_a_folder(tmp_path: Path) -> None:
    store = LocalObjectStore(str(tmp_path))
    store.put("a", b"x")
    for key in ("a/b", "a/b/c"):
        for write in (store.put, store.put_if_absent):
            with pytest.raises(StorageError, match="Not a directory") as caught:
                write(key, b"y")
            assert not isinstance(caught.value, WriteConflict)
    assert store.get("a").data == b"x"
    assert leftovers(tmp_path) == []


def test_lake_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    store = LocalObjectStore(str(tmp_path / "lake"))
    with pytest.raises(StorageError, match="Not a directory"):
        store.put("a", b"")


def test_hidden_files_are_not_ours(tmp_path: Path) -> None:
    store = LocalObjectStore(str(tmp_path))
    store.put("a/b", b"x")
    (tmp_path / "a/.DS_Store").write_text("")
    (tmp_path / "a/.hidden").mkdir()
    assert [info.key for info in store.list_objects("")] == ["a/b"]
    assert store.list_folders("a/") == []


def test_temporary_folder_may_be_removed(tmp_path: Path) -> None:
    store = LocalObjectStore(str(tmp_path))
    store.put("a/b", b"x")
    shutil.rmtree(tmp_path / ".tmp")
    store.put("a/b", b"y")
    assert store.get("a/b").data == b"y"
