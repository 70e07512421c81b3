"""A lost lake is recovered from its mirror: no row is lost or duplicated."""

import json
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import duckdb
import pytest

import floodmark
from floodmark.cli.http_access import Access
from floodmark.cli.http_server import Request
from floodmark.cli.page.site import Site
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.state.mirror import read_mirror_state
from floodmark.sync import backfill, reconcile
from floodmark.sync.load_result import LoadResult
from hints import commands_in
from pipelines import Ended, Pipeline, ask_once
from scenarios import Lake, snapshot
from servers import S3Server
from servers.seaweedfs import SeaweedFS

pytestmark = pytest.mark.enough_on("mariadb")  # it is about the state

KEYED = (
    "id BIGINT PRIMARY KEY AUTO_INCREMENT, update_at DATETIME(6) NOT NULL, v INT, KEY (update_at)"
)
KEYLESS = "id BIGINT NOT NULL, v INT, KEY (id)"


@dataclass(frozen=True)
class Mirrored:
    """A pipeline whose state has a second place."""

    pipeline: Pipeline
    mirror: Lake

    @property
    def settings(self) -> str:
        if self.mirror.folder is not None:
            return f"mirror: {self.mirror.folder}"
        place = {"url": f"s3://{self.mirror.bucket}/{self.mirror.prefix}"}
        keys = {"access_key_id": S3Server.access_key, "secret_access_key": S3Server.secret_key}
        return f"mirror: {json.dumps({**place, 'endpoint': self.mirror.endpoint, **keys})}"

    def lose_lake(self) -> None:
        """Delete the lake, and make an empty one in its place."""
        lake = self.pipeline.lake
        if lake.folder is not None:
            shutil.rmtree(lake.folder)
            return
        delete_bucket(lake)
        make_bucket(lake)

    def insert(self, first: int, last: int) -> None:
        if "cursor: id" in self.pipeline.tables["t"]:
            rows = [f"({n}, {n})" for n in range(first, last + 1)]
            ask_once(self.pipeline, f"INSERT INTO t (id, v) VALUES {', '.join(rows)}")
            return
        rows = [f"({n}, {moment(n)}, {n})" for n in range(first, last + 1)]
        ask_once(self.pipeline, f"INSERT INTO t (id, update_at, v) VALUES {', '.join(rows)}")

    def change(self, row: int, value: int, time: float) -> None:
        """Update a row, after the row with the id `time`."""
        what = f"v = {value}, update_at = {moment(time)}"
        ask_once(self.pipeline, f"UPDATE t SET {what} WHERE id = {row}")

    def sync(self, *arguments: str, mirrored: bool = True) -> Any:
        """Sync with the mirror, or without it as if it was down; return the table's result."""
        self.pipeline.write_config(self.settings if mirrored else "")
        ended = self.pipeline.call("sync", "-p", "main", "--json", *arguments)
        assert ended.code == 0, ended
        self.pipeline.write_config(self.settings)
        return ended.table

    def recover(self, *arguments: str) -> Any:
        ended = self.pipeline.call("recover", "--from-mirror", "--force", "--json", *arguments)
        assert ended.code == 0, ended
        (table,) = ended.value["tables"]
        return table

    def target(self) -> Counter[Any]:
        """How often each row is in the warehouse."""
        with duckdb.connect(str(self.pipeline.folder / "warehouse.duckdb")) as warehouse:
            return Counter(warehouse.execute("SELECT id, v FROM t").fetchall())

    def check(self) -> None:
        """Compare source and target, and everything that is tracked."""
        rows = ask_once(self.pipeline, "SELECT id, v FROM t")
        assert self.target() == Counter(rows)
        ended = self.pipeline.call("watermark", "validate")
        assert ended.code == 0, ended


def moment(time: float) -> str:
    return f"'2025-02-01' + INTERVAL {time} SECOND"


def delete_bucket(lake: Lake) -> None:
    client = _client(lake)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=lake.bucket):
        for found in page.get("Contents", ()):
            client.delete_object(Bucket=lake.bucket, Key=found["Key"])
    client.delete_bucket(Bucket=lake.bucket)


