"""The watermark commands as an operator meets them."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from floodmark.cli.main import run
from floodmark.embedded.process import free_ports
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import _digest
from floodmark.model.load_transitions import loaded
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, DataFile
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.timestamps import utc_now
from floodmark.model.watermark import Watermark
from floodmark.storage.objects import ObjectStore
from floodmark.subprocesses import LOOPBACK
from scenarios import (
    BUCKET,
    TABLE,
    Lake,
    land,
    new_lake,
    open_store,
    snapshot,
    use_test_keys,
    write_config,
)
from servers.seaweedfs import SeaweedFS
from terminals import on_terminal

PROGRAM = str(Path(sys.executable).parent / "floodmark")
PAYMENTS = TableName("US_PROD", "shop", "payments")
MOMENT = datetime(2025, 8, 14, 15, 30, 22, tzinfo=UTC)


class Floodmark:
    """The program, with a lake of its own."""

    def __init__(self, folder: Path, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.lake = lake
        self.objects: ObjectStore = lake.open()
        self.config = write_config(folder, lake)
        self._capsys = capsys

    def call(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run a watermark command; returns stdout and stderr."""
        assert run(["watermark", *arguments, "--config", self.config]) == code
        captured = self._capsys.readouterr()
        return click.unstyle(captured.out), click.unstyle(captured.err)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a watermark command with --json; returns what it printed."""
        out, _ = self.call(*arguments, "--json", code=code)
        return json.loads(out)

    def in_process(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the installed program."""
        command = [PROGRAM, "watermark", *arguments, "--config", self.config]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, **options
        )


@pytest.fixture
def floodmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Floodmark:
    return Floodmark(tmp_path, Lake(folder=str(tmp_path / "lake")), capsys)


# What get shows


def land_payments(objects: ObjectStore) -> None:
    """As much as in seed 001: 1,250,000 rows in 250 files, all loaded."""
    now = datetime(2025, 8, 14, 16, 45, 33, tzinfo=UTC)
    store = open_store(objects, clock=lambda: now)
    files = tuple(
        DataFile(
            f"{lake_layout.data_files(PAYMENTS)}{n}.parquet",
            5000,
            10,
            "",
            "",
            Position(),
            Position(),
        )
        for n in range(250)
    )
    store.commit(
        PAYMENTS,
        lambda current: Chunk(
            start=current.position, end=Position(MOMENT), files=files, strategy="sequential"
        ),
    )
    store.update(
        PAYMENTS,
        lambda current: loaded(
            current,
            through=current.head,
            total_rows=1250000,
            session_rows=1250000,
            now=datetime(2025, 8, 14, 16, 50, 0, tzinfo=UTC),
        ),
    )


AS_IN_SEED_001 = """\
📅 Current Watermark for US_PROD:shop.payments:

   🔄 MySQL → S3 Backup Stage:
      Status: success
      Rows Extracted: 1,250,000
      S3 Files Created: 250
      Last Data Timestamp: 2025-08-14T15:30:22Z
      Last Extraction Time: 2025-08-14T16:45:33Z

   📊 S3 → Redshift Loading Stage:
      Status: success
      Rows Loaded: 1,250,000
      Last Load Time: 2025-08-14T16:50:00Z

   🔜 Next Incremental Backup:
      Will start from: rows after 2025-08-14 15:30:22
"""


IN_A_FOLDER = AS_IN_SEED_001.replace("S3 Files", "Files").replace("S3", "Lake")


def test_get_shows_both_stages_as_in_seed_001(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_test_keys(monkeypatch)
    floodmark = Floodmark(tmp_path, new_lake("ministack", request, tmp_path), capsys)
    redshift = "{type: redshift, host: r, database: d, user: u, password: p, iam_role: default}"
    text = Path(floodmark.config).read_text()
    Path(floodmark.config).write_text(
        text.replace("{type: duckdb, path: ./warehouse.duckdb}", redshift)
    )
    land_payments(floodmark.objects)
    assert floodmark.call("get", "-t", "shop.payments") == (AS_IN_SEED_001, "")
    assert (
        "   📁 S3 Files (250):" in floodmark.call("get", "-t", "shop.payments", "--show-files")[0]
    )


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("{type: duckdb, path: w}", "DuckDB"),
        ("{type: postgres, database: w, user: u}", "PostgreSQL"),
    ],
)
def test_get_names_the_lake_and_the_warehouse(floodmark: Floodmark, kind: str, title: str) -> None:
    text = Path(floodmark.config).read_text()
    Path(floodmark.config).write_text(
        text.replace("{type: duckdb, path: ./warehouse.duckdb}", kind)
    )
    land_payments(floodmark.objects)
    expected = IN_A_FOLDER.replace("Redshift", title)
    assert floodmark.call("get", "-t", "shop.payments") == (expected, "")
    assert floodmark.call("get", "-t", "US_PROD:shop.payments") == (expected, "")
    said, _ = floodmark.call("get", "-t", "shop.payments", "--show-files")
    assert "   📁 Files in Lake (250):" in said


