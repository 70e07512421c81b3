"""Metrics, read by Prometheus' own parser and held against the watermark."""

import os
import re
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from floodmark.api.prometheus import FAMILIES, Metrics
from floodmark.cli.metrics_server import MetricsServer
from floodmark.errors import UsageError
from floodmark.model import lake_layout
from floodmark.state.lease import read_lease
from pipelines import Pipeline, ask_once, finish, numbers, wait_until
from scenarios import open_store

pytestmark = pytest.mark.enough_on("mysql")  # it is about what is counted

New = Callable[..., Pipeline]
Samples = dict[tuple[str, str, str], float]

ROOT = Path(__file__).parents[2]


def samples(text: str) -> Samples:
    """Every sample, by its name, table and stage."""
    return {
        (sample.name, sample.labels.get("table", ""), sample.labels.get("stage", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def create(it: Pipeline) -> None:
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL, KEY c (update_at, id))",
    )


def add(it: Pipeline, first: int, last: int) -> None:
    ask_once(
        it,
        f"INSERT INTO t SELECT seq, '2025-06-01' + INTERVAL seq SECOND FROM {numbers(first, last)}",
    )


def check_against_watermark(it: Pipeline, found: Samples) -> None:
    table, watermark = str(it.table()), it.watermark()
    extracted, loaded = watermark.mysql_state, watermark.redshift_state
    assert found["floodmark_rows_total", table, "extract"] == extracted.total_rows
    assert found["floodmark_rows_total", table, "load"] == loaded.total_rows
    assert found["floodmark_files_total", table, ""] == extracted.s3_file_count
    assert found["floodmark_file_bytes_total", table, ""] == extracted.s3_bytes
    assert found["floodmark_quarantined_rows_total", table, ""] == loaded.quarantined_rows


def test_a_file_after_each_sync(pipeline: New, tmp_path: Path) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    add(it, 1, 100)
    file = tmp_path / "floodmark.prom"
    table = str(it.table())
    file.write_text("floodmark_rounds_total many\nfloodmark_rounds_total 1e999\n{{{\n")
    others = tmp_path / "others"
    others.write_text("not ours")
    for name in (f"{file.name}.{os.getpid()}.tmp", f"{file.name}.tmp"):  # if it can be foreseen
        (tmp_path / name).symlink_to(others)
    traps = sorted(path.name for path in tmp_path.glob("*.prom*"))

    def sync(*arguments: str, code: int = 0, using: Pipeline = it) -> Samples:
        ended = using.call("sync", "-p", "main", "--metrics-file", str(file), *arguments)
        assert ended.code == code, ended
        assert sorted(path.name for path in tmp_path.glob("*.prom*")) == traps
        assert not list(tmp_path.glob(".*"))
        assert others.read_text() == "not ours"
        return samples(file.read_text())

    first = sync()
    check_against_watermark(it, first)
    assert first["floodmark_rows_total", table, "load"] == 100
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    lease = read_lease(it.lake.open(), it.table())
    assert lease is not None
    assert lease.in_step_at is not None
    in_step = pytest.approx(lease.in_step_at.timestamp(), abs=1e-3)
    assert first["floodmark_fresh_timestamp_seconds", table, "extract"] == in_step
    assert first["floodmark_fresh_timestamp_seconds", table, "load"] == in_step
    assert first["floodmark_lag_seconds", table, "load"] >= 0

    # What is in the lake and not in the target makes stage 2 lag, and only it.
    time.sleep(1)  # bounds are whole seconds
    add(it, 101, 150)
    second = sync("--backup-only")
    check_against_watermark(it, second)
    load = it.watermark().redshift_state.last_load_time
    assert load is not None
    fresh = "floodmark_fresh_timestamp_seconds"
    assert second[fresh, table, "load"] == pytest.approx(load.timestamp(), abs=1e-3)
    assert second[fresh, table, "extract"] > first[fresh, table, "extract"]
    assert second["floodmark_rounds_total", "", ""] == 2

    # A failure is counted, and does not hide when it last went well.
    away = replace(it, source={**it.source, "port": 1}).write_config()
    third = sync(code=1, using=away)
    it.write_config()
    success = "floodmark_last_success_timestamp_seconds"
    assert third["floodmark_failures_total", table, ""] == 1
    assert third[success, table, ""] == second[success, table, ""]
    with open_store(it.lake.open()).lease(it.table()):
        fourth = sync(code=4)
    assert fourth["floodmark_conflicts_total", table, ""] == 1
    assert fourth["floodmark_failures_total", table, ""] == 1

    # A watermark that had to be recovered is counted.
    it.lake.open().delete(lake_layout.primary(it.table()))
    fifth = sync()
    check_against_watermark(it, fifth)
    assert fifth["floodmark_recoveries_total", table, ""] == 1
    assert fifth["floodmark_rows_total", table, "load"] == 150


def test_a_port_on_loopback(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    process = it.start("sync", "-p", "main", "--every", "1s", "--metrics-port", "0")
    try:
        assert process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/metrics", process.stderr.readline())
        assert found is not None

        def rounds() -> float:
            with urlopen(found[0]) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                return samples(answer.read().decode()).get(("floodmark_rounds_total", "", ""), 0)

        wait_until(lambda: rounds() >= 2)
        with pytest.raises(OSError, match="404"):
            urlopen(found[0].replace("metrics", "other"))
    finally:
        os.kill(process.pid, signal.SIGTERM)
        ended = finish(process)
    assert ended.code == 0, ended


@pytest.mark.follows_hint("write one to a file and name it with --metrics-token-file")
def test_a_token_is_required(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("5e1f0c9a7b2d4e68\n")
    with pytest.raises(UsageError, match="a token is required") as caught:
        MetricsServer("0.0.0.0", 0, None, lambda: "text")
    assert "--metrics-token-file" in str(caught.value.hint)
    server = MetricsServer("127.0.0.1", 0, str(token), lambda: "text")
    try:
        with pytest.raises(OSError, match="401"):
            urlopen(server.address)
        bearer = {"Authorization": f"Bearer {token.read_text().strip()}"}
        with urlopen(Request(server.address, headers=bearer)) as answer:
            assert answer.read() == b"text"
    finally:
        server.stop()


def test_requests_to_another_name_are_refused() -> None:
    server = MetricsServer(None, 0, None, lambda: "text")
    try:
        with pytest.raises(OSError, match="421"):
            urlopen(Request(server.address, headers={"Host": "rebound.example.com"}))
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--metrics-host", "127.0.0.1"], "--metrics-host needs --metrics-port"),
        (["--metrics-token-file", "token"], "--metrics-token-file needs --metrics-port"),
        (
            ["--metrics-host", "no.such.host.invalid", "--metrics-port", "0", "--every", "5m"],
            "--metrics-host 'no.such.host.invalid' is not an address of this machine",
        ),
        (["--metrics-port", "9000"], "--metrics-port needs --every"),
        (["--metrics-port", "70000", "--every", "5m"], "70000"),
        (["--metrics-file", "/no/such/folder/x.prom"], "/no/such/folder/x.prom"),
        (["--metrics-file", "x.prom", "--dry-run"], "--dry-run"),
    ],
)
def test_what_is_refused(pipeline: New, arguments: list[str], says: str) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ended = it.call("sync", "-p", "main", *arguments)
    assert ended.code == 2
    assert says in ended.err


def test_labels_are_escaped() -> None:
    metrics = Metrics()
    name = 'a"b\\c\nd'
    metrics.set("floodmark_rows_total", 3, table=name, stage="load")
    metrics.add("floodmark_failures_total", 2, table=name)
    text = metrics.write(0.0)
    assert samples(text)["floodmark_rows_total", name, "load"] == 3
    again = Metrics()
    again.recall(text, [name])
    assert samples(again.write(0.0)) == {("floodmark_failures_total", name, ""): 2}
    other = Metrics()
    other.recall(text, ["another"])
    assert samples(other.write(0.0)) == {}


def test_names_and_types_follow_the_conventions_and_are_documented() -> None:
    documented = (ROOT / "docs" / "metrics.md").read_text()
    for family, (kind, text) in FAMILIES.items():
        assert family.startswith("floodmark_")
        assert family.endswith("_total") == (kind == "counter")
        assert re.search(r"_(seconds|rows|total|tables|rehearsals)$", family)
        assert text.endswith(".")
        assert f"| `{family}` |" in documented