def make_bucket(lake: Lake) -> None:
    _client(lake).create_bucket(Bucket=lake.bucket)


def _client(lake: Lake) -> Any:
    keys = {"aws_access_key_id": S3Server.access_key, "aws_secret_access_key": S3Server.secret_key}
    return boto3.client("s3", endpoint_url=lake.endpoint, region_name="us-east-1", **keys)


Make = Callable[..., Mirrored]


@pytest.fixture
def mirrored(pipeline: Callable[..., Pipeline], tmp_path: Path) -> Make:
    def make(columns: str = KEYED, cursor: str = "[update_at, id]") -> Mirrored:
        made = pipeline({"t": f"{{cursor: {cursor}}}"})
        ask_once(made, f"CREATE TABLE t ({columns})")
        return Mirrored(made, Lake(folder=str(tmp_path / "mirror")))

    return make


@pytest.fixture
def in_buckets(pipeline: Callable[..., Pipeline], seaweedfs: SeaweedFS, tmp_path: Path) -> Mirrored:
    """A pipeline whose lake is a bucket of its own, and the mirror another."""
    made = pipeline({"t": "{cursor: [update_at, id]}"})
    names = (f"lake-{uuid.uuid4().hex[:8]}", f"mirror-{uuid.uuid4().hex[:8]}")
    lake, mirror = (
        Lake(bucket=name, prefix="state", endpoint=seaweedfs.endpoint) for name in names
    )
    for place in (lake, mirror):
        make_bucket(place)
    made = replace(made, lake=lake)
    ask_once(made, f"CREATE TABLE t ({KEYED})")
    return Mirrored(made, mirror)


@pytest.mark.follows_hint("floodmark recover --from-mirror -t …")
def test_lost_bucket_is_recovered_without_a_reload(in_buckets: Mirrored) -> None:
    """Everything is loaded: the files are not needed, and only new rows are read."""
    one = in_buckets
    one.insert(1, 50)
    one.sync()
    one.insert(51, 60)
    one.sync()
    one.lose_lake()
    one.insert(61, 65)
    refused = one.pipeline.call("sync", "-p", "main")
    assert refused.code == 1
    assert "the lake has lost the state of" in refused.out
    command, *_ = commands_in(refused.err.splitlines()[0])
    recovered = one.pipeline.call(*command, "--force")
    assert recovered.code == 0, recovered
    result = one.sync()
    assert (result["rows"], result["loaded_rows"]) == (5, 5)
    one.check()
    ended = one.pipeline.call("sync", "-p", "main", "--verify-data=all")
    assert ended.code == 0, ended
    assert state(one.mirror) == state(one.pipeline.lake)


def state(lake: Lake) -> dict[str, bytes]:
    kept = ("manifests/", "watermarks/v2/", "watermarks/recoveries/")
    return {k: data for k, data in snapshot(lake.open()).items() if k.startswith(kept)}


def test_rows_that_were_not_loaded_are_read_again(mirrored: Make) -> None:
    one = mirrored()
    one.insert(1, 20)
    one.sync()
    one.insert(21, 30)
    one.sync("--backup-only")
    one.lose_lake()
    found = one.recover()
    assert (found["manifests"], found["restart"]["kind"]) == (2, "go back")
    assert found["restart"]["lost"] == ["1-2"]
    result = one.sync()
    assert (result["rows"], result["loaded_rows"]) == (10, 10)
    one.check()
    assert one.recover()["restart"] is None


