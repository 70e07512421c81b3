"""A cluster of four machines: one is cut off, one is lost, and the driver is killed.

Nodes are network namespaces where they are allowed: each has its own network, name and folder. A
node that is cut off still reaches MySQL and the lake, so its tasks go on; what they write must not
count. Elsewhere nodes are loopback addresses with folders of their own, and a node that nobody
hears from is one whose JVMs are stopped. `make storm` runs both kinds, and kills the driver too.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipelines import (
    PROGRAM,
    Ended,
    Pipeline,
    cold_environment,
    finish,
    numbers,
    session,
    wait_until,
)
from pipelines import ask as ask_session
from pipelines import ask_once as ask
from servers.nodes import Network, networks_are_allowed
from servers.seaweedfs import SeaweedFS
from servers.spark import SECURITY, SparkCluster

pytestmark = pytest.mark.enough_on("mariadb")  # it is about Spark

WORKERS = 3
ROWS = 12_000
IS_STORM = int(os.environ.get("FLOODMARK_STORM_ROUNDS", "1")) > 1
SETTINGS = """\
spark: {{master: "{address}", memory: 512m, options: {options}}}
extraction: {{window_rows: 1000, windows_per_chunk: 6}}
"""
SYNC = ("sync", "-p", "main", "--backup-only", "--json")


class Nodes:
    """A cluster, and a pipeline whose commands run on its first node."""

    def __init__(self, it: Pipeline, cluster: SparkCluster, network: Network | None) -> None:
        self.it, self.cluster, self._network = it, cluster, network
        self._last = 0
        ask(
            it,
            "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL, v VARCHAR(200),"
            " KEY by_change (update_at, id))",
        )

    def add_rows(self) -> None:
        first, self._last = self._last + 1, self._last + ROWS
        ask(
            self.it,
            "INSERT INTO t SELECT seq, '2025-06-01' + INTERVAL seq DIV 50 SECOND,"
            f" REPEAT(SHA2(seq, 256), 3) FROM {numbers(first, self._last)}",
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command on the first node."""
        inside = self._network.inside(0) if self._network else []
        return subprocess.Popen(
            [*inside, *PROGRAM, *arguments, "--config", self.it.config],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.it.folder,
            start_new_session=True,
            env={**cold_environment(), "SPARK_LOCAL_IP": self.cluster.host(0)},
        )

    def disturbed_sync(self, disturb: Callable[[int], None]) -> Ended:
        """Sync new rows, and disturb it while windows are being read."""
        self.add_rows()
        before = len(self.it.files())
        process = self.start(*SYNC)
        try:
            wait_until(lambda: process.poll() is not None or len(self.it.files()) > before, 120)
            with session(self.it) as holding:
                ask_session(holding, "LOCK TABLES t WRITE")  # tasks wait from here on
                assert process.poll() is None, finish(process)
                disturb(process.pid)
        finally:
            ended = finish(process, seconds=240)
        return ended

    def check(self) -> None:
        """Every row is there once."""
        assert self.it.ids() == dict.fromkeys(range(1, self._last + 1), 1)
        self.it.check_tracking()


def kinds() -> list[str]:
    if not networks_are_allowed():
        return ["loopback"]
    return ["namespaces", "loopback"] if IS_STORM else ["namespaces"]


@pytest.fixture(params=kinds())
def nodes(
    request: pytest.FixtureRequest,
    pipeline: Callable[..., Pipeline],
    seaweedfs: SeaweedFS,
    tmp_path: Path,
) -> Iterator[Nodes]:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, lake="seaweedfs")
    with ExitStack() as running:
        network = None
        if request.param == "namespaces":
            network = running.enter_context(Network(tmp_path, 1 + WORKERS))
            network.forward(it.source["port"])
            network.forward(int(seaweedfs.endpoint.rpartition(":")[2]))
        cluster = SparkCluster(tmp_path / "cluster", WORKERS, network)
        running.enter_context(cluster)
        options = {
            **dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), cluster.host(0)),
            "spark.network.timeout": "15s",
            "spark.network.timeoutInterval": "5s",
            "spark.executor.heartbeatInterval": "2s",
            **SECURITY,
        }
        it.write_config(SETTINGS.format(address=cluster.address, options=json.dumps(options)))
        yield Nodes(it, cluster, network)


def test_of_three_workers_one_is_cut_off_and_one_is_lost(nodes: Nodes) -> None:
    def disturb(_: int) -> None:
        nodes.cluster.cut(1)
        nodes.cluster.lose(2)
        assert not secret_shown()

    ended = nodes.disturbed_sync(disturb)
    assert ended.code == 0, ended
    nodes.check()


@pytest.mark.skipif(not IS_STORM, reason="make storm")
def test_the_driver_is_killed(nodes: Nodes) -> None:
    ended = finish(nodes.start("doctor", "--spark", "--json"))
    found = {check["subject"]: check["finding"] for check in ended.value}
    assert ended.code == 0, found
    assert f"all of {WORKERS} executors answered" in found.values()

    ended = nodes.disturbed_sync(lambda pid: os.killpg(pid, signal.SIGKILL))
    assert ended.code == -signal.SIGKILL, ended
    ended = finish(nodes.start(*SYNC), seconds=240)
    assert ended.code == 0, ended
    nodes.check()
    # Nodes that come back take part again.
    nodes.cluster.cut(1)
    nodes.cluster.lose(2)
    nodes.cluster.rejoin(1)
    nodes.cluster.rejoin(2)
    ended = nodes.disturbed_sync(lambda _: nodes.cluster.cut(3))
    assert ended.code == 0, ended
    nodes.check()


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
