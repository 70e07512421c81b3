"""A sync through Spark Connect, on a server that runs already."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from pipelines import Pipeline, ask_once, cold_environment, finish, numbers, wait_until
from scenarios import use_test_keys
from servers.spark import CONNECT_CLIENT, HAS_CONNECT, SparkConnectServer

pytestmark = [
    pytest.mark.enough_on("mysql"),  # it is about Spark
    pytest.mark.usefixtures("settings_of_the_file"),
    pytest.mark.skipif(not HAS_CONNECT, reason="PySpark before 4.1 has no such Connect"),
]

New = Callable[..., Pipeline]

SETTINGS = """\
spark: {{remote: "{remote}"}}
extraction: {{window_rows: {window_rows}, windows_per_chunk: 3, zero_dates: error}}
"""


@pytest.fixture(scope="module")
def spark_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnectServer]:
    with pytest.MonkeyPatch.context() as patched:
        use_test_keys(patched)  # the workers inherit them
        with SparkConnectServer(tmp_path_factory.mktemp("spark") / "connect") as running:
            yield running


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CONNECT_CLIENT.is_dir(), "run 'make setup'"
    paths = [os.environ.get("PYTHONPATH"), str(CONNECT_CLIENT)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


def create(pipeline: Pipeline, rows: int) -> None:
    ask_once(
        pipeline,
        "CREATE TABLE t (id INT PRIMARY KEY, due DATE, update_at DATETIME NOT NULL,"
        " KEY by_change (update_at, id))",
    )
    ask_once(
        pipeline,
        "INSERT INTO t SELECT seq, '2025-01-01', '2025-06-01' + INTERVAL seq DIV 50 SECOND"
        f" FROM {numbers(1, rows)}",
    )


def configure(pipeline: Pipeline, remote: str, window_rows: int = 1000) -> None:
    pipeline.write_config(SETTINGS.format(remote=remote, window_rows=window_rows))


def test_unreadable_window_after_several_chunks(
    pipeline: New, spark_connect: SparkConnectServer
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, lake="seaweedfs")
    create(it, 7000)
    configure(it, spark_connect.address)
    ended = it.command("sync", "-p", "main", "--backup-only", "--json")
    assert ended.code == 0, ended
    assert "Warning" not in ended.err
    assert (ended.table["rows"], ended.table["chunks"]) == (7000, 3)
    assert it.ids() == dict.fromkeys(range(1, 7001), 1)
    it.check_tracking()
    ask_once(
        it,
        "INSERT INTO t VALUES"
        " (7001, '2025-01-01', '2025-06-02'), (7002, '0000-00-00', '2025-06-03')",
        sql_mode="",
    )
    ended = it.command("sync", "-p", "main", "--backup-only", "--json")
    assert ended.code == 1, ended
    assert ended.table["error"].endswith("window 1: column 'due' has zero or partial dates")
    assert ended.table["hint"] == "fix them, or set zero_dates: null"
    assert it.watermark().mysql_state.total_rows == 7000
    it.check_tracking()


def test_interrupted_it_stops_what_the_server_runs(
    pipeline: New, spark_connect: SparkConnectServer
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it, 300_000)
    configure(it, spark_connect.address, window_rows=2000)
    process = it.start("sync", "-p", "main", "--backup-only")
    wait_until(it.manifests, seconds=90)  # more chunks are on their way
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == 130, ended
    it.check_tracking()
    assert 0 < len(it.rows()) < 300_000
    reading = f"SELECT 1 FROM information_schema.processlist WHERE info LIKE '%{it.schema}`.`t`%'"
    wait_until(lambda: not ask_once(it, f"{reading} AND id <> CONNECTION_ID()"))
    configure(it, spark_connect.address, window_rows=60_000)
    ended = it.command("sync", "-p", "main", "--backup-only")
    assert ended.code == 0, ended
    assert it.ids() == dict.fromkeys(range(1, 300_001), 1)
    it.check_tracking()


def test_a_connect_session_of_the_callers_own(
    pipeline: New, spark_connect: SparkConnectServer
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it, 500)
    script = (
        "import sys, floodmark\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.remote(sys.argv[2]).getOrCreate()\n"
        "with floodmark.open_project(sys.argv[1], spark=spark) as project:\n"
        "    result = project.sync(stages=['extract']).raise_for_failures()\n"
        "print(result.rows, spark.range(3).count())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, it.config, spark_connect.address],
        env=cold_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["500", "3"]
    assert it.ids() == dict.fromkeys(range(1, 501), 1)


WATCHED = """\
import json, sys, time
from floodmark.spark.connect_runner import connected_spark

def task(number):
    time.sleep(1.5)
    return str(number)

seen = []
with connected_spark(sys.argv[1], {}, "watched") as spark:
    answers = spark.run("watched", task, 6, seen.append)
    spark.run("not watched", task, 1, None)
print(json.dumps({"answers": answers, "seen": seen}))
"""


def test_progress_is_seen_before_the_end(spark_connect: SparkConnectServer) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WATCHED, spark_connect.address],
        env=cold_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["answers"] == list("012345")
    assert found["seen"] == sorted(found["seen"])
    assert any(0 < done < 6 for done in found["seen"])
    assert found["seen"][-1] <= 6


def test_unreachable_connect_server_is_reported(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it, 10)
    configure(it, "sc://127.0.0.1:1")
    ended = it.command("sync", "-p", "main", "--backup-only")
    assert ended.code == 1, ended
    assert "Spark Connect at 127.0.0.1 does not answer" in ended.out
    assert "hint: check 'spark.remote'" in ended.err
