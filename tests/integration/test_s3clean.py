"""`s3clean`: which data files belong to a table, and which can be removed."""

import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from floodmark.config.models import LakeSettings
from floodmark.model import lake_layout
from floodmark.model.load_transitions import loaded
from floodmark.model.timestamps import utc_now
from floodmark.state.lease import take_lease
from floodmark.worker.lake_writer import open_files
from pipelines import DirectEngine, Ended, Pipeline, ask_once, numbers, wait_until
from scenarios import open_store, snapshot

pytestmark = pytest.mark.enough_on("mariadb")  # it is about the lake

New = Callable[..., Pipeline]

LAKES = pytest.mark.parametrize("lake", ["local", "seaweedfs"])


@pytest.fixture
def two_tables(pipeline: New) -> Callable[[str], Pipeline]:
    """Tables of which one's name begins with the other's, each with two files."""

    def make(lake: str) -> Pipeline:
        it = pipeline(dict.fromkeys(["t", "t_archive"], "{cursor: [update_at, id]}"), lake=lake)
        for name in it.tables:
            ask_once(
                it,
                f"CREATE TABLE {name} (id INT PRIMARY KEY, update_at DATETIME NOT NULL,"
                " KEY by_change (update_at, id))",
            )
            add(it, 1, 5, name)
        assert it.sync().code == 0
        for name in it.tables:
            add(it, 6, 10, name)
        assert it.sync().code == 0
        return it

    return make


def add(pipeline: Pipeline, first: int, last: int, name: str = "t") -> None:
    ask_once(
        pipeline,
        f"INSERT INTO {name} SELECT seq, '2025-06-01' + INTERVAL seq SECOND"
        f" FROM {numbers(first, last)}",
    )


def mark_loaded(pipeline: Pipeline, manifests: int) -> None:
    """Note that so many of the manifests are in the target."""
    store = open_store(pipeline.lake.open())
    through = pipeline.manifests()[manifests - 1].head
    store.update(
        pipeline.table(),
        lambda now: loaded(now, through=through, total_rows=5, session_rows=5, now=utc_now()),
    )


def clean(pipeline: Pipeline, *arguments: str) -> Ended:
    return pipeline.call("s3clean", "clean", "-t", f"{pipeline.schema}.t", *arguments)


def listed(pipeline: Pipeline) -> dict[str, str]:
    """The state of each file."""
    ended = pipeline.call("s3clean", "list", "-t", f"{pipeline.schema}.t", "--json")
    assert ended.code == 0
    return {file["path"]: file["state"] for file in ended.value}


class FailsAfterWriting(DirectEngine):
    """Writes its files, and then something goes wrong."""

    def extract(self, job: Any, windows: Any, progress: Any) -> Any:
        super().extract(job, windows, progress)
        return []


def sequence(path: str) -> str:
    """Sessions may begin in the same second, so only the number tells which file is older."""
    return path.rsplit("-", 4)[1]


@LAKES
def test_loaded_files_go_and_others_stay(two_tables: Callable[[str], Pipeline], lake: str) -> None:
    it = two_tables(lake)
    mark_loaded(it, 1)
    first, second = sorted(it.named_files(), key=sequence)
    assert listed(it) == {first: "loaded", second: "pending"}
    assert it.sync("--json", engine=FailsAfterWriting).code == 0  # nothing new
    before = snapshot(it.lake.open())
    ended = clean(it, "--dry-run")
    assert (ended.code, "would remove 1 file" in ended.out) == (1, True)
    assert snapshot(it.lake.open()) == before
    ended = clean(it)
    assert ended.code == 1
    assert "kept 1 file not loaded yet" in ended.err
    assert it.files() == {second}
    assert len(it.files("t_archive")) == 2  # another table's
    assert it.findings().differences == ()
    assert clean(it, "--force").code == 0
    assert it.files() == set()
    assert len(it.files("t_archive")) == 2


def test_what_a_reset_left_behind_stays_until_something_is_loaded(pipeline: New) -> None:
    """Seed 003: reset, set, load what is in the lake. Until then nothing of it is to go."""
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL)")
    add(it, 1, 5)
    assert it.sync().code == 0
    name = f"{it.schema}.t"
    for command in (["reset", "--force"], ["set", "--timestamp", "2025-06-01", "--force"]):
        assert it.call("watermark", *command, "-t", name).code == 0
        assert list(listed(it).values()) == ["pending"]
        ended = clean(it)
        assert (ended.code, len(it.files())) == (1, 1)
        assert "kept 1 file not loaded yet" in ended.err
    ended = it.call("sync", "-t", name, "--redshift-only", "--json")
    assert ended.table["loaded_rows"] == 5
    assert (clean(it).code, it.files()) == (0, set())


def test_orphans_are_listed_separately_and_removed_once_uncommittable(
    two_tables: Callable[[str], Pipeline],
) -> None:
    it = two_tables("local")
    add(it, 11, 15)
    assert it.sync(engine=FailsAfterWriting).code == 3
    (orphan,) = it.files() - it.named_files()
    assert listed(it)[orphan] == "orphan"
    ended = clean(it)
    assert "may still commit" in ended.err
    assert orphan in it.files()
    assert it.sync().code == 0  # takes the number that the orphan's run wanted
    assert clean(it).code == 1  # the others are not loaded yet
    assert orphan not in it.files()
    assert it.files() == it.named_files()
    it.check_tracking()


