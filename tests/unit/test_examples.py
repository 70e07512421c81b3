"""The examples for Airflow, systemd and cron.

What the example for Airflow makes of errors is tried with Airflow itself where `make airflow` has
made an environment for it, and always with a stand-in that has the five names that it uses. There
floodmark is its API alone: a module whose project returns a result that we choose, and whose errors
are the real ones. `tests/integration/test_airflow.py` runs its DAGs.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from floodmark.cli.main import cli

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
AIRFLOW = ROOT / ".venv-airflow" / "bin" / "python"

STAND_IN = """
import sys, types

class AirflowException(Exception): pass
class AirflowFailException(AirflowException): pass
class AirflowSkipException(AirflowException): pass

def dag(**options):
    return lambda function: function

class Task:
    def __call__(self, *arguments):
        return self
    expand = lambda self, **mapped: self

def task(function=None, **options):
    return Task() if function else task

sdk, errors = types.ModuleType("airflow.sdk"), types.ModuleType("airflow.sdk.exceptions")
sdk.dag, sdk.task = dag, task
errors.AirflowException = AirflowException
errors.AirflowFailException = AirflowFailException
errors.AirflowSkipException = AirflowSkipException
sys.modules |= {"airflow": types.ModuleType("airflow"), "airflow.sdk": sdk}
sys.modules["airflow.sdk.exceptions"] = errors
"""
REAL = """
import floodmark_sync
for make, names in (
    (floodmark_sync.floodmark_pipelines, ["sync_pipeline"]),
    (floodmark_sync.floodmark_tables, ["list_tables", "sync_table"]),
):
    found = make()
    assert [task.task_id for task in found.tasks] == names, found.tasks
    assert found.max_active_runs == 1 and not found.catchup
"""
PROJECT = """
import importlib.util, sys, types

def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

ours = load("floodmark.errors", {errors!r})

class Result:
    tables = [types.SimpleNamespace(table_name="P:s.t", end="2025-06-01 00:00:00, id 7")]
    def raise_for_failures(self):
        return self

class Project:
    def __enter__(self):
        return self
    def __exit__(self, *_):
        print("closed")
    def sync(self, *, pipelines):
        assert pipelines == "settlement"
        if {kind!r}:
            raise getattr(ours, {kind!r})("P:s.t: broken")
        return Result()

package = types.ModuleType("floodmark")
vars(package).update(vars(ours))
package.open_project = lambda path: Project()
sys.modules["floodmark"] = package
"""
CALL = """
import floodmark_sync
try:
    print("returned", floodmark_sync.sync(pipelines="settlement"))
except Exception as error:
    print(type(error).__name__, error)
"""


def outcome(kind: str, folder: Path, error: str) -> str:
    """What the task makes of a sync that ends with an error, or well."""
    script = f"import sys\nsys.path.insert(0, {str(EXAMPLES / 'airflow')!r})\n"
    script += PROJECT.format(errors=str(ROOT / "src" / "floodmark" / "errors.py"), kind=error)
    python, beginning = (str(AIRFLOW), REAL) if kind == "real" else (sys.executable, STAND_IN)
    environment = {**os.environ, "AIRFLOW_HOME": str(folder / "airflow")}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, "-B", "-c", script + beginning + CALL],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "closed" in done.stdout
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture(params=["stand-in", "real"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "real" and not AIRFLOW.exists():
        pytest.skip("'make airflow' installs Airflow in an environment of its own")
    return str(request.param)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("", "returned {'P:s.t': '2025-06-01 00:00:00, id 7'}"),
        ("FloodmarkError", "AirflowException P:s.t: broken"),
        ("PartialFailure", "AirflowException P:s.t: broken"),
        ("ConfigError", "AirflowFailException P:s.t: broken"),
        ("BusyError", "AirflowSkipException P:s.t: broken"),
        ("DifferenceFound", "AirflowFailException P:s.t: broken"),
    ],
)
def test_airflow_takes_errors_for_what_they_mean(
    kind: str, error: str, says: str, tmp_path: Path
) -> None:
    assert outcome(kind, tmp_path, error) == says


def commands() -> list[list[str]]:
    texts = [
        (EXAMPLES / "systemd" / "floodmark.service").read_text(),
        *(EXAMPLES / "cron" / "floodmark").read_text().splitlines(),
    ]
    found = [re.search(r"floodmark ((?:sync|status|watermark) [^>|\n]*)", text) for text in texts]
    return [shlex.split(match[1]) for match in found if match]


def test_there_are_commands_in_the_examples() -> None:
    assert len(commands()) == 4


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_of_the_examples_can_be_parsed(words: list[str]) -> None:
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None
        command, words = found, words[1:]
    command.make_context("floodmark", list(words))


def test_cron_fields() -> None:
    lines = (EXAMPLES / "cron" / "floodmark").read_text().splitlines()
    jobs = [line for line in lines if not line.startswith("#") and "=" not in line.split()[0]]
    assert len(jobs) == 3
    for job in jobs:
        *times, user, program, _ = job.split(maxsplit=7)
        assert all(re.fullmatch(r"[\d*/,-]+", field) for field in times), times
        assert (user, program) == ("floodmark", "floodmark")
        assert "%" not in job  # cron would take it for the end of the line


def test_systemd_accepts_the_service() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze on this machine")
    service = EXAMPLES / "systemd" / "floodmark.service"
    done = subprocess.run([analyze, "verify", service], capture_output=True, text=True, check=False)
    assert "floodmark.service" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
