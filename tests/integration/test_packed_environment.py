"""A cluster whose workers have nothing but Python and Spark receives a packed environment."""

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from floodmark.config.models import PostgresConnection
from floodmark.subprocesses import LOOPBACK
from pipelines import Pipeline, ask_once, numbers, use_postgres
from servers.postgres import PrivatePostgres
from servers.spark import SECURITY, SparkCluster
from warehouses import new_postgres

pytestmark = [
    pytest.mark.enough_on("mysql"),  # it is about Spark
    pytest.mark.usefixtures("settings_of_the_file"),
]

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "cluster.md"
ROWS = 20_000


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack as the guide says."""
    (command,) = re.findall(r"^(scripts/pack-environment) (\S+)$", GUIDE.read_text(), re.M)
    packed: Path = tmp_path_factory.mktemp("packed") / command[1]
    subprocess.run(
        [ROOT / command[0], packed], check=True, env={**os.environ, "PYTHON": sys.executable}
    )
    return packed


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python without any package, as the workers have it."""
    venv.create(tmp_path / "bare", with_pip=False)
    bare = str(tmp_path / "bare/bin/python")
    assert subprocess.run([bare, "-c", "import pyarrow"], capture_output=True).returncode == 1
    return bare


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "cluster") as running:
        yield running


def test_a_packed_environment_is_all_that_workers_need(
    pipeline: Callable[..., Pipeline],
    postgres: PrivatePostgres,
    cluster: SparkCluster,
    archive: Path,
    python: str,
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL, v VARCHAR(200),"
        " KEY by_change (update_at, id))",
    )
    ask_once(
        it,
        "INSERT INTO t SELECT seq, '2025-06-01' + INTERVAL seq DIV 50 SECOND,"
        f" REPEAT(SHA2(seq, 256), 3) FROM {numbers(1, ROWS)}",
    )
    options = {
        **dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), LOOPBACK),
        **SECURITY,
        **options_of_guide(archive, python),
    }
    settings = {"master": cluster.address, "memory": "512m", "options": options}
    it.write_config(f"spark: {json.dumps(settings)}\nloading: {{spread_mb: 1}}\n")
    target = new_postgres(postgres, it.lake).connection
    assert isinstance(target, PostgresConnection)
    use_postgres(it, target)

    ended = it.command("doctor", "--spark", "--json")
    found = [check["finding"] for check in ended.value]
    assert ended.code == 0, found
    assert "all of 2 executors answered" in found

    for _ in range(2):  # the second load is a merge, which workers prepare
        ended = it.command("sync", "-p", "main", "--verify-data=all", "--json")
        assert ended.code == 0, ended
        assert ended.table["loaded_rows"] == ROWS
        ask_once(it, "UPDATE t SET update_at = update_at + INTERVAL 1 DAY, v = REVERSE(v)")


def options_of_guide(archive: Path, python: str) -> dict[str, str]:
    """The options that the guide names, for this archive and this interpreter."""
    lines = GUIDE.read_text().partition("scripts/pack-environment")[2].splitlines()
    shown = (re.fullmatch(r' +(spark\.[\w.]+): "?(.*?)"?', line) for line in lines)
    options = {line[1]: line[2] for line in shown if line}
    name = options["spark.archives"].partition("#")[0]
    options["spark.archives"] = options["spark.archives"].replace(name, str(archive))
    return options | {"spark.pyspark.python": python}
