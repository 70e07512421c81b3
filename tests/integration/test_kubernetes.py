"""What the image for Kubernetes runs: the program, or an executor that Spark asks for.

There is no Kubernetes here. The executor joins the driver of a standalone cluster without workers:
a driver asks nobody where an executor comes from.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from floodmark.cli.main import run
from floodmark.embedded.process import free_ports
from floodmark.subprocesses import LOOPBACK
from pipelines import Pipeline, ask_once, cold_environment, finish, numbers, wait_until
from servers.spark import SECURITY, SparkCluster

pytestmark = [
    pytest.mark.enough_on("mysql"),  # it is about Spark
    pytest.mark.usefixtures("settings_of_the_file"),
]

FOLDER = Path(__file__).parents[2] / "examples" / "kubernetes"
ROWS = 1000
# Spark adds these to the options of executors; PySpark 3.5 does not run without the last ones.
OPEN_PACKAGES = ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch")


def test_the_image_runs_an_executor(pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL,"
        " KEY by_change (update_at, id))",
    )
    ask_once(it, f"INSERT INTO t SELECT seq, '2025-06-01' FROM {numbers(1, ROWS)}")
    (port,) = free_ports(1)
    with SparkCluster(tmp_path / "cluster", workers=0) as cluster:
        options = {
            **dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), LOOPBACK),
            "spark.driver.port": str(port),
            **SECURITY,
        }
        settings = {"master": cluster.address, "options": options}
        it.write_config(f"spark: {json.dumps(settings)}\n")
        syncing = it.start("sync", "-p", "main", "--backup-only", "--json")
        try:
            log = tmp_path / "cluster" / "master" / "spark-master.log"
            (app,) = wait_until(lambda: re.findall(r"with ID (app-\S+)", log.read_text()), 60)
            with executor(app, port, tmp_path):
                ended = finish(syncing)
        finally:
            syncing.kill()
    assert ended.code == 0, ended
    assert ended.table["rows"] == ROWS


@contextmanager
def executor(app: str, port: int, folder: Path) -> Iterator[None]:
    """Run the image's entry point with the arguments and variables of Spark on Kubernetes."""
    options = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPEN_PACKAGES]
    options += [f"-D{name}={value}" for name, value in SECURITY.items() if "secret" not in name]
    environment = {
        **cold_environment(),
        **{f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options)},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "_SPARK_AUTH_SECRET": SECURITY["spark.authenticate.secret"],
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{LOOPBACK}:{port}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": app,
        "SPARK_EXECUTOR_POD_IP": LOOPBACK,
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "floodmark-exec-1",
    }
    command = [str(FOLDER / "entrypoint"), "executor"]
    with subprocess.Popen(command, cwd=folder, env=environment) as process:
        try:
            yield
        finally:
            process.kill()


def test_the_image_runs_the_program() -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shown = subprocess.run(
        [FOLDER / "entrypoint", "--version"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.startswith("floodmark")


def test_the_job_runs_a_command_that_there_is() -> None:
    documents = list(yaml.safe_load_all((FOLDER / "floodmark.yaml").read_text()))
    assert [document["kind"] for document in documents] == [
        *("ServiceAccount", "Role", "RoleBinding", "CronJob")
    ]
    pod = documents[-1]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert run([container["args"][0], "--help"]) == 0
    assert pod["serviceAccountName"] == documents[0]["metadata"]["name"]
