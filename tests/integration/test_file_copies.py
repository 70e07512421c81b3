"""What a sync writes to S3 for a load into DuckDB is not fetched again, if there are copies."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from floodmark.storage import copies
from floodmark.storage.copies import GrowingCopy, copy_of, folder_of_copies
from floodmark.storage.s3 import S3ObjectStore
from pipelines import DirectEngine, Pipeline, ask_once, numbers

New = Callable[..., Pipeline]
KEY = "data/of a table/file.parquet"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The data files that were fetched from S3."""
    found: list[str] = []
    get = S3ObjectStore.get

    def noted(store: S3ObjectStore, key: str) -> Any:
        if key.endswith(".parquet"):
            found.append(key)
        return get(store, key)

    monkeypatch.setattr(S3ObjectStore, "get", noted)
    return found


class Looking(DirectEngine):
    """Notes the copies at the end of each chunk."""

    seen: list[int]

    def extract(self, job: Any, windows: Any, progress: Any) -> Any:
        receipts = super().extract(job, windows, progress)
        self.seen.append(len(os.listdir(job.copies)) if job.copies else 0)
        return receipts


@pytest.fixture
def synced(pipeline: New, fetched: list[str]) -> Callable[..., Pipeline]:
    """Syncs a new table of 20 rows in four files, with a lake of some kind."""

    def sync(lake: str, during: Callable[[Pipeline], None] = lambda _: None) -> Pipeline:
        slices = "extraction: {window_rows: 5, windows_per_chunk: 2}"
        it = pipeline({"t": "{cursor: [update_at, id]}"}, lake=lake, settings=slices)
        ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME, KEY (update_at, id))")
        ask_once(
            it,
            f"INSERT INTO t SELECT seq, '2025-06-01' + INTERVAL seq SECOND FROM {numbers(1, 20)}",
        )
        Looking.seen = []

        class Engine(Looking):
            def release(self) -> None:
                during(it)

        ended = it.call("sync", "-p", "main", "--json", engine=Engine)
        assert (ended.code, ended.table["loaded_rows"]) == (0, 20), ended
        with duckdb.connect(str(it.folder / "warehouse.duckdb")) as target:
            found = target.execute("SELECT id FROM t ORDER BY id").fetchall()
        assert found == [(number,) for number in range(1, 21)]
        assert left_in(it.folder) == []
        by_sync = len(fetched)
        it.check_tracking()
        del fetched[by_sync:]
        return it

    return sync


def left_in(folder: Path) -> list[str]:
    return [str(path) for path in folder.glob(f"{copies._PREFIX}*")]


def files_of(it: Pipeline) -> list[str]:
    return [file.path for chunk in it.chunks() for file in chunk.files]


@pytest.mark.enough_on("mysql")
def test_files_are_loaded_from_their_copies(
    synced: Callable[..., Pipeline], fetched: list[str]
) -> None:
    it = synced("ministack")
    assert (Looking.seen, len(files_of(it))) == ([2, 4], 4)
    assert fetched == []


@pytest.mark.enough_on("mysql")
def test_a_lake_in_a_folder_needs_no_copies(synced: Callable[..., Pipeline]) -> None:
    synced("local")
    assert Looking.seen == [0, 0]


@pytest.mark.enough_on("mysql")
def test_a_file_whose_copy_is_lost_is_fetched(
    synced: Callable[..., Pipeline], fetched: list[str]
) -> None:
    def lose(it: Pipeline) -> None:
        (folder,) = left_in(it.folder)
        lost = copy_of(folder, files_of(it)[2])
        assert lost
        os.unlink(lost)

    it = synced("ministack", lose)
    assert fetched == [files_of(it)[2]]


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("limit", ["_MOST_BYTES", "_LEAST_FREE_BYTES"])
def test_without_room_for_copies_files_are_fetched(
    synced: Callable[..., Pipeline],
    fetched: list[str],
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
) -> None:
    monkeypatch.setattr(copies, limit, 1 if limit == "_MOST_BYTES" else 2**62)
    it = synced("ministack")
    only_first = int(limit == "_MOST_BYTES")
    assert fetched == files_of(it)[only_first:]


@pytest.mark.enough_on("mysql")
def test_a_copy_that_cannot_be_written_is_no_failure(
    synced: Callable[..., Pipeline], fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(copies, "write_all", full)
    it = synced("ministack")
    assert fetched == files_of(it)
    assert Looking.seen == [0, 0]


@pytest.mark.enough_on("mysql")
def test_no_folder_for_copies_is_no_failure(
    synced: Callable[..., Pipeline], fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: object) -> str:
        raise PermissionError

    monkeypatch.setattr(copies, "mkdtemp", refused)
    it = synced("ministack")
    assert fetched == files_of(it)


def test_only_complete_copies_are_seen(tmp_path: Path) -> None:
    folder = str(tmp_path)
    copy = GrowingCopy(folder, KEY)
    copy.append(b"one")
    assert copy_of(folder, KEY) is None
    copy.append(b"two")
    copy.finish()
    found = copy_of(folder, KEY)
    assert found
    assert Path(found).read_bytes() == b"onetwo"
    abandoned = GrowingCopy(folder, "another")
    abandoned.append(b"one")
    abandoned.abandon()
    abandoned.abandon()
    abandoned.finish()
    assert copy_of(folder, "another") is None
    assert len(list(tmp_path.iterdir())) == 1


def test_of_a_file_that_is_written_again_no_older_copy_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path)
    for data in (b"old", b"new"):
        copy = GrowingCopy(folder, KEY)
        copy.append(data)
        copy.finish()
        found = copy_of(folder, KEY)
        assert found
        assert Path(found).read_bytes() == data
    monkeypatch.setattr(copies, "_MOST_BYTES", 0)
    copy = GrowingCopy(folder, KEY)
    copy.append(b"newer")
    copy.finish()
    assert copy_of(folder, KEY) is None


def test_a_worker_without_the_folder_writes_no_copy(tmp_path: Path) -> None:
    copy = GrowingCopy(str(tmp_path / "elsewhere"), KEY)
    copy.append(b"one")
    copy.finish()
    assert list(tmp_path.iterdir()) == []


def test_folders_of_killed_commands_are_removed_and_of_running_ones_kept(tmp_path: Path) -> None:
    beside = str(tmp_path / "warehouse.duckdb")
    code = (
        "import os, sys\nfrom floodmark.storage.copies import folder_of_copies\n"
        f"with folder_of_copies({beside!r}) as folder:\n"
        "    open(f'{folder}/file', 'w').close()\n    print(folder, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        theirs = Path(other.stdout.readline().strip())
        with folder_of_copies(beside) as ours:
            assert ours
            assert os.stat(ours).st_mode & 0o777 == 0o700
            assert theirs.exists()
        assert not os.path.exists(ours)
        other.kill()
        other.wait()
        assert theirs.exists()
        with folder_of_copies(beside):
            assert not theirs.exists()
    assert left_in(tmp_path) == []
