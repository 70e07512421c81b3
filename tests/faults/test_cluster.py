"""A sync on a Spark cluster, one worker of which is lost in the middle."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from floodmark.subprocesses import LOOPBACK
from pipelines import Pipeline, ask_once, finish, numbers, wait_until
from servers.spark import SECURITY, SparkCluster

pytestmark = pytest.mark.enough_on("mariadb")  # it is about Spark

SETTINGS = """\
spark:
  master: {address}
  memory: 512m
  options: {options}
extraction: {{window_rows: 5000, windows_per_chunk: 6}}
"""


def secret_shown() -> list[str]:
    """The command lines, but for those of Spark's daemons, that show the cluster's secret."""
    lines = (_command(process) for process in os.listdir("/proc") if process.isdigit())
    secret = SECURITY["spark.authenticate.secret"]
    return [line for line in lines if secret in line and ".deploy." not in line]


def _command(process: str) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def test_a_worker_is_lost(pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL, v VARCHAR(200),"
        " KEY by_change (update_at, id))",
    )
    ask_once(
        it,
        "INSERT INTO t SELECT seq, '2025-06-01' + INTERVAL seq DIV 50 SECOND,"
        " REPEAT(SHA2(seq, 256), 3)"
        f" FROM {numbers(1, 60000)}",
    )
    with SparkCluster(tmp_path / "spark") as cluster:
        here = dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), LOOPBACK)
        options = json.dumps({**here, **SECURITY})
        it.write_config(SETTINGS.format(address=cluster.address, options=options))
        process = it.start("sync", "-p", "main", "--backup-only", "--json")
        try:
            wait_until(lambda: len(it.files()) > 8, seconds=90)  # the second chunk is on its way
            cluster.kill_worker()
            assert not secret_shown()
            committed = len(it.chunks())
        finally:
            ended = finish(process, seconds=120)
    assert ended.code == 0, ended
    assert committed < len(it.chunks()) == 2
    assert it.ids() == dict.fromkeys(range(1, 60_001), 1)
    it.check_tracking()
