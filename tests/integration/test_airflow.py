"""The example for Airflow, run by Airflow itself: a task a pipeline, and a task a table."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from floodmark.embedded.mariadb import PrivateMariaDB
from pipelines import Pipeline, ask_once, new_pipeline
from scenarios import Lake
from warehouses import Warehouse, name_target, new_warehouse, quoted

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venv-airflow" / "bin"
EXAMPLE = ROOT / "examples" / "airflow" / "floodmark_sync.py"
TABLES = ("orders", "partners", "broken")

# Prints each task of a run with the name that Airflow shows for it, its state and its XCom.
RUN = """
import json, sys
sys.path.insert(0, sys.argv[1])
import floodmark_sync
run = getattr(floodmark_sync, sys.argv[2])().test()
found = []
for task in run.get_task_instances():
    value = task.xcom_pull(task_ids=task.task_id, map_indexes=task.map_index)
    found.append([task.task_id, task.rendered_map_index, str(task.state), task.try_number, value])
print("found", json.dumps([str(run.state), found]))
"""

pytestmark = pytest.mark.skipif(
    not (BIN / "airflow").exists(),
    reason="'make airflow' installs Airflow in an environment of its own",
)


class Ran(Struct, frozen=True):
    """A run of a DAG: its state, and what became of each task."""

    state: str
    tasks: dict[str, tuple[str, Any]]
    tries: dict[str, int]


class Airflow:
    """Airflow with a database and a folder of DAGs of its own, in which the example is."""

    def __init__(self, folder: Path, config: str) -> None:
        self._dags, self._folder = folder / "dags", folder
        self._dags.mkdir()
        text = EXAMPLE.read_text()
        for given, ours in (
            ("/etc/floodmark/floodmark.yml", config),
            ('["settlement"]', '["main"]'),
            ('"retries": 2', '"retries": 1'),
            ("timedelta(minutes=1)}", "timedelta(seconds=1)}"),
        ):
            assert text.count(given) == 1, given
            text = text.replace(given, ours)
        (self._dags / EXAMPLE.name).write_text(text)
        self._call("airflow", "db", "migrate")

    def run(self, dag: str) -> Ran:
        """Run a DAG once."""
        printed = self._call("python", "-B", "-c", RUN, str(self._dags), dag)
        (line,) = (line for line in printed.splitlines() if line.startswith("found "))
        state, tasks = json.loads(line.removeprefix("found "))
        return Ran(
            state=state,
            tasks={shown or task: (ended, value) for task, shown, ended, _, value in tasks},
            tries={shown or task: tries for task, shown, _, tries, _ in tasks},
        )

    def _call(self, program: str, *arguments: str) -> str:
        settings = {
            "AIRFLOW_HOME": str(self._folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__API__HOST": "127.0.0.1",
        }
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [BIN / program, *arguments],
            env=kept | settings,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout


@pytest.fixture(params=["mariadb-duckdb", "mysql-postgres"])
def synced(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Pipeline, Warehouse]]:
    """Two tables with rows, one that does not exist, and a warehouse."""
    source, target = request.param.split("-")
    server: PrivateMariaDB = request.getfixturevalue(source)
    warehouse = new_warehouse(target, request, tmp_path)
    it = new_pipeline(server, Lake(f"{tmp_path}/lake"), tmp_path, dict.fromkeys(TABLES, "{}"))
    name_target(it.config, warehouse.connection)
    for number, name in enumerate(TABLES[:2], 1):
        ask_once(it, f"CREATE TABLE {name} (id INT PRIMARY KEY, update_at DATETIME(6) NOT NULL)")
        for row in range(number * 3):
            ask_once(it, f"INSERT INTO {name} VALUES ({row}, '2025-06-01 00:00:0{row}')")
    yield it, warehouse
    server.execute(f"DROP DATABASE {it.schema}")


def ids(warehouse: Warehouse, table: str) -> list[int]:
    schema = getattr(warehouse.connection, "schema", "main")
    query = f"SELECT id FROM {quoted(schema)}.{quoted(table)} ORDER BY id"
    return [row[0] for row in warehouse.query(query)]


def test_a_table_that_fails_fails_its_own_task_and_no_other(
    synced: tuple[Pipeline, Warehouse], tmp_path: Path
) -> None:
    it, warehouse = synced
    (tmp_path / "airflow").mkdir()
    airflow = Airflow(tmp_path / "airflow", it.config)
    names = {name: str(it.table(name)) for name in TABLES}

    first = airflow.run("floodmark_tables")
    assert first.state == "failed"
    assert {name: state for name, (state, _) in first.tasks.items()} == {
        "list_tables": "success",
        names["orders"]: "success",
        names["partners"]: "success",
        names["broken"]: "failed",
    }
    assert first.tasks["list_tables"][1] == [*names.values()]
    assert first.tasks[names["orders"]][1] == {names["orders"]: "2025-06-01 00:00:02, id 2"}
    assert (ids(warehouse, "orders"), ids(warehouse, "partners")) == ([*range(3)], [*range(6)])

    failed = airflow.run("floodmark_pipelines")
    assert (failed.state, failed.tasks["main"][0]) == ("failed", "failed")

    ask_once(it, "CREATE TABLE broken (id INT PRIMARY KEY, update_at DATETIME(6) NOT NULL)")
    ask_once(it, "INSERT INTO broken VALUES (7, '2025-06-01 00:00:00')")
    ask_once(it, "INSERT INTO orders VALUES (3, '2025-06-02 00:00:00')")
    again = airflow.run("floodmark_pipelines")
    assert (again.state, again.tasks["main"][0]) == ("success", "success")
    assert again.tasks["main"][1][names["orders"]] == "2025-06-02 00:00:00, id 3"
    assert (ids(warehouse, "orders"), ids(warehouse, "broken")) == ([*range(4)], [7])
    assert {state for state, _ in airflow.run("floodmark_tables").tasks.values()} == {"success"}