def test_rows_of_a_missing_manifest_are_not_forgotten(mirrored: Make) -> None:
    """The mirror lost a manifest, too: without its rows, the table must not go on."""
    one = mirrored()
    for first in (1, 11, 21):
        one.insert(first, first + 9)
        one.sync("--backup-only")
    mirror, second = one.mirror.open(), lake_layout.manifest(one.pipeline.table(), ManifestId(1, 2))
    kept = mirror.get(second).data
    one.lose_lake()
    command = ("recover", "--from-mirror", "--force")
    mirror.delete(second)
    ended = one.pipeline.call(*command)
    assert ended.code == 1
    assert "manifests 1-2 are neither in the lake nor in " in ended.err
    mirror.put(second, kept[:-9])
    ended = one.pipeline.call(*command)
    assert ended.code == 1
    assert f"{one.mirror.folder}/{second} is damaged" in ended.err
    assert one.pipeline.call("sync", "-p", "main").code == 1  # only the mirror knows the table
    mirror.delete(second)
    mirror.put(second, kept)
    assert one.recover()["restart"]["lost"] == ["1-1", "1-2", "1-3"]
    assert one.sync()["rows"] == 30
    one.check()


def test_what_is_damaged_in_the_mirror_only_stops_nothing(mirrored: Make) -> None:
    one = mirrored()
    for first in (1, 11):
        one.insert(first, first + 9)
        one.sync()
    lake, table = one.pipeline.lake.open(), one.pipeline.table()
    one.mirror.open().put(lake_layout.manifest(table, ManifestId(1, 1)), b"{")
    lake.delete(lake_layout.manifest(table, ManifestId(1, 2)))
    assert one.recover()["manifests"] == 1
    one.check()


def test_loads_that_were_not_mirrored_are_merged(mirrored: Make) -> None:
    """The mirror was behind: the ledger has manifests that the log does not know any more."""
    one = mirrored()
    one.insert(1, 20)
    one.sync()
    one.insert(21, 30)
    one.change(3, -1, 30.5)
    one.sync(mirrored=False)
    one.insert(31, 33)
    one.sync("--backup-only", mirrored=False)
    one.lose_lake()
    found = one.recover()
    assert (found["manifests"], found["restart"]["unknown"]) == (1, ["1-2"])
    one.change(4, -2, 33.5)
    one.sync()
    one.check()
    assert one.target()[3, -1] == one.target()[4, -2] == 1
    again = one.recover()
    assert (again["manifests"], again["restart"]) == (0, None)
    one.insert(34, 40)
    one.sync()
    one.check()
    assert state(one.mirror) == state(one.pipeline.lake)


def no_load(*_: Any, **__: Any) -> LoadResult:
    return LoadResult()


@pytest.mark.parametrize("since", ["2025-02-01 00:00:04", None])
def test_rows_of_a_lost_backfill_are_read_again(
    mirrored: Make, monkeypatch: pytest.MonkeyPatch, since: str | None
) -> None:
    """They are before the position, which a backfill does not move; or before the start."""
    one = mirrored()
    one.insert(1, 20)
    one.sync()
    ask_once(one.pipeline, "UPDATE t SET v = -v WHERE id IN (5, 6)")  # its time stays
    first = ["--from", since] if since else []
    if since is None:
        ask_once(one.pipeline, "INSERT INTO t VALUES (99, '2024-12-01', 99)")
    with monkeypatch.context() as patch:
        patch.setattr(backfill, "load_after", lambda found, *_: found)
        name = f"{one.pipeline.schema}.t"
        ended = one.pipeline.call("backfill", "-t", name, *first, "--to", "2025-02-01 00:00:10")
        assert ended.code == 0, ended
    one.lose_lake()
    planned = one.pipeline.call("recover", "--from-mirror", "--dry-run")
    assert "1 manifest of backfills or reconciliations not loaded" in " ".join(planned.out.split())
    found = one.recover()
    assert found["restart"]["repairs"] == ["1-2"]
    assert one.sync()["rows"] == (17 if since else 21)
    one.check()
    ended = one.pipeline.call("sync", "-p", "main", "--verify-data=all")
    assert ended.code == 0, ended