def test_get_as_json_carries_what_the_specification_lists(floodmark: Floodmark) -> None:
    land_payments(floodmark.objects)
    document = floodmark.json("get", "-t", "shop.payments")
    expected = {
        "version": 2,
        "table_name": "US_PROD:shop.payments",
        "revision": 2,
        "epoch": 1,
        "backup_strategy": "sequential",
    }
    assert {key: document[key] for key in expected} == expected
    for key in ("checksum", "session_id", "created_at", "updated_at"):
        assert document[key]
    assert {key: document["mysql_state"][key] for key in document["mysql_state"]}.items() >= {
        "status": "success",
        "last_timestamp": "2025-08-14T15:30:22Z",
        "last_id": None,
        "last_extraction_time": "2025-08-14T16:45:33Z",
        "total_rows": 1250000,
        "last_session_rows": 1250000,
        "s3_file_count": 250,
        "last_sequence": 1,
        "error": None,
    }.items()
    assert (
        document["redshift_state"].items()
        >= {
            "status": "success",
            "total_rows": 1250000,
            "last_session_rows": 1250000,
            "last_load_time": "2025-08-14T16:50:00Z",
            "loaded_sequence": 1,
            "error": None,
        }.items()
    )
    assert set(document["metadata"]) >= {
        "manual_watermark",
        "manual_set_at",
        "total_processing_time_seconds",
        "average_batch_size",
        "imported_from",
    }
    assert document["backup_metadata"]["backup_locations"] == ["primary", "daily", "session"]


def test_get_with_files_says_which_are_loaded(floodmark: Floodmark) -> None:
    store = open_store(floodmark.objects)
    land(store, rows=10, name="first")
    first = ManifestId(1, 1)
    store.update(
        TABLE,
        lambda now: loaded(now, through=first, total_rows=10, session_rows=10, now=utc_now()),
    )
    land(store, rows=20, name="second")
    out, _ = floodmark.call("get", "-t", "shop.orders", "--show-files")
    lines = [line.split() for line in out.splitlines() if ".parquet" in line]
    assert [(line[0].rpartition("/")[2], line[1], line[-1]) for line in lines] == [
        ("first.parquet", "10", "loaded"),
        ("second.parquet", "20", "pending"),
    ]
    files = floodmark.json("get", "-t", "shop.orders", "--show-files")["files"]
    assert [(file["manifest"], file["loaded"]) for file in files] == [("1-1", True), ("1-2", False)]


def test_several_tables_in_one_call(floodmark: Floodmark) -> None:
    out, _ = floodmark.call(
        *("set", "-t", "shop.orders", "-t", "US_PROD:shop.payments"),
        *("--timestamp", "2025-08-01", "--id", "7", "--force"),
    )
    assert [line for line in out.splitlines() if line.startswith("US_PROD")] == [
        "US_PROD:shop.orders: no watermark → 2025-08-01 00:00:00, id 7",
        "US_PROD:shop.payments: no watermark → 2025-08-01 00:00:00, id 7",
    ]
    tables = ["-t", "shop.orders", "-t", "shop.payments", "-t", "US_PROD:shop.orders"]
    out, _ = floodmark.call("get", *tables)
    assert out.count("📅 Current Watermark") == 2
    assert [one["table_name"] for one in floodmark.json("get", *tables)] == [
        "US_PROD:shop.orders",
        "US_PROD:shop.payments",
    ]


# Changes by an operator


def test_set_shows_before_and_after_and_history_who_and_when(floodmark: Floodmark) -> None:
    began = utc_now()
    floodmark.call("set", "-t", "shop.orders", "--id", "100", "--force")
    out, _ = floodmark.call("set", "-t", "shop.orders", "--id", "50")
    assert out.splitlines() == [
        "US_PROD:shop.orders: id 100 → id 50",
        "    the next sync reads rows after id 50",
    ]
    result = floodmark.json("set", "-t", "shop.orders", "--id", "40")
    assert (result[0]["before"], result[0]["after"]) == ({"id": 50}, {"id": 40})

    document = floodmark.json("get", "-t", "shop.orders")
    assert document["backup_strategy"] == "manual_cli"
    assert document["metadata"]["manual_watermark"] is True
    history = floodmark.json("history", "-t", "shop.orders")
    assert [(one["id"], one["standing"]["mysql_state"]["last_id"]) for one in history] == [
        ("1-3", 40),
        ("1-2", 50),
        ("1-1", 100),
    ]
    for one in history:
        assert "@" in one["author"]
        assert began <= datetime.fromisoformat(one["created_at"]) <= utc_now()
    out, _ = floodmark.call("history", "-t", "shop.orders", "--most", "1")
    assert re.findall(r"\b1-\d+\b", out) == ["1-3"]
    assert history[0]["author"] in out
    out, _ = floodmark.call("get", "-t", "shop.orders")
    assert "(set by hand)" in out
    assert "Will start from: rows after id 40" in out


def test_a_jump_forward_is_refused_elsewhere_than_on_a_terminal(floodmark: Floodmark) -> None:
    floodmark.call("set", "-t", "shop.orders", "--id", "100", "--force")
    before = snapshot(floodmark.objects)
    out, error = floodmark.call("set", "-t", "shop.orders", "--id", "200", code=2)
    assert out == ""
    assert "jump from id 100 to id 200: rows in between will be skipped" in error
    assert "hint: add --force" in error
    assert snapshot(floodmark.objects) == before
    floodmark.call("set", "-t", "shop.orders", "--id", "200", "--force")
    floodmark.call("set", "-t", "shop.orders", "--id", "200")
    floodmark.call("set", "-t", "shop.orders", "--id", "150")
    assert floodmark.json("get", "-t", "shop.orders")["mysql_state"]["last_id"] == 150