def test_old_orphans_go(two_tables: Callable[[str], Pipeline]) -> None:
    it = two_tables("local")
    add(it, 11, 15)
    it.sync(engine=FailsAfterWriting)
    (orphan,) = it.files() - it.named_files()
    long_ago = time.time() - 2 * 86400
    os.utime(Path(it.lake.folder or "") / orphan, (long_ago, long_ago))
    clean(it)
    assert it.files() == it.named_files()


def test_unloaded_files_of_a_killed_comparison_are_removed_after_a_day(pipeline: New) -> None:
    it = pipeline({"t": "{target_name: Tee}"})
    old, new = (f"loads/unloads/tee/{name}/0000_part_00.parquet" for name in ("old", "new"))
    for path in (old, new):
        it.lake.open().put(path, b"PAR1")
    os.utime(Path(it.lake.folder or "") / old, (0, 0))
    assert listed(it) == {old: "orphan", new: "orphan"}
    ended = clean(it)
    assert (ended.code, "kept 1 file that a run may still commit" in ended.err) == (0, True)
    assert listed(it) == {new: "orphan"}


def test_files_of_an_older_system_are_kept(two_tables: Callable[[str], Pipeline]) -> None:
    it = two_tables("local")
    path = f"incremental/{it.table().key}/year=2024/month=01/day=01/batch_000001.parquet"
    it.lake.open().put(path, b"PAR1")
    os.utime(Path(it.lake.folder or "") / path, (0, 0))
    assert listed(it)[path] == "orphan"
    assert "not written by Floodmark" in clean(it).err
    assert path in it.files()
    clean(it, "--force")
    assert it.files() == set()


def test_only_what_is_old_enough(two_tables: Callable[[str], Pipeline]) -> None:
    it = two_tables("local")
    mark_loaded(it, 2)
    old, young = sorted(it.named_files(), key=sequence)
    ten_days_ago = time.time() - 10 * 86400
    os.utime(Path(it.lake.folder or "") / old, (ten_days_ago, ten_days_ago))
    assert clean(it, "--older-than", "2w").code == 0
    assert it.files() == {old, young}
    assert clean(it, "--older-than", "7d").code == 0
    assert it.files() == {young}
    assert it.findings().differences == ()
    assert clean(it, "--older-than", "soon").code == 2
    assert clean(it, "--older-than", "-7d").code == 2


def test_not_during_a_run(two_tables: Callable[[str], Pipeline]) -> None:
    it = two_tables("local")
    lease = take_lease(
        it.lake.open(),
        it.table(),
        session_id="20250101_000000_other",
        owner="somebody",
        seconds=60,
        clock=utc_now,
        report=lambda _: None,
    )
    with lease:
        assert clean(it, "--force").code == 4
    assert len(it.files()) == 2


def test_partial_files_of_a_killed_run_are_removed_after_a_day(pipeline: New) -> None:
    it = pipeline({"t": "{}"})
    left = Path(str(it.lake.folder)) / ".tmp"
    left.mkdir(parents=True)
    for name, hours in (("old", 25), ("new", 1)):
        (left / name).write_bytes(b"half")
        os.utime(left / name, times=(0, time.time() - hours * 3600))
    shown = it.call("watermark", "prune", "--dry-run", "--json")
    assert (shown.code, shown.value["unfinished"]) == (0, [".tmp/old"])
    assert (left / "old").exists()
    assert it.call("watermark", "prune", "--json").value["unfinished"] == [".tmp/old"]
    assert [path.name for path in left.iterdir()] == ["new"]


def test_uploads_that_were_never_completed_are_aborted(pipeline: New) -> None:
    it = pipeline({"t": "{}"}, lake="seaweedfs")
    objects = it.lake.open()
    files = open_files(
        LakeSettings(url=f"s3://{it.lake.bucket}/{it.lake.prefix}", endpoint=it.lake.endpoint)
    )
    half, foreign = f"{lake_layout.data_files(it.table())}half.parquet", "other/half.parquet"
    for key in (half, foreign):
        file = files(key)
        for _ in range(3):
            file.write(os.urandom(9_000_000))
        wait_until(lambda: objects.remove_unfinished("", later(), dry_run=True))
        file.abandon()

    def unfinished(prefix: str) -> list[str]:
        return objects.remove_unfinished(prefix, later(), dry_run=True)

    assert len(unfinished("")) == 2
    assert objects.remove_unfinished("", utc_now() - timedelta(days=1)) == []
    (removed,) = objects.remove_unfinished(lake_layout.DATA, later())
    assert removed.endswith(half)
    assert unfinished(lake_layout.DATA) == []
    assert [key.endswith(foreign) for key in unfinished("")] == [True]
    assert it.call("watermark", "prune", "--json").value["unfinished"] == []


def later() -> datetime:
    return utc_now() + timedelta(minutes=5)