@pytest.mark.follows_hint("floodmark reconcile -t … --deletes hard")
@pytest.mark.parametrize("deletes", [False, True])
def test_a_lost_reconciliation_is_not_forgotten(
    mirrored: Make, monkeypatch: pytest.MonkeyPatch, deletes: bool
) -> None:
    one = mirrored()
    one.insert(1, 20)
    one.sync()
    if deletes:
        ask_once(one.pipeline, "DELETE FROM t WHERE id IN (3, 4)")
    else:
        with duckdb.connect(str(one.pipeline.folder / "warehouse.duckdb")) as warehouse:
            warehouse.execute("DELETE FROM t WHERE id IN (11, 12)")
    with monkeypatch.context() as patch:
        patch.setattr(reconcile, "load_table", no_load)
        ended = one.pipeline.call("reconcile", "-p", "main", "--deletes", "hard")
        assert ended.code == 0, ended
    one.lose_lake()
    planned = one.pipeline.call("recover", "--from-mirror", "--dry-run")
    assert ("deleted rows stay in the target" in " ".join(planned.out.split())) == deletes
    found = one.recover()
    assert found["restart"]["repairs"] == ["1-2"]
    assert found["restart"]["deleted"] == (2 if deletes else 0)
    assert one.sync()["rows"] == (0 if deletes else 10)
    if deletes:
        assert "differs" in one.pipeline.call("status").out
        command = next(c for c in commands_in(planned.out) if c[0] == "reconcile")
        ended = one.pipeline.call(*command)
        assert ended.code == 0, ended
        assert "in step" in one.pipeline.call("status").out
    one.check()


@pytest.mark.parametrize("behind", [False, True])
def test_rows_without_a_key_are_never_duplicated(mirrored: Make, behind: bool) -> None:
    one = mirrored(KEYLESS, "id")
    one.insert(1, 20)
    one.sync()
    one.insert(21, 30)
    one.sync(*([] if behind else ["--backup-only"]), mirrored=not behind)
    one.lose_lake()
    found = one.recover()
    assert found["restart"]["kind"] == ("read again" if behind else "go back")
    assert one.sync()["rows"] == (30 if behind else 10)
    one.check()
    one.insert(31, 33)
    one.sync()
    one.check()


def test_a_new_column_is_filled_although_its_chunk_is_lost(mirrored: Make) -> None:
    one = mirrored()
    one.insert(1, 20)
    one.sync()
    ask_once(one.pipeline, "ALTER TABLE t ADD COLUMN kind VARCHAR(9) NOT NULL DEFAULT 'old'")
    one.insert(21, 30)
    one.sync("--backup-only")
    one.lose_lake()
    one.recover()
    one.sync()
    with duckdb.connect(str(one.pipeline.folder / "warehouse.duckdb")) as warehouse:
        found = warehouse.execute("SELECT kind, COUNT(*) FROM t GROUP BY kind").fetchall()
    assert found == [("old", 30)]


def test_a_lost_warehouse_and_a_lost_lake_are_read_again(mirrored: Make) -> None:
    one = mirrored()
    one.insert(1, 20)
    one.sync()
    one.lose_lake()
    (one.pipeline.folder / "warehouse.duckdb").unlink()
    assert one.recover()["restart"]["lost"] == ["1-1"]
    assert one.sync()["rows"] == 20
    one.check()


def test_what_is_in_the_lake_is_kept(mirrored: Make) -> None:
    """Only lost and damaged manifests are restored; what is newer stays."""
    one = mirrored()
    for first in (1, 11, 21):
        one.insert(first, first + 9)
        one.sync()
    one.insert(31, 40)
    one.sync(mirrored=False)
    expected = state(one.pipeline.lake)
    objects, table = one.pipeline.lake.open(), one.pipeline.table()
    objects.delete(lake_layout.manifest(table, ManifestId(1, 1)))
    damaged = lake_layout.manifest(table, ManifestId(1, 2))
    objects.put(damaged, objects.get(damaged).data[:-20])
    planned = one.recover("--dry-run")
    assert planned["manifests"] == 2
    assert state(one.pipeline.lake) != expected
    assert one.recover()["manifests"] == 2
    assert state(one.pipeline.lake) == expected
    one.sync()
    one.check()
    assert state(one.mirror) == state(one.pipeline.lake)


