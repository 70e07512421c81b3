"""Syncs on a Spark cluster: its settings, its lake, and a worker that is lost in the middle."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from floodmark.embedded.process import free_ports
from floodmark.subprocesses import LOOPBACK
from pipelines import Pipeline, ask_once, cold_environment, numbers
from servers.spark import HOME, SECURITY, SparkCluster

pytestmark = pytest.mark.enough_on("mariadb")  # it is about Spark

SETTINGS = """\
spark:
  master: {address}
  memory: 512m
  options: {options}
extraction: {{window_rows: 5000, windows_per_chunk: 6}}
"""

WITHOUT_PATIENCE = """\
from floodmark.cli.main import run
from floodmark.sync import spark_engine

spark_engine.JOINING_SECONDS = 0.1
run(["sync", "-p", "main", "--backup-only", "--config", {path!r}])
"""

ONE_WORKER = 384 + 192  # MB, with windows of 64 MB

SCRIPT = """\
import json
import floodmark
from pyspark import SparkContext

seen = {{}}

def note(*_):
    context = SparkContext._active_spark_context
    if context is not None:
        ui = context.getConf().get("spark.ui.enabled")
        memory = context.getConf().get("spark.executor.memoryOverhead")
        seen.update(master=context.master, name=context.appName, ui=ui, memory=memory)

with floodmark.open_project({path!r}, on_progress=note) as project:
    result = project.sync(stages=["extract"])
print(json.dumps({{**seen, "rows": result.tables[0].rows}}))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark") / "cluster") as running:
        yield running


def make_table(it: Pipeline, rows: int) -> None:
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL, v VARCHAR(200),"
        " KEY by_change (update_at, id))",
    )
    ask_once(
        it,
        "INSERT INTO t SELECT seq, '2025-06-01' + INTERVAL seq DIV 50 SECOND,"
        f" REPEAT(SHA2(seq, 256), 3) FROM {numbers(1, rows)}",
    )


def options_of_cluster() -> dict[str, str]:
    here = dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), LOOPBACK)
    return {**here, **SECURITY}


def test_what_spark_submit_says_is_kept(
    pipeline: Callable[..., Pipeline], cluster: SparkCluster, tmp_path: Path
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    make_table(it, 100)
    script = tmp_path / "nightly.py"
    script.write_text(SCRIPT.format(path=it.config))
    options = {**options_of_cluster(), "spark.ui.enabled": "true", "spark.ui.port": "0"}
    defaults = tmp_path / "submitted.conf"  # a secret does not belong on the command line
    defaults.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    done = subprocess.run(
        [
            str(HOME / "bin" / "spark-submit"),
            *("--master", cluster.address, "--name", "nightly"),
            *("--properties-file", str(defaults)),
            str(script),
        ],
        env={**cold_environment(), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout.splitlines()[-1])
    assert shown == {
        "master": cluster.address,
        "name": "nightly",
        "ui": "true",
        "memory": f"{ONE_WORKER}m",
        "rows": 100,
    }


def test_a_lake_that_workers_do_not_share(
    pipeline: Callable[..., Pipeline], cluster: SparkCluster
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    make_table(it, 100)
    settings = SETTINGS.format(address=cluster.address, options=json.dumps(options_of_cluster()))
    it.write_config(settings)
    # Each process has its own working folder, as each machine has its own disks.
    config = Path(it.config)
    text = re.sub(r"(?m)^lake: .*$", "lake: /proc/self/cwd/lake", config.read_text())
    config.write_text(text)
    ended = it.command("sync", "-p", "main", "--backup-only")
    assert ended.code == 1, ended
    assert "a worker wrote incremental/" in ended.out + ended.err
    assert "here it does not exist in /proc/self/cwd/lake" in ended.out + ended.err
    assert "or a folder that they share" in ended.out + ended.err
    assert not list(it.folder.glob("lake/manifests/*/*/*/*.json"))


@pytest.mark.parametrize("how", ["reconcile", "backfill"])
def test_repairs_into_a_lake_that_workers_do_not_share(
    pipeline: Callable[..., Pipeline], cluster: SparkCluster, how: str
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    make_table(it, 2_000)
    assert it.call("sync", "-p", "main").code == 0
    settings = SETTINGS.format(address=cluster.address, options=json.dumps(options_of_cluster()))
    it.write_config(settings)
    config = Path(it.config)
    config.write_text(re.sub(r"(?m)^lake: .*$", "lake: /proc/self/cwd/lake", config.read_text()))
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        database.execute("DELETE FROM t WHERE id > 500")
    before = it.manifests()
    backfill = ["-t", f"{it.schema}.t", "--from", "2025-06-01"]
    ended = it.command(how, *(["-p", "main"] if how == "reconcile" else backfill))
    assert ended.code == 1, ended
    assert "a worker wrote incremental/" in ended.out + ended.err
    assert it.manifests() == before


def test_a_master_that_does_not_answer(pipeline: Callable[..., Pipeline]) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    make_table(it, 1)
    (port,) = free_ports(1)
    address = f"spark://{LOOPBACK}:{port}"
    it.write_config(SETTINGS.format(address=address, options=json.dumps(options_of_cluster())))
    ended = it.command("sync", "-p", "main", "--backup-only")
    assert ended.code == 1, ended
    assert f"no Spark master answers at {address} ({LOOPBACK}:{port}: " in ended.out
    assert "check 'spark.master'" in ended.err


def test_a_cluster_that_has_no_executor_for_us(
    pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    make_table(it, 1)
    with SparkCluster(tmp_path / "cluster", workers=0) as empty:
        options = json.dumps(options_of_cluster())
        it.write_config(SETTINGS.format(address=empty.address, options=options))
        script = WITHOUT_PATIENCE.format(path=it.config)
        with subprocess.Popen(
            [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, cwd=it.folder
        ) as process:
            assert process.stderr is not None
            try:
                found = next(line for line in process.stderr if "executor" in line)
            finally:
                process.kill()
    assert found.startswith("warning: no executor of the cluster has joined yet: tasks wait")


def test_doctor_tries_every_executor(
    pipeline: Callable[..., Pipeline], cluster: SparkCluster
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    make_table(it, 1)
    options = json.dumps(options_of_cluster())
    it.write_config(SETTINGS.format(address=cluster.address, options=options))
    config = Path(it.config)
    text = re.sub(r"(?m)^lake: .*$", "lake: /proc/self/cwd/lake", config.read_text())
    config.write_text(text)
    ended = it.command("doctor", "--spark", "--json")
    assert ended.code == 1, ended
    (failed,) = [check for check in ended.value if check["state"] == "failed"]
    assert failed["subject"] == f"executor {socket.gethostname()}"
    assert "a file that this machine wrote does not exist there" in failed["finding"]
    assert "the same place for all workers" in failed["hint"]
    assert "all of 2 executors answered" in [check["finding"] for check in ended.value]
    assert not list(it.folder.glob("lake/watermarks/leases/probe-*"))


def test_rows_of_a_duckdb_file_cannot_be_compared(
    pipeline: Callable[..., Pipeline], cluster: SparkCluster
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    make_table(it, 1)
    options = json.dumps(options_of_cluster())
    it.write_config(SETTINGS.format(address=cluster.address, options=options))
    ended = it.call("sync", "-p", "main", "--verify-data")
    assert ended.code == 2, ended
    assert "cannot open a DuckDB file on this machine" in ended.out + ended.err
    assert not it.files()
