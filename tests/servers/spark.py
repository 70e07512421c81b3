"""A Spark standalone cluster on loopback: a master and two workers."""

import os
import signal
import socket
from pathlib import Path
from typing import Self

import pyspark

from floodmark.children import LOOPBACK
from floodmark.embedded.process import ServerProcess, free_ports

WORKERS = 2


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
        home = Path(pyspark.__file__).parent
        return ServerProcess(
            f"spark-{role.lower()}",
            [
                str(home / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{role.lower()}.{role}",
                "--host",
                LOOPBACK,
                *arguments,
            ],
            folder,
            self._is_ready,
            environment={
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": LOOPBACK,
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            },
        )

    def _is_ready(self) -> bool:
        """Whether the master listens; workers join it when they are ready."""
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self._port)) == 0
