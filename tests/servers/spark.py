"""Spark on loopback: a standalone cluster of a master and two workers, and a Connect server."""

import os
import signal
import socket
import sys
from pathlib import Path
from secrets import token_hex
from typing import Self

import pyspark

from floodmark.embedded.process import ServerProcess, free_ports
from floodmark.subprocesses import LOOPBACK

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
    """PySpark's own master and workers; each worker runs one task at a time."""

    def __init__(self, folder: Path) -> None:
        self._port, ui, *uis = free_ports(2 + WORKERS)
        self.address = f"spark://{LOOPBACK}:{self._port}"
        self._master = self._server(
            folder / "master", "Master", ["--port", str(self._port), "--webui-port", str(ui)]
        )
        self._workers = [
            self._server(
                folder / f"worker{number}",
                "Worker",
                ["-c", "1", "-m", "1g", "--webui-port", str(port), "--work-dir", ".", self.address],
            )
            for number, port in enumerate(uis)
        ]

    def kill_worker(self) -> None:
        """End a worker and all that it runs at once, as the loss of its machine would."""
        pid = self._workers[0].pid
        assert pid is not None
        os.killpg(pid, signal.SIGKILL)
        self._workers[0].kill()

    def __enter__(self) -> Self:
        self._master.start()
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in (*self._workers, self._master):
            server.kill()

    def _server(self, folder: Path, role: str, arguments: list[str]) -> ServerProcess:
        folder.mkdir(parents=True)
        return ServerProcess(
            f"spark-{role.lower()}",
            [
                str(HOME / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{role.lower()}.{role}",
                "--host",
                LOOPBACK,
                *arguments,
            ],
            folder,
            self._is_ready,
            environment={
                "SPARK_HOME": str(HOME),
                "SPARK_LOCAL_IP": LOOPBACK,
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": " ".join(
                    [SMALL_JAVA, *(f"-D{name}={value}" for name, value in SECURITY.items())]
                ),
            },
        )

    def _is_ready(self) -> bool:
        """Whether the master listens; workers join it when they are ready."""
        return listens(self._port)


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
