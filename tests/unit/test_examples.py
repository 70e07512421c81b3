"""The examples for Airflow, systemd and cron.

Airflow cannot be installed beside PySpark's versions of the same libraries, so its example runs
against Airflow itself where `make airflow` has made an environment for it, and always against a
stand-in with the five names that it uses.
"""

import json
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

tasks = []
def task(function):
    tasks.append(function)
    return lambda: None

sdk, errors = types.ModuleType("airflow.sdk"), types.ModuleType("airflow.sdk.exceptions")
sdk.dag, sdk.task = dag, task
errors.AirflowException = AirflowException
errors.AirflowFailException = AirflowFailException
errors.AirflowSkipException = AirflowSkipException
sys.modules |= {"airflow": types.ModuleType("airflow"), "airflow.sdk": sdk}
sys.modules["airflow.sdk.exceptions"] = errors
import floodmark_sync
function = tasks[0]
"""
REAL = """
import floodmark_sync
found = floodmark_sync.floodmark_sync()
assert [task.task_id for task in found.tasks] == ["sync"], found.tasks
assert found.max_active_runs == 1 and not found.catchup
function = found.tasks[0].python_callable
"""
CALL = """
try:
    print("returned", function())
except Exception as error:
    print(type(error).__name__, error)
"""
TABLES = {
    "tables": [{"table_name": "P:s.t", "error": "broken"}, {"table_name": "P:s.u", "error": None}]
}


def outcome(kind: str, folder: Path, code: int, out: str) -> str:
    """What the task makes of a program that prints and ends so."""
    program = folder / "floodmark"
    program.write_text(f"#!/bin/sh\necho {shlex.quote(out)}\nexit {code}\n")
    program.chmod(0o755)
    script = f"import sys\nsys.path.insert(0, {str(EXAMPLES / 'airflow')!r})\n"
    python, beginning = (str(AIRFLOW), REAL) if kind == "real" else (sys.executable, STAND_IN)
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "AIRFLOW_HOME": str(folder / "airflow"),
    }
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, "-B", "-c", script + beginning + CALL],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture(params=["stand-in", "real"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "real" and not AIRFLOW.exists():
        pytest.skip("'make airflow' installs Airflow in an environment of its own")
    return str(request.param)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (0, "returned {"),
        (1, "AirflowException P:s.t: broken"),
        (2, "AirflowFailException wrong usage or configuration: "),
        (3, "AirflowException P:s.t: broken"),
        (4, "AirflowSkipException P:s.t: broken"),
        (5, "AirflowFailException verification found a difference: P:s.t: broken"),
        (143, "AirflowException P:s.t: broken"),
    ],
)
def test_airflow_takes_exit_codes_for_what_they_mean(
    kind: str, code: int, says: str, tmp_path: Path
) -> None:
    out = "" if code == 2 else json.dumps(TABLES)
    assert outcome(kind, tmp_path, code, out).startswith(says)


def commands() -> list[list[str]]:
    texts = [
        (EXAMPLES / "systemd" / "floodmark.service").read_text(),
        *(EXAMPLES / "cron" / "floodmark").read_text().splitlines(),
    ]
    found = [re.search(r"floodmark ((?:sync|watermark) [^>\n]*)", text) for text in texts]
    return [shlex.split(match[1]) for match in found if match]


def test_there_are_commands_in_the_examples() -> None:
    assert len(commands()) == 3


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
    assert len(jobs) == 2
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