def test_two_different_logs_are_not_mixed(mirrored: Make) -> None:
    """The other table is recovered, though."""
    one = mirrored()
    one = replace(one, pipeline=replace(one.pipeline, tables={**one.pipeline.tables, "u": "{}"}))
    ask_once(one.pipeline, "CREATE TABLE u (id BIGINT PRIMARY KEY)")
    ask_once(one.pipeline, "INSERT INTO u VALUES (1)")
    one.insert(1, 20)
    one.pipeline.write_config(one.settings)
    assert one.pipeline.call("sync", "-p", "main").code == 0
    one.lose_lake()
    one.insert(21, 22)
    one.pipeline.write_config("")
    name = f"{one.pipeline.schema}.t"  # as if there was no mirror: a log of its own
    assert one.pipeline.call("sync", "-t", name, "--backup-only").code == 0
    one.pipeline.write_config(one.settings)
    before = (snapshot(one.pipeline.lake.open()), snapshot(one.mirror.open()))
    ended = one.pipeline.call("recover", "--from-mirror", "--force")
    assert ended.code == 3
    assert "has another manifest 1-1" in ended.err
    here = snapshot(one.pipeline.lake.open())
    assert {key: here[key] for key in before[0]} == before[0]
    assert lake_layout.LAKE not in here
    assert snapshot(one.mirror.open()) == before[1]
    assert one.pipeline.watermark("u").mysql_state.total_rows == 1


@pytest.mark.follows_hint("if the lake was lost: 'floodmark recover --from-mirror'")
def test_doctor_reports_a_lost_lake(mirrored: Make) -> None:
    one = mirrored()
    one.insert(1, 5)
    one.sync()
    one.insert(6, 7)
    one.sync(mirrored=False)
    behind = one.pipeline.call("doctor").out
    assert "1 manifest behind since" in behind
    assert (
        "🪞 Mirror: 1 manifest behind since"
        in one.pipeline.call("watermark", "get", "-t", f"{one.pipeline.schema}.t").out
    )
    one.sync()
    assert "complete for 1 table" in one.pipeline.call("doctor").out
    one.lose_lake()
    command, *_ = commands_in(one.pipeline.call("doctor").out)
    assert one.pipeline.call(*command, "--force").code == 0
    one.sync()
    one.check()


@pytest.mark.follows_hint("if the lake was lost, run 'floodmark recover --from-mirror'")
def test_a_new_table_in_a_lost_lake_is_not_mirrored(mirrored: Make) -> None:
    one = mirrored()
    one.insert(1, 5)
    one.sync()
    one.lose_lake()
    one = replace(one, pipeline=replace(one.pipeline, tables={**one.pipeline.tables, "u": "{}"}))
    one.pipeline.write_config(one.settings)
    ask_once(one.pipeline, "CREATE TABLE u (id BIGINT PRIMARY KEY)")
    ask_once(one.pipeline, "INSERT INTO u VALUES (1)")
    ended = one.pipeline.call("sync", "-p", "main")
    assert ended.code == 3, ended
    (warning,) = [line for line in ended.err.splitlines() if "is the mirror of a lake" in line]
    assert "is behind for" in warning
    (hint,) = [line for line in ended.err.splitlines() if "if the lake was lost, run" in line]
    (command,) = commands_in(hint)
    assert one.pipeline.call(*command, "--force").code == 0
    assert one.pipeline.call("sync", "-p", "main").code == 0
    one.check()
    assert state(one.mirror) == state(one.pipeline.lake)