@pytest.mark.parametrize("answer", ["y", "n"])
@pytest.mark.parametrize(
    ("command", "asked", "last_id"),
    [
        (["set", "--id", "200"], "would jump from id 30 to id 200: rows in between will be", 200),
        (["reset"], "would be read again from the start; 30 rows were read so far;", None),
        (["restore", "--from", "1-1"], "would go back from id 30 to id 10 (1-1)", 10),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_on_a_terminal_moves_are_asked_about(
    busy: Floodmark, command: list[str], asked: str, last_id: int | None, answer: str
) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = busy.in_process(*command, "-t", "shop.orders", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == (0 if answer == "y" else 130), done.stderr
    assert asked in done.stderr
    assert "Continue? [y/N]" in done.stderr
    found = busy.json("get", "-t", "shop.orders")["mysql_state"]["last_id"]
    assert found == (last_id if answer == "y" else 30)


def test_without_any_stdin_a_jump_forward_is_refused(floodmark: Floodmark) -> None:
    floodmark.call("set", "-t", "shop.orders", "--id", "100", "--force")
    command = f"{PROGRAM} watermark set -t shop.orders --id 200 --config {floodmark.config} <&-"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "position_kept", "loaded_kept"),
    [
        ([], False, False),
        (["--mysql-only"], False, True),
        (["--extract-only"], False, True),
        (["--redshift-only"], True, False),
        (["--load-only"], True, False),
    ],
)
def test_reset_of_both_stages_or_one(
    floodmark: Floodmark, flags: list[str], position_kept: bool, loaded_kept: bool
) -> None:
    store = open_store(floodmark.objects)
    land(store, rows=10, name="first")
    store.update(
        TABLE,
        lambda now: loaded(now, through=now.head, total_rows=10, session_rows=10, now=utc_now()),
    )
    out, _ = floodmark.call("reset", "-t", "shop.orders", *flags, "--force")
    assert out.startswith("US_PROD:shop.orders: id 10 → ")
    document = floodmark.json("get", "-t", "shop.orders")
    assert document["epoch"] == 2
    extract, load = document["mysql_state"], document["redshift_state"]
    assert (extract["last_id"], extract["total_rows"]) == ((10, 10) if position_kept else (None, 0))
    assert load["total_rows"] == (10 if loaded_kept else 0)
    assert load["status"] == ("success" if loaded_kept else "pending")
    # After either, more can be extracted and loaded, and everything agrees.
    again = open_store(floodmark.objects)
    after = land(again, rows=5, name="after")
    assert after.loaded_head < after.head
    done = again.update(
        TABLE,
        lambda now: loaded(now, through=now.head, total_rows=15, session_rows=5, now=utc_now()),
    )
    assert done.loaded_head == done.head
    floodmark.call("validate", "-t", "shop.orders", "--lake-only")


def save(floodmark: Floodmark, name: str) -> str:
    """What `floodmark watermark get --json > FILE` leaves in the file."""
    path = floodmark.folder / name
    out, _ = floodmark.call("get", "-t", "shop.orders", "--json")
    path.write_text(out)
    return str(path)


def test_restore_from_a_file_after_more_was_extracted(floodmark: Floodmark) -> None:
    store = open_store(floodmark.objects)
    land(store, rows=10, name="first")
    path = save(floodmark, "saved.json")
    land(store, rows=20, name="second")
    out, _ = floodmark.call("restore", "-t", "shop.orders", "--file", path, "--force")
    assert out == "US_PROD:shop.orders: id 30 → id 10\n"
    state = floodmark.json("get", "-t", "shop.orders")["mysql_state"]
    assert (state["last_id"], state["last_sequence"]) == (10, 3)
    assert state["total_rows"] == 30, "what was extracted since is still in the lake"
    after = land(open_store(floodmark.objects), rows=20, name="second again")
    assert (after.mysql_state.last_id, after.mysql_state.total_rows) == (30, 50)
    floodmark.call("validate", "-t", "shop.orders", "--lake-only")


@pytest.mark.parametrize("stages", [[], ["--mysql-only"], ["--redshift-only"]])
@pytest.mark.parametrize("by", ["file", "id"])
def test_restore_after_a_reset(floodmark: Floodmark, stages: list[str], by: str) -> None:
    store = open_store(floodmark.objects)
    land(store, rows=10, name="first")
    land(store, rows=20, name="second")
    store.update(
        TABLE,
        lambda now: loaded(now, through=now.head, total_rows=30, session_rows=30, now=utc_now()),
    )
    before = floodmark.json("get", "-t", "shop.orders")
    path = save(floodmark, "saved.json")
    floodmark.call("reset", "-t", "shop.orders", *stages, "--force")
    land(open_store(floodmark.objects), rows=5, name="after the reset")
    origin = ["--file", path] if by == "file" else ["--from", "1-2"]
    floodmark.call("restore", "-t", "shop.orders", *origin, "--force")

    document = floodmark.json("get", "-t", "shop.orders")
    assert document["epoch"] == 2, "an epoch is never used again"
    assert document["mysql_state"]["last_id"] == 30
    assert document["mysql_state"]["total_rows"] == 35
    load = document["redshift_state"]
    assert load["load_epoch"] == before["redshift_state"]["load_epoch"]
    known = (load["loaded_epoch"], load["loaded_sequence"])
    assert known <= (1, 2), "chunks since the reset are not in the ledger of the earlier epoch"
    if by == "file" or stages == ["--mysql-only"]:
        assert known == (1, 2)
        assert load["total_rows"] == 30
    floodmark.call("validate", "-t", "shop.orders", "--lake-only")
    # Nor does the loss of the primary bring anything else back.
    floodmark.objects.delete(lake_layout.primary(TABLE))
    again = floodmark.json("get", "-t", "shop.orders")
    assert again["mysql_state"] == document["mysql_state"]
    assert again["redshift_state"] == load


def test_restore_from_a_file_after_everything_was_lost(floodmark: Floodmark) -> None:
    """A saved document is what an operator has left when the lake has nothing."""
    land(open_store(floodmark.objects), rows=10, name="first")
    path = save(floodmark, "saved.json")
    for info in list(floodmark.objects.list_objects("")):
        if not info.key.startswith(lake_layout.DATA):
            floodmark.objects.delete(info.key)
    floodmark.call("get", "-t", "shop.orders", code=1)
    floodmark.call("restore", "-t", "shop.orders", "--file", path, "--force")
    document = floodmark.json("get", "-t", "shop.orders")
    assert document["mysql_state"]["last_id"] == 10
    assert document["epoch"] > 1_000_000, "no number of the lost log may be used again"
    floodmark.call("validate", "-t", "shop.orders", "--lake-only")


def test_presets_move_the_system_watermark(floodmark: Floodmark) -> None:
    out, _ = floodmark.call("get")
    assert out == "No system watermark found, will start from default: 2025-01-01 00:00:00\n"
    out, _ = floodmark.call("set", "aug4", "--force")
    assert out == "system watermark: none → 2025-08-04 00:00:00\n"
    out, _ = floodmark.call("reset", "aug1", "--force")
    assert out == "system watermark: 2025-08-04 00:00:00 → 2025-08-01 00:00:00\n"
    system = floodmark.json("get")
    assert (system["timestamp"], system["preset"], system["revision"]) == (
        "2025-08-01T00:00:00Z",
        "aug1",
        2,
    )
    floodmark.json("set", "2week", "--force")
    moment = datetime.fromisoformat(floodmark.json("get")["timestamp"])
    assert timedelta(0) <= utc_now() - timedelta(weeks=2) - moment < timedelta(minutes=1)


# Listing


def always(chunk: Chunk, _: Watermark) -> Chunk:
    return chunk


def test_list_shows_every_table_on_one_line(floodmark: Floodmark) -> None:
    tables = [TableName("US_PROD", "shop", f"t{number:03d}") for number in range(200)]
    for number, table in enumerate(tables):
        end = Position(id=number + 1)
        chunk = Chunk(start=Position(), end=end, files=(), strategy="sequential")
        open_store(floodmark.objects).commit(table, partial(always, chunk))
    for junk in ("watermarks/v2/x/junk.json", "watermarks/v2/junk.json", "manifests/a/b/c.json"):
        floodmark.objects.put(junk, b"junk")
    out, _ = floodmark.call("list")
    lines = out.splitlines()
    titles = ["TABLE", "POSITION", "STATE", "EXTRACT", "ROWS READ", "LOAD", "ROWS LOADED"]
    assert lines[0].split() == " ".join([*titles, "RECONCILED"]).split()
    assert len(lines) == 1 + 200 + 2
    assert lines[1].split()[:2] == ["US_PROD:shop.orders", "no"]
    assert lines[3].startswith("US_PROD:shop.t000")
    assert lines[202].split()[:3] == ["US_PROD:shop.t199", "id", "200"]
    assert len(floodmark.json("list")) == 202


def test_list_shows_what_was_committed_though_the_checkpoint_is_behind(
    floodmark: Floodmark,
) -> None:
    land(open_store(floodmark.objects), rows=10, name="first")
    before = floodmark.objects.get(lake_layout.primary(TABLE)).data
    land(open_store(floodmark.objects), rows=5, name="second")
    floodmark.objects.put(
        lake_layout.primary(TABLE), before
    )  # as if killed right behind the manifest
    for key in [info.key for info in floodmark.objects.list_objects("watermarks/backups/")]:
        floodmark.objects.delete(key)
    (document,) = [d for d in floodmark.json("list") if d["table_name"] == str(TABLE)]
    assert document["mysql_state"]["total_rows"] == 15


def test_list_shows_a_table_whose_state_is_lost_beside_the_others(floodmark: Floodmark) -> None:
    land(open_store(floodmark.objects), rows=10, name="first")
    land_payments(floodmark.objects)
    for key in [info.key for info in floodmark.objects.list_objects(lake_layout.manifests(TABLE))]:
        floodmark.objects.delete(key)
    floodmark.objects.put(lake_layout.primary(TABLE), b"garbage")
    out, _ = floodmark.call("list")
    assert "no usable copy or manifest is left" in out
    assert "1,250,000" in out


# Bad input


def two_scopes(floodmark: Floodmark) -> None:
    text = Path(floodmark.config).read_text()
    Path(floodmark.config).write_text(
        text.replace("  warehouse:", "  EU_PROD: {type: mysql, user: reader}\n  warehouse:")
        + "  eu_pipeline: {source: EU_PROD, target: warehouse, tables: {shop.orders: {}}}\n"
    )


SAVED = "SAVED"  # stands for the path of a saved document, changed in some way
BAD_INPUT: list[tuple[list[str], str]] = [
    (["get", "-t", "nosuch.table"], "'nosuch.table'"),
    (["get", "-t", "shop.order"], "'shop.order'"),
    (["get", "-t", "EU:shop.orders"], "'EU:shop.orders'"),
    (["get", "-t", "orders"], "'orders'"),
    (["get", "-t", ""], "''"),
    (["get", "-t", "shop."], "'shop.'"),
    (["get", "-t", "a/b:shop.orders"], "'a/b:shop.orders'"),
    (["get", "-t", "../x.y"], "'../x.y'"),
    (["get", "-t", "shop.orders\n"], r"'shop.orders\n'"),
    (["get", "extra"], "extra"),
    (["get", "--colour"], "--colour"),
    (["fetch"], "fetch"),
    (["set"], "nothing to set"),
    (["set", "-t", "shop.orders"], "no position"),
    (["set", "-t", "shop.orders", "--timestamp", "yesterday"], "'yesterday'"),
    (["set", "-t", "shop.orders", "--timestamp", ""], "''"),
    (["set", "-t", "shop.orders", "--timestamp", "2025-02-30"], "'2025-02-30'"),
    (["set", "-t", "shop.orders", "--timestamp", "0001-01-01T00:00+05:00"], "'0001-01-01T00:00"),
    (["set", "-t", "shop.orders", "--timestamp", "2999-01-01"], "'2999-01-01' is in the future"),
    (
        ["set", "-t", "shop.orders", "--timestamp", "2025-08-01"],
        "a timestamp alone is not a position",
    ),
    (
        ["set", "-t", "shop.payments", "--timestamp", "2025-08-01T05:00+02:00"],
        "has a time zone",
    ),
    (["set", "-t", "shop.orders", "--id", "-1"], "'-1' is negative"),
    (["set", "-t", "shop.orders", "--id", "ten"], "'ten'"),
    (["set", "-t", "shop.orders", "--id", "1.5"], "'1.5'"),
    (["set", "-t", "shop.orders", "--id", ""], "''"),
    (["set", "-t", "shop.orders", "--id", str(2**64)], str(2**64)),
    (["set", "-t", "shop.orders", "--id", "9" * 5000], "999"),
    (["set", "-t", "shop.payments", "--id", "5"], "an id alone is not a position"),
    (["set", "-t", "shop.orders", "-t", "nosuch.table", "--id", "5"], "'nosuch.table'"),
    (["set", "-t", "shop.orders", "-t", "shop.payments", "--id", "5"], "shop.payments"),
    (["set", "-t", "shop.orders", "--id", "500"], "would jump from id 30 to id 500"),
    (["set", "-t", "shop.payments", "--timestamp", "2025-09-01"], "would jump from 2025-08-14"),
    (["set", "aug5", "--force"], "'aug5'"),
    (["set", "0day", "--force"], "'0day'"),
    (["set", "tomorrow", "--force"], "preset 'tomorrow' is in the future"),
    (["set", "aug4"], "system watermark"),
    (["set", "aug4", "-t", "shop.orders", "--force"], "-t"),
    (["set", "aug4", "--timestamp", "2025-08-01", "--force"], "--timestamp"),
    (["reset"], "nothing to reset"),
    (["reset", "-t", "nosuch.table"], "'nosuch.table'"),
    (["reset", "-t", "shop.orders", "--mysql-only", "--redshift-only"], "cannot be combined"),
    (["reset", "-t", "shop.orders", "--extract-only", "--load-only"], "cannot be combined"),
    (["reset", "-t", "shop.orders"], "would be read again from the start; 30 rows were read"),
    (["reset", "-t", "shop.payments"], "from 2025-01-01 00:00:00 (default); earlier rows"),
    (["reset", "-t", "shop.payments", "--load-only"], "1,250,000 rows in the lake would be loaded"),
    (["reset", "aug5", "--force"], "'aug5'"),
    (["reset", "aug4"], "system watermark"),
    (["reset", "aug4", "--mysql-only", "--force"], "stage"),
    (["restore", "-t", "shop.orders"], "nothing to restore from"),
    (["restore", "-t", "shop.orders", "--from", "1-1", "--file", "x"], "nothing to restore from"),
    (["restore", "-t", "shop.orders", "-t", "shop.payments", "--from", "1-1"], "one table"),
    (["restore", "--from", "1-1"], "-t"),
    (["restore", "-t", "shop.orders", "--from", "1-1"], "would go back from id 30 to id 10 (1-1)"),
    (["restore", "-t", "shop.orders", "--from", "1-99"], "1-99"),
    (["restore", "-t", "shop.orders", "--from", "2-0"], "2-0"),
    (["restore", "-t", "shop.orders", "--from", "latest"], "'latest'"),
    (["restore", "-t", "shop.orders", "--from", "1"], "'1'"),
    (["restore", "-t", "shop.orders", "--from", "-1-1"], "'-1-1'"),
    (["restore", "-t", "shop.orders", "--from", "1-" + "9" * 5000], "999"),
    (["restore", "-t", "shop.orders", "--file", "/no/such/file"], "/no/such/file"),
    (["restore", "-t", "shop.orders", "--file", "/"], "/"),
    (["restore", "-t", "shop.orders", "--file", f"{SAVED} garbage"], "garbage"),
    (["restore", "-t", "shop.orders", "--file", f"{SAVED} edited"], "checksum"),
    (["restore", "-t", "shop.orders", "--file", f"{SAVED} list"], "list"),
    (["restore", "-t", "shop.orders", "--file", f"{SAVED} other"], "shop.payments"),
    (["restore", "-t", "shop.orders", "--file", f"{SAVED} later"], "not an earlier state"),
    (["restore", "-t", "shop.orders", "--file", f"{SAVED} never"], "never"),
    (["history"], "-t"),
    (["history", "-t", "shop.orders", "--most", "0"], "0"),
    (["history", "-t", "shop.orders", "--most", "many"], "many"),
    (["backups"], "-t"),
    (["backups", "-t", "nosuch.table"], "'nosuch.table'"),
    (["prune", "--keep-days", "-1"], "-1"),
    (["prune", "--keep-days", "week"], "'week'"),
    (["prune", "--keep-days", "1.5"], "'1.5'"),
    (["prune", "--keep-days", ""], "''"),
    (["prune", "--keep-days", "99999999"], "99999999"),
    (["prune", "--keep-days", "9" * 5000], "999"),
    (["validate", "-t", "nosuch.table"], "'nosuch.table'"),
    (["list", "-t", "shop.orders"], "-t"),
]


def saved_documents(floodmark: Floodmark) -> dict[str, str]:
    """Files that cannot be restored, by what is wrong with them."""
    document = floodmark.json("get", "-t", "shop.orders")
    later = document | {"epoch": 7}
    later["checksum"] = _digest(later)
    contents: dict[str, Any] = {
        "edited": document | {"epoch": 7},
        "list": [document],
        "other": floodmark.json("get", "-t", "shop.payments"),
        "later": later,
        "never": {"table_name": "US_PROD:shop.orders", "revision": 0},
    }
    paths = {}
    for name, content in contents.items():
        path = floodmark.folder / f"{name}.json"
        path.write_text(json.dumps(content))
        paths[name] = str(path)
    garbage = floodmark.folder / "garbage.json"
    garbage.write_bytes(b"\xff\x00")
    return paths | {"garbage": str(garbage)}


@pytest.fixture
def busy(floodmark: Floodmark) -> Floodmark:
    """With something to lose, and a preset of the configuration that lies in the future."""
    with open(floodmark.config, "a") as config:
        config.write("presets: {tomorrow: 2999-01-01}\n")
    store = open_store(floodmark.objects)
    land(store, rows=10, name="first")
    land(store, rows=20, name="second")
    land_payments(floodmark.objects)
    return floodmark


@pytest.mark.parametrize(
    ("arguments", "named"), BAD_INPUT, ids=[" ".join(case[0])[:60] for case in BAD_INPUT]
)
def test_bad_input_is_refused_and_changes_nothing(
    busy: Floodmark, arguments: list[str], named: str
) -> None:
    paths = saved_documents(busy)
    arguments = [
        paths[one.removeprefix(SAVED).strip()] if one.startswith(SAVED) else one
        for one in arguments
    ]
    before = snapshot(busy.objects)
    out, error = busy.call(*arguments, code=2)
    assert out == ""
    lines = error.splitlines()
    assert lines[0].startswith("error: ")
    assert named in lines[0]
    assert len(lines) == 1 or (len(lines) == 2 and lines[1].startswith("hint: "))
    assert snapshot(busy.objects) == before


def test_hints_lead_on(busy: Floodmark) -> None:
    for arguments, hint in (
        (["get", "-t", "shop.order"], "hint: did you mean 'shop.orders'?"),
        (["get", "-t", "nosuch.xyz"], "hint: tables are listed under 'pipelines:'"),
        (["set", "-t", "shop.payments", "--id", "5"], "hint: add --timestamp"),
        (["set", "aug5", "--force"], "hint: one of aug1, aug4, tomorrow, 1week"),
        (
            ["restore", "-t", "shop.orders", "--from", "1-99"],
            "hint: see floodmark watermark history",
        ),
        (
            ["set", "-t", "shop.orders", "--timestamp", "x"],
            "hint: write it as '2025-08-09 20:00:01'",
        ),
    ):
        _, error = busy.call(*arguments, code=2)
        assert hint in error


def test_an_unscoped_name_that_several_pipelines_list_is_not_guessed(floodmark: Floodmark) -> None:
    two_scopes(floodmark)
    _, error = floodmark.call("get", "-t", "shop.orders", code=2)
    assert "US_PROD:shop.orders (pipeline shop_pipeline)" in error
    assert "EU_PROD:shop.orders (pipeline eu_pipeline)" in error
    assert "hint: add the scope, as SCOPE:schema.table" in error
    out, _ = floodmark.call("get", "-t", "EU_PROD:shop.orders")
    assert out.startswith("No watermark found")


def test_a_scoped_table_that_only_the_lake_knows_can_be_seen(floodmark: Floodmark) -> None:
    land_payments(floodmark.objects)
    text = Path(floodmark.config).read_text()
    Path(floodmark.config).write_text(
        text.replace("      shop.payments: {cursor: [update_at, id]}\n", "")
    )
    assert floodmark.call("get", "-t", "US_PROD:shop.payments")[0] == IN_A_FOLDER.replace(
        "Redshift", "Warehouse"
    )
    floodmark.call("get", "-t", "shop.payments", code=2)


def test_debug_shows_where_an_error_came_from(floodmark: Floodmark) -> None:
    _, error = floodmark.call("get", "-t", "nosuch.table", code=2)
    assert "Traceback" not in error
    _, error = floodmark.call("get", "-t", "nosuch.table", "--debug", code=2)
    assert "Traceback" in error
    assert "error: unknown table 'nosuch.table'" in error


CONFIGURATIONS: dict[str, tuple[Callable[[str], str], str, str]] = {
    "an unknown key": (
        lambda text: text + "retrys: {}\n",
        "unknown key 'retrys'",
        "hint: did you mean 'retries'?",
    ),
    "an unknown key of a table": (
        lambda text: text.replace("{cursor: id}", "{curser: id}"),
        "'curser'",
        "hint: did you mean 'cursor'?",
    ),
    "an unset variable of the lake": (
        lambda text: text.replace("lake: ", "lake: ${NO_SUCH_LAKE}"),
        "NO_SUCH_LAKE is not set",
        "",
    ),
    "no YAML": (lambda text: text + "  - x: [", "not valid YAML", ""),
    "an unsupported lake": (lambda text: text.replace("lake: ", "lake: gs://"), "'gs:'", "hint:"),
    "a negative number of tries": (lambda text: text + "retries: {tries: 0}\n", "tries", ""),
}


@pytest.mark.parametrize("problem", CONFIGURATIONS)
def test_a_bad_configuration_is_refused(floodmark: Floodmark, problem: str) -> None:
    change, named, hint = CONFIGURATIONS[problem]
    Path(floodmark.config).write_text(change(Path(floodmark.config).read_text()))
    for command in (["set", "-t", "shop.orders", "--id", "1"], ["get"], ["list"]):
        out, error = floodmark.call(*command, code=2)
        assert out == ""
        assert error.startswith("error: ")
        assert named in error.splitlines()[0]
        assert hint in error
    assert snapshot(floodmark.objects) == {}


def test_a_missing_configuration_is_named(
    floodmark: Floodmark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    floodmark.config = "/no/such/floodmark.yml"
    _, error = floodmark.call("list", code=2)
    assert "/no/such/floodmark.yml does not exist" in error
    assert "hint: " in error
    monkeypatch.chdir(tmp_path / "..")
    monkeypatch.delenv("FLOODMARK_CONFIG", raising=False)
    assert run(["watermark", "list"]) == 2


@pytest.mark.parametrize("command", [["get", "-t", "shop.orders"], ["list"], ["get"]])
def test_a_lake_that_is_no_folder_is_not_taken_for_an_empty_one(
    floodmark: Floodmark, command: list[str]
) -> None:
    Path(str(floodmark.lake.folder)).write_text("I am a file")
    _, error = floodmark.call(*command, code=2)
    assert "error: " in error
    assert str(floodmark.lake.folder) in error


def test_a_lake_that_cannot_be_reached_or_used_is_named(
    tmp_path: Path,
    seaweedfs: SeaweedFS,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_test_keys(monkeypatch)
    nobody = Lake(prefix="x", endpoint=f"http://{LOOPBACK}:{free_ports(1)[0]}")
    unreachable = Floodmark(tmp_path, nobody, capsys)
    with open(unreachable.config, "a") as config:
        config.write("retries: {tries: 2, first_seconds: 0.001}\n")
    for command in (["get", "-t", "shop.orders"], ["set", "-t", "shop.orders", "--id", "1"]):
        _, error = unreachable.call(*command, code=1)
        assert f"error: s3://{BUCKET}/x" in error
        assert "Traceback" not in error

    real = Floodmark(tmp_path, new_lake("seaweedfs", request, tmp_path), capsys)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    _, error = real.call("get", "-t", "shop.orders", code=1)
    assert "access denied" in error
    assert "hint: check the AWS credentials" in error
    assert "wrong" not in error


# The program


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["watermark", "--help"],
        ["watermark", "get", "-t", "shop.orders"],
        ["watermark", "list"],
    ],
    ids=" ".join,
)
def test_answers_come_without_loading_heavy_libraries(
    floodmark: Floodmark, arguments: list[str]
) -> None:
    land(open_store(floodmark.objects), rows=10, name="first")
    script = (
        "import sys\n"
        "from floodmark.cli.main import run\n"
        "code = run(sys.argv[1:])\n"
        "heavy = {'pyspark', 'pyarrow', 'boto3', 'botocore', 'pymysql', 'obstore', 'duckdb',"
        " 'connectorx', 'pandas', 'numpy'}\n"
        "print(*sorted(heavy & sys.modules.keys()), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"FLOODMARK_CONFIG": floodmark.config},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr.strip() == ""


def test_the_installed_program_keeps_stdout_for_results(floodmark: Floodmark) -> None:
    land(open_store(floodmark.objects), rows=10, name="first")
    floodmark.objects.put(lake_layout.primary(TABLE), b"garbage")
    done = floodmark.in_process("get", "-t", "shop.orders", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["mysql_state"]["last_id"] == 10
    assert "recovered from" in done.stderr
    done = floodmark.in_process("get", "-t", "nosuch.table")
    assert (done.returncode, done.stdout) == (2, "")
    module = subprocess.run(
        [sys.executable, "-m", "floodmark", "--version"], capture_output=True, text=True, check=True
    )
    assert module.stdout.startswith("floodmark, version ")


@pytest.mark.parametrize(
    "command",
    ["get", "set", "reset", "list", "history", "restore", "backups", "prune", "validate"],
)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watermark", command, "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("--config", "--json", "--debug", "--help"):
        assert option in out


# Prune and validate


def days_ago(days: int) -> datetime:
    return utc_now() - timedelta(days=days)


def copies_of_days(objects: ObjectStore, days: list[int]) -> None:
    for day in days:
        land(open_store(objects, clock=partial(days_ago, day)), rows=1, name=f"day-{day}")


def test_prune_removes_old_copies_but_never_the_newest(floodmark: Floodmark) -> None:
    copies_of_days(floodmark.objects, [40, 30, 20, 3])
    land_payments(floodmark.objects)  # whose only copies are of August 2025
    before = set(snapshot(floodmark.objects))
    shown = floodmark.json("prune", "--keep-days", "7", "--dry-run")
    assert set(snapshot(floodmark.objects)) == before
    removed = floodmark.json("prune", "--keep-days", "7")
    assert removed["removed"] == shown["removed"]
    gone = before - set(snapshot(floodmark.objects))
    assert gone == set(removed["removed"])
    assert len(gone) == 6
    assert all(key.startswith((lake_layout.DAILY, lake_layout.SESSIONS)) for key in gone)
    assert not any("shop.payments" in key for key in gone)
    assert floodmark.json("prune")["removed"] == []
    floodmark.call("prune", "--keep-days", "0")
    for table in ("shop.orders", "shop.payments"):
        copies = floodmark.json("backups", "-t", table)["copies"]
        assert sorted(copy["place"] for copy in copies) == ["daily", "primary", "session"]
    floodmark.objects.delete(lake_layout.primary(TABLE))
    assert floodmark.json("get", "-t", "shop.orders")["mysql_state"]["total_rows"] == 4


def remove_manifest(objects: ObjectStore) -> None:
    objects.delete(lake_layout.manifest(TABLE, ManifestId(1, 2)))


def remove_last_manifest(objects: ObjectStore) -> None:
    objects.delete(lake_layout.manifest(TABLE, ManifestId(1, 3)))


def replace_manifest(objects: ObjectStore) -> None:
    first = objects.get(lake_layout.manifest(TABLE, ManifestId(1, 1))).data
    objects.put(lake_layout.manifest(TABLE, ManifestId(1, 2)), first)


def edit_manifest(objects: ObjectStore) -> None:
    """More rows than there were, and a checksum that is right."""
    key = lake_layout.manifest(TABLE, ManifestId(1, 2))
    document = json.loads(objects.get(key).data)
    document["change"]["files"][0]["rows"] += 1
    document["checksum"] = _digest(document)
    objects.put(key, json.dumps(document).encode())


def truncate_manifest(objects: ObjectStore) -> None:
    key = lake_layout.manifest(TABLE, ManifestId(1, 2))
    objects.put(key, objects.get(key).data[:50])


def remove_data_file(objects: ObjectStore) -> None:
    objects.delete(f"{lake_layout.data_files(TABLE)}year=2025/second.parquet")


def shorten_data_file(objects: ObjectStore) -> None:
    objects.put(f"{lake_layout.data_files(TABLE)}year=2025/second.parquet", b".")


def edit_watermark(*path: str, value: object) -> Callable[[ObjectStore], None]:
    def tamper(objects: ObjectStore) -> None:
        document = json.loads(objects.get(lake_layout.primary(TABLE)).data)
        place = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        document["checksum"] = _digest(document)
        objects.put(lake_layout.primary(TABLE), json.dumps(document).encode())

    return tamper


def lose_manifests(objects: ObjectStore) -> None:
    for info in list(objects.list_objects(lake_layout.manifests(TABLE))):
        objects.delete(info.key)


# The change, the difference that is reported, and whether `--repair` can fix it.
TAMPERING: dict[str, tuple[Callable[[ObjectStore], None], str, bool | None]] = {
    "manifest removed": (remove_manifest, "does not follow", False),
    "last manifest removed": (remove_last_manifest, "manifest 1-3 is missing", None),
    "manifest replaced": (replace_manifest, "contains 1-1", False),
    "manifest edited": (edit_manifest, "does not follow", False),
    "manifest truncated": (truncate_manifest, "is not JSON", False),
    "all manifests lost": (lose_manifests, "or manifest is left", False),
    "data file removed": (remove_data_file, "second.parquet is missing", False),
    "data file short": (shorten_data_file, "has 1 bytes instead of 20", False),
    "rows": (edit_watermark("mysql_state", "total_rows", value=99), "total_rows is 99", True),
    "files": (edit_watermark("mysql_state", "s3_file_count", value=0), "s3_file_count", True),
    "position": (edit_watermark("mysql_state", "last_id", value=5), "position", True),
    "load epoch": (edit_watermark("redshift_state", "load_epoch", value=2), "load_epoch", True),
    "eligible": (
        edit_watermark("redshift_state", "eligible_from_epoch", value=2),
        "eligible_from_epoch",
        True,
    ),
    "counted": (
        edit_watermark("mysql_state", "counted_from_epoch", value=2),
        "counted_from_epoch",
        True,
    ),
}


@pytest.mark.follows_hint(
    "'watermark validate' lists what exists",
    "restore the original object, or see 'watermark validate'",
)
@pytest.mark.parametrize("tampering", TAMPERING)
def test_validate_finds_what_was_tampered_with(floodmark: Floodmark, tampering: str) -> None:
    store = open_store(floodmark.objects)
    land(store, rows=10, name="first")
    land(store, rows=20, name="second")
    land(store, rows=30, name="third")
    floodmark.call("validate")
    good = floodmark.json("get", "-t", "shop.orders")
    tamper, found, can_be_repaired = TAMPERING[tampering]
    tamper(floodmark.objects)
    before = snapshot(floodmark.objects)

    out, error = floodmark.call("validate", "-t", "shop.orders", code=5)
    assert found in out
    assert "error: differences in US_PROD:shop.orders" in error
    assert snapshot(floodmark.objects) == before, "looking changes nothing"
    assert floodmark.json("validate", code=5)[0]["differences"]

    if can_be_repaired is None:
        return  # repair goes back to what the log still has, which is not what was
    floodmark.call("validate", "-t", "shop.orders", "--repair", code=0 if can_be_repaired else 5)
    if can_be_repaired:
        floodmark.call("validate", code=0)
        repaired = floodmark.json("get", "-t", "shop.orders")
        assert repaired["mysql_state"] == good["mysql_state"]
        assert repaired["epoch"] == good["epoch"]
        after = land(open_store(floodmark.objects), rows=1, name="next")
        assert after.mysql_state.total_rows == 61


def test_lost_checkpoint_is_no_difference_for_validate(floodmark: Floodmark) -> None:
    land(open_store(floodmark.objects), rows=10, name="first")
    floodmark.objects.put(f"{lake_layout.data_files(TABLE)}orphan.parquet", b"left by a crash")
    floodmark.objects.delete(lake_layout.primary(TABLE))
    out, _ = floodmark.call("validate", "-t", "shop.orders", "--lake-only")
    assert "1 manifest, 1 file, 10 rows" in out
    assert "not in any manifest, and never read: 1 data file" in out


def test_people_see_how_far_behind_a_table_is(floodmark: Floodmark) -> None:
    land_payments(floodmark.objects)
    command = [PROGRAM, "watermark", "get", "-t", "shop.payments", "--config", floodmark.config]
    code, shown = on_terminal(command, folder=floodmark.folder)
    assert code == 0
    assert re.search(r"Status: success, \d+ days behind\n", click.unstyle(shown))
    assert re.search(r"Last Load Time: \S+ \(\d+ days ago\)\n", shown)
