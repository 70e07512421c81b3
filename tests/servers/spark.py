"""Spark on loopback or on nodes: a standalone cluster, and a Connect server."""

import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Self

import pyspark

from floodmark.embedded.process import ServerProcess, free_ports
from floodmark.subprocesses import LOOPBACK
from servers.nodes import Network

WORKERS = 2
HOME = Path(pyspark.__file__).parent
VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
HAS_DATA_SOURCES = VERSION >= (4, 0)
HAS_CONNECT = VERSION >= (4, 1)
SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Where setup puts what a client of Spark Connect needs: with pandas in the environment, pyarrow
# would load it everywhere.
CONNECT_CLIENT = Path(sys.prefix) / "connect"


# Master, workers and drivers share a secret, and encrypt their traffic.
SECURITY = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": token_hex(16),
    "spark.network.crypto.enabled": "true",
}


class SparkCluster:
    """PySpark's own master and workers; each worker runs one task at a time.

    Node 0 has the master, and each worker is a node: its own address and folder. In a `network`,
    nodes are network namespaces; without one, they are loopback addresses.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = WORKERS,
        network: Network | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._network = network
        self._environment = dict(environment or {})
        port, ui, *uis = free_ports(2 + workers)
        self.address = f"spark://{self.host(0)}:{port}"
        self._master = self._server(
            folder / "master", "Master", 0, ["--port", str(port), "--webui-port", str(ui)]
        )
        self._workers = {
            node: self._server(
                folder / f"worker{node}",
                "Worker",
                node,
                ["-c", "1", "-m", "1g", "--webui-port", str(port), "--work-dir", ".", self.address],
            )
            for node, port in enumerate(uis, start=1)
        }

    def host(self, node: int) -> str:
        """The address of a node."""
        if self._network:
            return self._network.address(node)
        return LOOPBACK.removesuffix("1") + str(node + 1)

    def lose(self, node: int) -> None:
        """End a worker and all that it runs at once, as the loss of its machine would."""
        self._signal(node, signal.SIGKILL)
        self._workers[node].kill()

    def cut(self, node: int) -> None:
        """Have nobody hear from a worker, without a connection being closed.

        In a network, it is taken off; its tasks go on. Without one, its JVMs are stopped.
        """
        if self._network:
            self._network.cut(node)
        else:
            self._signal(node, signal.SIGSTOP)

    def rejoin(self, node: int) -> None:
        """Undo `cut` or `lose`."""
        if self._network:
            self._network.join(node)
        else:
            self._signal(node, signal.SIGCONT)
        self._workers[node].start()

    def __enter__(self) -> Self:
        self._master.start()
        for worker in self._workers.values():
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._workers:
            self.lose(node)
        self._master.kill()

    def _signal(self, node: int, number: signal.Signals) -> None:
        """Send a signal to a worker and its executors, which are in its process group."""
        if (pid := self._workers[node].pid) is not None:
            os.killpg(pid, number)

    def _server(self, folder: Path, role: str, node: int, arguments: list[str]) -> ServerProcess:
        folder.mkdir(parents=True)
        log = folder / f"spark-{role.lower()}.log"
        return ServerProcess(
            f"spark-{role.lower()}",
            [
                *(self._network.inside(node) if self._network else ()),
                str(HOME / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{role.lower()}.{role}",
                "--host",
                self.host(node),
                *arguments,
            ],
            folder,
            # Workers join the master when they are ready.
            lambda: role == "Worker" or "I have been elected leader" in log.read_text(),
            environment={
                "SPARK_HOME": str(HOME),
                "SPARK_LOCAL_IP": self.host(node),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": " ".join(
                    [SMALL_JAVA, *(f"-D{name}={value}" for name, value in SECURITY.items())]
                ),
                **self._environment,
            },
        )


class SparkConnectServer:
    """PySpark's own Connect server, which runs two tasks at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (port,) = free_ports(1)
        self.address = f"sc://{LOOPBACK}:{port}"
        options = {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": port,
            "spark.driver.defaultJavaOptions": SMALL_JAVA,
            "spark.driver.host": LOOPBACK,
            "spark.ui.enabled": "false",
        }
        self._server = ServerProcess(
            "spark-connect",
            [
                str(HOME / "bin" / "spark-submit"),
                *("--master", "local[2,4]"),
                *(f"--conf={name}={value}" for name, value in options.items()),
                *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
                "spark-internal",
            ],
            folder,
            lambda: listens(port),
            environment={
                "SPARK_HOME": str(HOME),
                "SPARK_LOCAL_IP": LOOPBACK,
                "PYSPARK_PYTHON": sys.executable,
            },
        )

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()


def listens(port: int) -> bool:
    """Whether somebody accepts connections on a port."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