@pytest.mark.follows_hint("see what was lost: 'floodmark recover --from-mirror --dry-run'")
def test_a_run_notices_that_the_mirror_has_more(mirrored: Make) -> None:
    one = mirrored()
    for first in (1, 6):
        one.insert(first, first + 4)
        one.sync("--backup-only")
    lake = one.pipeline.lake.open()
    lake.delete(lake_layout.manifest(one.pipeline.table(), ManifestId(1, 2)))
    ask_once(one.pipeline, "DELETE FROM t WHERE id > 5")  # so that nothing is read again
    ended = one.pipeline.call("sync", "-p", "main", "--backup-only")
    assert "has manifest 1-2" in ended.err
    (command,) = commands_in(ended.err)
    assert "lost: 1 manifest" in one.pipeline.call(*command).out


def test_a_moved_table_is_mirrored(mirrored: Make) -> None:
    one = mirrored()
    one.insert(1, 5)
    one.sync()
    old = str(one.pipeline.table())
    ask_once(one.pipeline, "RENAME TABLE t TO moved")
    moved = replace(one.pipeline, tables={"moved": "{cursor: [update_at, id], target_name: t}"})
    moved.write_config(one.settings)
    ended = moved.call("watermark", "move", "-t", old, "--to", f"{moved.schema}.moved", "--force")
    assert ended.code == 0, ended
    assert state(one.mirror) == state(one.pipeline.lake)
    one.lose_lake()
    assert moved.call("recover", "--from-mirror", "--force").code == 0
    assert moved.call("sync", "-p", "main").code == 0
    assert one.target() == Counter(ask_once(moved, "SELECT id, v FROM moved"))


def test_metrics_show_the_mirror_and_the_last_drill(mirrored: Make) -> None:
    one = mirrored()
    one.insert(1, 5)
    file = one.pipeline.folder / "floodmark.prom"
    one.sync("--metrics-file", str(file))
    assert "floodmark_mirror_behind_seconds 0.0" in file.read_text()
    assert "floodmark_last_drill_timestamp_seconds " not in value_lines(file)
    assert one.pipeline.call("drill").code == 0
    one.sync("--metrics-file", str(file))
    assert "floodmark_drill_failed_rehearsals 0" in value_lines(file)
    said = one.pipeline.call("status").out.splitlines()
    assert f"mirror: {one.mirror.folder}, complete at " in said[-3]
    assert re.search(r"^drill: \d+ rehearsals recovered in 1 of 1 table, \d+ s ago$", said[-2])
    only = one.pipeline.call("status", "-p", "main").out
    assert "drill" not in only
    assert "mirror" not in only


def served(one: Mirrored) -> tuple[str, Any]:
    """What `serve` tells Prometheus, without comments, and a page."""
    with floodmark.open_project(one.pipeline.config) as project:
        site = Site(project, Access(None))
        headers = {"host": "localhost"}
        metrics, status = (
            site.answer(Request(path=path, query={}, headers=headers)).body.decode()
            for path in ("/metrics", "/status.json")
        )
    return values_in(metrics), json.loads(status)


def value_lines(file: Path) -> str:
    return values_in(file.read_text())


def values_in(metrics: str) -> str:
    return "\n".join(line for line in metrics.splitlines() if not line.startswith("#"))


def value_of(family: str, metrics: str) -> float:
    found = re.search(rf"^{family} (\S+)$", metrics, re.M)
    assert found, f"no {family}"
    return float(found[1])


def test_metrics_of_serve_cover_every_alert(mirrored: Make) -> None:
    """Rounds, mirror and drill, from the lake alone; a round that finds nothing counts as well."""
    one = mirrored()
    one.insert(1, 5)
    one.sync()
    assert one.pipeline.call("drill").code == 0
    before, status = served(one)
    assert value_of("floodmark_mirror_behind_seconds", before) == 0
    assert value_of("floodmark_drill_failed_rehearsals", before) == 0
    assert value_of("floodmark_last_drill_timestamp_seconds", before) > 0
    assert status["mirror"].keys() == {"text"}
    assert status["drill"]["text"].endswith("rehearsals recovered in 1 of 1 table")
    one.sync()
    after, _ = served(one)
    family = "floodmark_last_round_timestamp_seconds"
    assert value_of(family, after) > value_of(family, before)
    ask_once(one.pipeline, "DROP TABLE t")
    assert one.pipeline.call("sync", "-p", "main").code == 2  # a failed round is one, too
    assert value_of(family, served(one)[0]) > value_of(family, after)


def test_a_failing_mirror_is_in_the_metrics(in_buckets: Mirrored) -> None:
    one = in_buckets
    one.insert(1, 5)
    one.sync()
    file = one.pipeline.folder / "floodmark.prom"
    wrong = one.settings.replace(S3Server.secret_key, "wrong")
    one.insert(6, 7)
    one.pipeline.write_config(wrong)
    assert one.pipeline.call("sync", "-p", "main", "--metrics-file", str(file)).code == 0
    assert "floodmark_mirror_behind_tables 1" in value_lines(file)
    metrics, status = served(one)
    assert value_of("floodmark_mirror_behind_tables", metrics) == 1
    assert value_of("floodmark_mirror_behind_seconds", metrics) > 0
    assert f"{one.pipeline.table()} behind since " in status["mirror"]["text"]
    assert f"{one.pipeline.table()} behind since " in one.pipeline.call("status").out


def test_recovery_asks_and_needs_a_mirror(mirrored: Make) -> None:
    one = mirrored()
    one.insert(1, 5)
    one.sync()
    one.lose_lake()
    refused = one.pipeline.call("recover", "--from-mirror")
    assert (refused.code, "this would recover 1 table" in refused.err) == (2, True)
    assert not Path(str(one.pipeline.lake.folder), "manifests").exists()
    assert one.pipeline.call("recover").code == 2
    one.pipeline.write_config("")
    assert "there is no mirror" in one.pipeline.call("recover", "--from-mirror").err


def test_status_needs_nothing_of_the_mirror(mirrored: Make) -> None:
    """A table that was never synced: what its failure is, and not what the mirror lacks."""
    one = mirrored()
    ask_once(one.pipeline, "DROP TABLE t")
    one.pipeline.write_config(one.settings)
    assert one.pipeline.call("sync", "-p", "main").code != 0
    one.pipeline.write_config(
        "mirror: {url: s3://second/state, access_key_id: k, secret_access_key: '${MS}'}"
    )
    ended = one.pipeline.call("status")
    assert "MS is not set" not in ended.out
    assert "extract failed" in ended.out
    _, status = served(one)
    (table,) = status["tables"]
    assert (table["state"], "MS is not set" in json.dumps(status)) == ("failing", False)


def failing(one: Mirrored, settings: str) -> Ended:
    """Sync with another mirror, which does not work."""
    one.insert(21, 25)
    one.pipeline.write_config(settings)
    ended = one.pipeline.call("sync", "-p", "main")
    one.pipeline.write_config(one.settings)
    return ended


@pytest.mark.parametrize("wrong", ["no such bucket", "wrong secret", "no such profile", "down"])
def test_a_mirror_that_fails_does_not_stop_a_sync(in_buckets: Mirrored, wrong: str) -> None:
    one = in_buckets
    one.insert(1, 20)
    one.sync()
    place = json.loads(one.settings.removeprefix("mirror: "))
    if wrong == "no such bucket":
        place["url"] = "s3://no-such-bucket/state"
    elif wrong == "wrong secret":
        place["secret_access_key"] = "wrong"
    elif wrong == "no such profile":
        place = {"url": place["url"], "endpoint": place["endpoint"], "profile": "nobody"}
    else:
        place["endpoint"] = "http://127.0.0.1:9"
    ended = failing(one, f"mirror: {json.dumps(place)}\nretries: {{tries: 1}}")
    assert ended.code == 0, ended
    (warning,) = [line for line in ended.err.splitlines() if "is behind for" in line]
    assert str(one.pipeline.table()) in warning
    found = read_mirror_state(one.pipeline.lake.open())
    assert found is not None
    assert found.error is not None
    assert str(one.pipeline.table()) in found.behind
    one.check()
    one.insert(26, 27)
    one.sync()
    assert state(one.mirror) == state(one.pipeline.lake)
